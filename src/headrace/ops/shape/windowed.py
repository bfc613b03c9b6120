"""Windowed: sliding windows over a stream.

    size=3, step=1    abc bcd cde def ...      each sample in up to three windows
    size=2, step=3    ab de gh ...             c, f, ... are in none

A window that the end cuts short is left out, so a pipe shorter than `size` has no windows. Windows that overlap hold
copies of what they share: changing one in place does not change the next.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from headrace.op import Here, Indexed, Op, is_count
from headrace.ops.counts import positive
from headrace.sources.memory import copy_for_reader

T = TypeVar("T")
APART = 1000
"""The place of the input is noted after so many samples. A resume reads at most these and one window again."""


@dataclass(frozen=True, slots=True)
class SlidingWindow(Op[T, list[T]]):
    """Lists of `size` consecutive samples, one beginning at every `step`-th sample."""

    size: int
    step: int = 1
    accepts = is_count
    verb = "windowed"

    def __post_init__(self) -> None:
        positive(self.size, f"windowed(size) needs a positive whole number, not {self.size!r}")
        positive(self.step, f"windowed(step=) needs a positive whole number, not {self.step!r}")

    def flow(self, samples: Iterator[T], here: Here) -> Iterator[list[T]]:
        size, step = self.size, self.step
        read = stood = start = here.note or 0  # samples read, the last note, the first sample of the next window
        here.oldest = lambda: start
        for _ in range(here.emitted, start // step):
            yield []  # windows that began before: they were emitted, and are dropped here
        held: deque[T] = deque()
        for sample in samples:
            read += 1
            if read > start:
                held.append(sample)
            if len(held) == size:
                window = list(held) if step >= size else [copy_for_reader(one) for one in held]
                start += step
                for _ in range(min(step, size)):
                    held.popleft()
                yield window
            if read % step == 0 and read - stood >= APART:
                here.stand(read)
                stood = read

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        size, step, fetch = self.size, self.step, inner.get

        def get(position: int) -> list[T]:
            return [fetch(p) for p in range(position * step, position * step + size)]

        return Indexed(self._count(inner.length), get)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return None if inputs[0] is None else self._count(inputs[0])

    @property
    def resume(self) -> str:
        return f"at most {APART} samples and a window"

    def _count(self, total: int) -> int:
        return 0 if total < self.size else (total - self.size) // self.step + 1
