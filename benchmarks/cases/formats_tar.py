"""Stored files: tar shards in stored order, beside WebDataset."""

from functools import partial

from benchmarks.formats import case
from benchmarks.formats import measure as measure_format

CASE = case("tar", "webdataset", 1.5)
measure = partial(measure_format, "tar")
