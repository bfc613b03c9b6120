"""Group by: samples with the same key together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Op, is_count, place
from headrace.ops.counts import BadCount
from headrace.ops.shape.batch import DataChunk


@dataclass(frozen=True, slots=True)
class GroupBy(Op[Any, Any]):
    """Chunks of samples with one key: when `group_size` of them are there, when the buffer is full, and at the end."""

    key_fn: Callable[[Any], Any]
    keep_key: bool = False
    buffer_size: int = 10000
    group_size: int | None = None
    guaranteed_group_size: int | None = None
    drop_remaining: bool = False
    user = True
    accepts = is_count
    verb = "groupby"

    def __post_init__(self) -> None:
        if self.group_size is not None and not 0 < self.group_size <= self.buffer_size:
            raise BadCount("group_size must be > 0 and <= buffer_size")
        least = self.guaranteed_group_size
        if least is not None and (self.group_size is None or not 0 < least <= self.group_size):
            raise BadCount("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")

    def flow(self, samples: Iterator[Any], here: Here) -> Iterator[Any]:
        groups: dict[Any, list[Any]] = {}
        held = 0
        number = here.note or 0
        here.rest(number)
        for sample in samples:
            place.at(here, number)
            number += 1
            key = self.key_fn(sample)
            groups.setdefault(key, []).append(sample)
            held += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                held -= self.group_size
                yield self._out(key, groups.pop(key))
            if held == self.buffer_size:
                key = max(groups, key=lambda k: len(groups[k]))
                group = groups.pop(key)
                held -= len(group)
                if self.guaranteed_group_size is None or len(group) >= self.guaranteed_group_size:
                    yield self._out(key, group)
                elif not self.drop_remaining:
                    raise RuntimeError("Failed to group items", str(group))
            if not held:
                here.rest(number)
        for key in list(groups):
            yield self._out(key, groups.pop(key))

    def _out(self, key: object, group: list[Any]) -> Any:
        chunk = DataChunk(group)
        return (key, chunk) if self.keep_key else chunk
