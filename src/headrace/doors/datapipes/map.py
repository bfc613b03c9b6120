"""The classes of `headrace.datapipes.map`: tables, made from the same kind of table."""

import warnings
from collections.abc import Callable
from typing import Any

from headrace.doors.datapipes import verbs as verbs
from headrace.doors.datapipes.classes import make_class, put_verb
from headrace.doors.datapipes.iter import CLASSES as STREAMS
from headrace.doors.datapipes.iter import RandomOrder
from headrace.doors.datapipes.lowering import lowered
from headrace.doors.datapipes.nodes import IterDataPipe, MapDataPipe

MODULE = "headrace.datapipes.map"


class Loads(MapDataPipe[Any]):
    """A table whose length may be known only when all of its source has been read."""

    def __len__(self) -> int:
        if self._map is None and lowered(self._sources[0]).length() is None:
            warnings.warn(
                "Data from prior DataPipe are loaded to get length of IterToMapConverter before execution of the "
                "pipeline. Please consider removing len().",
                stacklevel=2,
            )
        return int(self._built.size())

    @property
    def _map(self) -> dict[Any, Any] | None:
        return self._built.read.table  # type: ignore[no-any-return]

    def _load_map(self) -> None:
        self._built.table()


VERBS: dict[str, tuple[str, Callable[..., Any]]] = {
    "Batcher": ("batch", verbs.batch_table),
    "Concater": ("concat", verbs.concat_tables),
    "InMemoryCacheHolder": ("in_memory_cache", verbs.cache_table),
    "Mapper": ("map", verbs.map_table),
    "Shuffler": ("shuffle", verbs.shuffle_table),
    "UnZipper": ("unzip", verbs.unzip_table),
    "Zipper": ("zip", verbs.zip_tables),
}
"""Class -> verb on tables."""

CLASSES: dict[str, Any] = {
    "IterToMapConverter": make_class("IterToMapConverter", verbs.to_map, MapDataPipe, MODULE, (Loads,)),
    "SequenceWrapper": make_class("SequenceWrapper", verbs.wrap_table, MapDataPipe, MODULE),
}
for _name, (_verb, _make) in VERBS.items():
    # A shuffled table is a stream: its samples come one after the other.
    _base, _mixins = (IterDataPipe, (RandomOrder,)) if _name == "Shuffler" else (MapDataPipe, ())
    CLASSES[_name] = make_class(_name, _make, _base, MODULE, _mixins, _verb)
    put_verb(MapDataPipe, _verb, CLASSES[_name], _make)
CLASSES = dict(sorted(CLASSES.items()))
put_verb(MapDataPipe, "to_iter_datapipe", STREAMS["MapToIterConverter"], verbs.to_iter)
put_verb(IterDataPipe, "to_map_datapipe", CLASSES["IterToMapConverter"], verbs.to_map)
