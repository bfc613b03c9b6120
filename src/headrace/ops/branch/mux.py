"""Mux: one sample from one of several pipes at a time, in turn or drawn at random by weight."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Op, is_count
from headrace.ops.counts import from_all
from headrace.plan.seed import key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mux(Op[T, T]):
    """Rounds of one sample from each input; a round that one input cannot fill ends it and is left out."""

    length = from_all(lambda sizes: min(sizes) * len(sizes))

    def flow(self, *inputs: Any) -> Iterator[T]:
        *pipes, here = inputs
        here.rest()
        for held in zip(*pipes, strict=False):
            yield from held
            here.rest()

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        count = len(inputs)
        fetches = [i.get for i in inputs]
        return Indexed(
            min(i.length for i in inputs) * count, lambda position: fetches[position % count](position // count)
        )


@dataclass(frozen=True, slots=True)
class MuxLongest(Op[T, T]):
    """One sample from each input in turn; inputs that have ended are passed over."""

    quiet = True
    accepts = is_count
    length = from_all(sum)

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


BLOCK = 256


@dataclass(frozen=True, slots=True)
class SampleMux(Op[T, T]):
    """Each next sample comes from an input chosen by weight, until every input has ended.

    The draws depend on `seed` and the epoch, not on the loader's seed; None: on that too.
    """

    weights: tuple[float, ...]
    seed: int | None = None
    quiet = True
    verb = "sample_multiplexer"
    length = from_all(sum)

    def __post_init__(self) -> None:
        if not self.weights or any(w <= 0 for w in self.weights):
            raise BadOption(f"sample_multiplexer(weights=) needs one positive weight per pipe, not {self.weights!r}")

    def flow(self, *inputs: Any) -> Iterator[T]:
        from headrace.plan.order import uniform

        *pipes, here = inputs
        seed = here.seed if self.seed is None else key(self.seed, "multiplexer", here.epoch)
        live = set(range(len(pipes)))
        total = here.emitted
        while live:
            block, offset = divmod(total, BLOCK)
            # One uniform number per sample, by its position: the draw does not depend on which inputs have ended.
            for draw in uniform(seed, block * BLOCK, BLOCK)[offset:].tolist():
                while live:
                    chosen = self._choose(draw, live)
                    try:
                        sample = next(pipes[chosen])
                    except StopIteration:
                        live.discard(chosen)
                        continue
                    yield sample
                    total += 1
                    break
                else:
                    return

    def _choose(self, draw: float, live: set[int]) -> int:
        order = sorted(live)
        left = draw * sum(self.weights[i] for i in order)
        for i in order:
            left -= self.weights[i]
            if left < 0:
                return i
        return order[-1]
