"""Mux: one sample from each pipe in turn, in whole rounds or until all have ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.op import Here, Indexed, Op, is_count

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mux(Op[T, T]):
    """Rounds of one sample from each input; a round that one input cannot fill ends it and is left out."""

    def flow(self, *inputs: Any) -> Iterator[T]:
        *pipes, here = inputs
        while True:
            here.rest()
            held = []
            for samples in pipes:
                try:
                    held.append(next(samples))
                except StopIteration:
                    return
            yield from held

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        count = len(inputs)
        fetches = [i.get for i in inputs]
        return Indexed(
            min(i.length for i in inputs) * count, lambda position: fetches[position % count](position // count)
        )

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        known = [n for n in inputs if n is not None]
        return min(known) * len(inputs) if len(known) == len(inputs) else None


@dataclass(frozen=True, slots=True)
class MuxLongest(Op[T, T]):
    """One sample from each input in turn; inputs that have ended are passed over."""

    quiet = True
    accepts = is_count

    def flow(self, *inputs: Any) -> Iterator[T]:
        *pipes, here = inputs
        turn = here.note or 0
        live = [True] * len(pipes)
        while any(live):
            at = turn % len(pipes)
            turn += 1
            if live[at]:
                try:
                    sample = next(pipes[at])
                except StopIteration:
                    live[at] = False
                else:
                    here.rest(turn % len(pipes))
                    yield sample

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        known = [n for n in inputs if n is not None]
        return sum(known) if len(known) == len(inputs) else None
