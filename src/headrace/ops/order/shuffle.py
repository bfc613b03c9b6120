"""Shuffle: another order each epoch, of all samples or inside each batch.

Over random access the order is a keyed bijection of all positions: nothing is read, nothing is held. Over a stream
there is a choice: `window` shuffles inside consecutive blocks and resumes by reading at most that block again; a buffer
(`buffer_size`, the stream's default) swaps every incoming sample with a random one that waits.

Files are cheap to read in units (row groups, stretches of shards). Above a fixed number of bytes their order is one of
parts (`plan.parts`): every row exactly once, every unit read about once by all ranks together. `quality` is the
fraction of all units that stand open and are mixed at a time; 1 is a uniform order of all rows at any size, which reads
a unit anew for nearly every row once the units do not fit in memory. `parts` is the number of parts, where the default
(48, or fewer for large units) does not suit. `explain()` says which order it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Each, Here, Indexed, Lengths, Op, as_input, is_count, place
from headrace.ops.ahead import ahead_of
from headrace.ops.shape.batch import DataChunk
from headrace.plan.seed import generator, key

if TYPE_CHECKING:
    from headrace.plan.order import Order
    from headrace.plan.units import Arrangement, Units

T = TypeVar("T")
STREAM_BUFFER = 10_000
PICKS = 1024


@dataclass(frozen=True, slots=True)
class Shuffle(Op[T, T]):
    """Shuffle everything, inside windows, or through a buffer."""

    window: int | None = None
    buffer_size: int | None = None
    quality: float | None = None
    parts: int | None = None
    accepts = is_count
    hands_on = True
    length = as_input

    def __post_init__(self) -> None:
        if self.window is not None and self.buffer_size is not None:
            raise BadOption("shuffle() takes window= or buffer_size=, not both")
        for name in ("window", "buffer_size", "parts"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
                raise BadOption(f"shuffle({name}=) needs a positive whole number, not {value!r}")
        if self.quality is not None and (self.window or self.buffer_size or not 0 < self.quality <= 1):
            raise BadOption(f"shuffle(quality=) is a number above 0 and up to 1, by itself, not {self.quality!r}")
        if self.parts is not None and (self.window or self.buffer_size or self.quality == 1):
            raise BadOption("shuffle(parts=) is for an order of everything: leave out window=, buffer_size=, quality=1")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        if self.buffer_size is not None:
            return None
        from headrace.plan.order import Chunked, Shuffled, Windowed
        from headrace.plan.parts import Parts

        (inner,) = inputs
        size, units = inner.length, inner.units
        plan = None if self.window is not None else self._arrangement(units)
        if plan is not None and units is not None:
            parts = Parts(units.ends, key(here.seed, "line"), key(here.seed, "parts"), plan.parts, plan.lanes)
            order: Order = parts
            at: Callable[[int], int] = parts.lookup().at
        else:
            parts = None
            order = (
                Shuffled(size, key(here.seed, "shuffle"))
                if self.window is None
                else Windowed(size, self.window, key(here.seed, "window"))
            )
            at = Chunked(order).at
        fetch, take = inner.get, inner.take
        many = None if take is None else lambda positions, names: take(order(positions), names)
        found = Indexed(size, lambda position: fetch(at(position)), many)
        if (known := inner.lengths) is not None:
            work = known.work
            found.lengths = Lengths(
                lambda some: known.at(order(some)), known.tokens, (*known.key, self, here.seed),
                None if work is None else lambda some: work(order(some)),
            )  # fmt: skip
        if (fetch_many := inner.many) is not None:
            found.many = lambda positions: fetch_many([at(position) for position in positions])
        found.ahead = ahead_of(inner, lambda positions: map(at, positions))
        found.light = inner.light
        found.parts, found.scattered = parts, units if parts is None else None
        if units is not None and self.window is None:
            found.remark, found.trouble = _remark(units, plan), _trouble(units, plan)
        return found

    def _arrangement(self, units: "Units | None") -> "Arrangement | None":
        """Parts and lanes of the order; None: all rows are shuffled as one."""
        from headrace.plan.units import choose_arrangement

        if units is None:
            if self.parts is not None:
                raise BadOption(
                    "shuffle(parts=) is for files that are read in units: put it right behind Pipe.parquet or "
                    "Pipe.stored, or leave it out"
                )
            return None
        return choose_arrangement(units, self.quality, self.parts)

    @property
    def resume(self) -> str:
        return "at most the window at hand" if self.window is not None else "about ten buffers"

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0] and self.buffer_size is None

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        return self._windows(samples, here) if self.window is not None else self._buffer(samples, here)

    def _windows(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        from headrace.plan.order import permutation

        assert self.window is not None
        number = here.note or 0
        here.rest(number)
        while block := list(islice(samples, self.window)):
            for position in permutation(len(block), key(here.seed, "block", number)):
                yield block[position]
            number += 1
            here.rest(number)

    def _buffer(self, samples: Iterator[T], here: Here) -> Iterator[T]:
        from headrace.plan.order import permutation, uniform

        size = self.buffer_size or STREAM_BUFFER
        lot = max(1, min(PICKS, size // 8))
        begin = here.note or 0
        # After a resume the buffer is not known; but every sample that it held was emitted before the snapshot.
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
        said = [(name, getattr(self, name)) for name in ("quality", "parts") if getattr(self, name) is not None]
        return ("shuffle", self.window, self.buffer_size, *said)


def _trouble(units: "Units", plan: "Arrangement | None") -> str:
    """The warning that units are read again and again because too few of them fit in memory; else nothing."""
    wide = units.count if plan is None else min(plan.open, units.count)
    if not units.largest or wide <= units.hold:
        return ""
    fits = max(units.hold // 2, 1) / units.count
    return (
        f"shuffle() keeps {wide} {units.name} open and memory= has room for {units.hold}: they are read again and "
        f"again; use memory={wide * units.largest * 5 // 4} or shuffle(quality={fits:.2g})"
    )


def _remark(units: "Units", plan: "Arrangement | None") -> str:
    """The line of `explain()` about the order."""
    if plan is not None:
        wide = min(plan.open, units.count)
        need = wide * units.largest
        once = "each is read once an epoch and rank" if 2 * wide <= units.hold else "each is read about once an epoch"
        fits = (
            f"; memory= holds {units.hold}, so {once}"
            if wide <= units.hold
            else (
                f"; only {units.hold} fit in memory, so on one rank {units.name} are read again and again: use "
                f"memory={need * 5 // 4}, more ranks, or a lower quality="
            )
        )
        return (
            f"shuffle: an order of {plan.parts} parts, because there are {units.total} bytes: {wide} of {units.count} "
            f"{units.name} are open at a time in the whole job{fits}"
        )
    if not units.largest:
        return "shuffle: uniform over all samples, because they are few; each is read by itself"
    if units.hold >= units.count:
        return f"shuffle: uniform over all rows; all {units.count} {units.name} fit in memory"
    return (
        f"shuffle: uniform over all rows, but only {units.hold} of {units.count} {units.name} fit in memory: nearly "
        f"every row makes one be read anew; raise memory=, or use quality={units.hold / units.count:.2g}"
    )


@dataclass(frozen=True, slots=True)
class InBatchShuffle(Each[Any, DataChunk[Any]]):
    """The samples of each batch in a random order, keyed by the batch's number."""

    def apply(self, sample: Sequence[Any]) -> DataChunk[Any]:
        # A generator of its own: that of `rng()` goes on when the same batch is asked for twice in a row.
        spot = place.spot
        assert spot.here is not None
        order = generator(key(spot.here.seed, "sample", spot.position)).permutation(len(sample))
        return DataChunk([sample[i] for i in order.tolist()])
