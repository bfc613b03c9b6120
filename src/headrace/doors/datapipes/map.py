"""The classes of `headrace.datapipes.map`: tables, whose samples are asked for by key."""

import warnings
from collections.abc import Callable
from typing import Any

from headrace.doors.datapipes import verbs as verbs
from headrace.doors.datapipes.classes import make_class, put_verb
from headrace.doors.datapipes.iter import MapToIterConverter, RandomOrder
from headrace.doors.datapipes.lowering import lowered
from headrace.doors.datapipes.nodes import IterDataPipe, MapDataPipe
from headrace.pipe.graph import Pipe
from headrace.pipe.verbs.helpful import helpful
from headrace.tracebacks import users_line

MODULE = "headrace.datapipes.map"


class ReadsWhole(MapDataPipe[Any]):
    """A table whose length is known only when all of its source has been read."""

    def __len__(self) -> int:
        if self._map is None and lowered(self._sources[0]).length() is None:
            warnings.warn(
                "Data from prior DataPipe are loaded to get length of IterToMapConverter before execution of the "
                "pipeline. Please consider removing len().",
                stacklevel=users_line(),
            )
        return int(self._built.size())

    @property
    def _map(self) -> dict[Any, Any] | None:
        return next(iter(self._built.read), None)

    def _load_map(self) -> None:
        self._built.table()


def _table(name: str, make: Callable[..., Any], verb: str = "", *mixins: type, on: Any = MapDataPipe) -> Any:
    # A shuffled table is a stream: its samples come one after the other.
    base: Any = IterDataPipe if RandomOrder in mixins else MapDataPipe
    return make_class(name, helpful(make), base, MODULE, mixins, verb, on)


Batcher = _table("Batcher", verbs.batch_table, "batch")
Concater = _table("Concater", verbs.concat_tables, "concat")
InMemoryCacheHolder = _table("InMemoryCacheHolder", verbs.cache_table, "in_memory_cache")
IterToMapConverter = _table("IterToMapConverter", Pipe.to_map_datapipe, "to_map_datapipe", ReadsWhole, on=IterDataPipe)
Mapper = _table("Mapper", verbs.map_table, "map")
SequenceWrapper = _table("SequenceWrapper", verbs.wrap_table)
Shuffler = _table("Shuffler", verbs.shuffle_table, "shuffle", RandomOrder)
UnZipper = _table("UnZipper", verbs.unzip_table, "unzip")
Zipper = _table("Zipper", verbs.zip_tables, "zip")

CLASSES = {name: made for name, made in globals().items() if getattr(made, "__module__", "") == MODULE}
put_verb(MapDataPipe, "to_iter_datapipe", MapToIterConverter, verbs.to_iter)
