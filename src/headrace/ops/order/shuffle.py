"""Shuffle: another order each epoch.

Over random access the order is a keyed bijection of all positions: nothing is read, nothing is held. Over a stream
there is a choice: `window` shuffles inside consecutive blocks and resumes by reading at most that block again; a buffer
(`buffer_size`, the stream's default) swaps every incoming sample with a random one that waits.

Files are cheap to read in units (row groups). `quality` is the part of all units that stand open and are mixed at a
time: 1 is a uniform order of all rows, which reads a unit anew for nearly every row once the units do not fit in
memory; a smaller one is an order of all rows too, each exactly once, that reads every unit about once (`plan.lanes`).
Without it, as many units are open as fit in memory. `explain()` says what comes of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Op, is_count
from headrace.plan.seed import key

T = TypeVar("T")
STREAM_BUFFER = 10_000
PICKS = 1024


@dataclass(frozen=True, slots=True)
class Shuffle(Op[T, T]):
    """Shuffle everything, inside windows, or through a buffer."""

    window: int | None = None
    buffer_size: int | None = None
    quality: float | None = None
    accepts = is_count

    def __post_init__(self) -> None:
        if self.window is not None and self.buffer_size is not None:
            raise BadOption("shuffle() takes window= or buffer_size=, not both")
        for name in ("window", "buffer_size"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value <= 0):
                raise BadOption(f"shuffle({name}=) needs a positive whole number, not {value!r}")
        if self.quality is not None and (self.window or self.buffer_size or not 0 < self.quality <= 1):
            raise BadOption(f"shuffle(quality=) is a number above 0 and up to 1, by itself, not {self.quality!r}")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        if self.buffer_size is not None:
            return None
        from headrace.plan.order import Chunked, Shuffled, Windowed

        (inner,) = inputs
        size = inner.length
        lanes = 0 if inner.units is None or self.window is not None else self._lanes(inner.units)
        if lanes:
            from headrace.plan.lanes import Lanes

            order: Any = Lanes(inner.units.ends, lanes, key(here.seed, "lanes"))
        elif self.window is None:
            order = Shuffled(size, key(here.seed, "shuffle"))
        else:
            order = Windowed(size, self.window, key(here.seed, "window"))
        at, fetch, take = Chunked(order).at, inner.get, inner.take
        many = None if take is None else lambda positions, names: take(order(positions), names)
        found = Indexed(size, lambda position: fetch(at(position)), many)
        if inner.units is not None:
            found.remark = _remark(inner.units, lanes)
        return found

    def _lanes(self, units: Any) -> int:
        """How many units are open at a time; 0: all rows are shuffled as one."""
        if self.quality is not None:
            return 0 if self.quality == 1 else max(1, -int(-self.quality * units.count // 1))
        return 0 if units.hold >= units.count else int(units.hold)

    @property
    def resume(self) -> str:
        """What a stream reads again."""
        return "at most the window at hand" if self.window is not None else "about ten buffers"

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0] and self.buffer_size is None

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return inputs[0]

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        return self._windows(samples, here) if self.window is not None else self._buffer(samples, here)

    def _windows(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        from headrace.plan.order import permutation

        assert self.window is not None
        number = here.note or 0
        while True:
            here.rest(number)
            block = list(islice(samples, self.window))
            if not block:
                return
            for position in permutation(len(block), key(here.seed, "block", number)):
                yield block[position]
            number += 1

    def _buffer(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        from headrace.plan.order import permutation, uniform

        size = self.buffer_size or STREAM_BUFFER
        lot = max(1, min(PICKS, size // 8))
        begin = here.note or 0
        # After a resume the buffer is not known, but all that it held is gone before the first sample that counts.
        held: list[Any] = list(islice(samples, size)) if not begin else [None] * size
        born = [begin] * len(held)
        here.oldest = lambda: min(born, default=0)
        if len(held) == size:
            picks = key(here.seed, "picks")
            for start in count(begin, lot):
                if start:
                    here.stand(start)
                # Drawing many at once: one call for one number costs more than the rest of the loop.
                drawn = (uniform(picks, start, lot) * size).astype(int).tolist()
                taken = 0
                for sample, pick in zip(islice(samples, lot), drawn, strict=False):
                    yield held[pick]
                    held[pick] = sample
                    born[pick] = start
                    taken += 1
                if taken < lot:
                    break
        for position in permutation(len(held), key(here.seed, "drain")):
            yield held[position]

    def identity(self) -> tuple[Any, ...]:
        return ("shuffle", self.window, self.buffer_size, *(() if self.quality is None else (self.quality,)))


def _remark(units: Any, lanes: int) -> str:
    if lanes:
        part = 100 * min(1.0, lanes / units.count)
        fits = "" if lanes <= units.hold else f"; only {units.hold} fit in memory: raise memory= or lower quality="
        return (
            f"shuffle: {min(lanes, units.count)} of {units.count} row groups are open at a time, so a row comes beside "
            f"rows of {part:.3g} % of the data; every row group is read about once an epoch{fits}"
        )
    if units.hold >= units.count:
        return f"shuffle: uniform over all rows; all {units.count} row groups fit in memory"
    return (
        f"shuffle: uniform over all rows, but only {units.hold} of {units.count} row groups fit in memory: nearly "
        f"every row makes a row group be read anew; raise memory=, or use quality={units.hold / units.count:.2g}"
    )
