"""Stored files: tar shards in stored order, beside WebDataset and the shards of release 0.1."""

from functools import partial

from benchmarks.case import Target
from benchmarks.formats import case
from benchmarks.formats import measure as measure_format

CASE = case(
    "tar", "webdataset", 1.5,
    Target("tar beside release 0.1", "samples/s", "samples/s", ("headrace", "release01"), at_least=2),
)  # fmt: skip
measure = partial(measure_format, "tar")
