"""Shuffle: another order each epoch.

Over random access the order is a keyed bijection of all positions: nothing is read, nothing is held. Over a stream
there is a choice: `window` shuffles inside consecutive blocks and resumes by reading at most that block again; a buffer
(`buffer_size`, the stream's default) swaps every incoming sample with a random one that waits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Op
from headrace.plan.seed import key

T = TypeVar("T")
STREAM_BUFFER = 10_000
PICKS = 1024


@dataclass(frozen=True, slots=True)
class Shuffle(Op[T, T]):
    """Shuffle everything, inside windows, or through a buffer."""

    window: int | None = None
    buffer_size: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.buffer_size is not None:
            raise BadOption("shuffle() takes window= or buffer_size=, not both")
        for name in ("window", "buffer_size"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value <= 0):
                raise BadOption(f"shuffle({name}=) needs a positive whole number, not {value!r}")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        if self.buffer_size is not None:
            return None
        from headrace.plan.order import Chunked, Shuffled, Windowed

        (inner,) = inputs
        size = inner.length
        if self.window is None:
            order: Any = Shuffled(size, key(here.seed, "shuffle"))
        else:
            order = Windowed(size, self.window, key(here.seed, "window"))
        at, fetch, take = Chunked(order).at, inner.get, inner.take
        many = None if take is None else lambda positions, names: take(order(positions), names)
        return Indexed(size, lambda position: fetch(at(position)), many)

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        return inputs[0] and self.buffer_size is None

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return inputs[0]

    def flow(self, *inputs: Any) -> Iterator[T]:
        samples, here = inputs
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
        held = list(islice(samples, size))
        if len(held) == size:
            picks = key(here.seed, "picks")
            for start in count(0, PICKS):
                # Drawing many at once: one call for one number costs more than the rest of the loop.
                drawn = (uniform(picks, start, PICKS) * size).astype(int).tolist()
                taken = 0
                for sample, pick in zip(islice(samples, PICKS), drawn, strict=False):
                    yield held[pick]
                    held[pick] = sample
                    taken += 1
                if taken < PICKS:
                    break
        for position in permutation(len(held), key(here.seed, "drain")):
            yield held[position]

    def identity(self) -> tuple[Any, ...]:
        return ("shuffle", self.window, self.buffer_size)
