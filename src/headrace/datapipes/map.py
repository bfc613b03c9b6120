"""The classes of tables, by the names that users of TorchData know."""

from headrace.doors.datapipes import MapDataPipe
from headrace.doors.datapipes_map import CLASSES

Batcher = CLASSES["Batcher"]
Concater = CLASSES["Concater"]
InMemoryCacheHolder = CLASSES["InMemoryCacheHolder"]
IterToMapConverter = CLASSES["IterToMapConverter"]
Mapper = CLASSES["Mapper"]
SequenceWrapper = CLASSES["SequenceWrapper"]
Shuffler = CLASSES["Shuffler"]
UnZipper = CLASSES["UnZipper"]
Zipper = CLASSES["Zipper"]

__all__ = [
    "Batcher",
    "Concater",
    "InMemoryCacheHolder",
    "IterToMapConverter",
    "MapDataPipe",
    "Mapper",
    "SequenceWrapper",
    "Shuffler",
    "UnZipper",
    "Zipper",
]
