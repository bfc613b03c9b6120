"""Stored files: mds, shuffled, beside the reader that the format comes with."""

from functools import partial

from benchmarks.formats import case
from benchmarks.formats import measure as measure_format

CASE = case("mds", "mosaic", 0.9)
measure = partial(measure_format, "mds")
