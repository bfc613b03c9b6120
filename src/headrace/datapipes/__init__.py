"""DataPipes: graphs of verbs, as users of TorchData know them.

from headrace.datapipes.iter import IterableWrapper, Mapper
from headrace.datapipes.map import SequenceWrapper
from headrace.datapipes.graph import traverse_dps, replace_dp
"""

from headrace.datapipes import iter, map, utils
from headrace.doors.datapipes.names import (
    SHARDING_PRIORITIES,
    DataChunk,
    IterableWrapper,
    IterDataPipe,
    MapDataPipe,
    SequenceWrapper,
    functional_datapipe,
)

__all__ = [
    "DataChunk",
    "IterDataPipe",
    "IterableWrapper",
    "MapDataPipe",
    "SHARDING_PRIORITIES",
    "SequenceWrapper",
    "functional_datapipe",
    "iter",
    "map",
    "utils",
]
