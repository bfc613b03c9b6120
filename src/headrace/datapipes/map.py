"""The classes of tables, by the names that users of TorchData know."""

from headrace.doors.datapipes.map import CLASSES
from headrace.doors.datapipes.names import MapDataPipe as MapDataPipe

Batcher = CLASSES["Batcher"]
Concater = CLASSES["Concater"]
InMemoryCacheHolder = CLASSES["InMemoryCacheHolder"]
IterToMapConverter = CLASSES["IterToMapConverter"]
Mapper = CLASSES["Mapper"]
SequenceWrapper = CLASSES["SequenceWrapper"]
Shuffler = CLASSES["Shuffler"]
UnZipper = CLASSES["UnZipper"]
Zipper = CLASSES["Zipper"]

__all__ = sorted(["MapDataPipe", *CLASSES])
