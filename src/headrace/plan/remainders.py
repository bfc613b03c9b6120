"""Remainders: how ranks share an order whose parts belong to ranks (`plan.parts`).

At every step all ranks together take the next batch x ranks positions, as in `share`, but not whole batches in turn:
rank r takes those positions p with p mod ranks = r. So a rank meets only its own parts, and the samples of a step are
the same for any number of ranks with the same global batch:

    batch 2, ranks 3      step 0: positions 0..5      rank 0: 0 3    rank 1: 1 4    rank 2: 2 5
                          step 1: positions 6..11     rank 0: 6 9    rank 1: 7 10   rank 2: 8 11

It is the remainder of the position itself, wherever an epoch goes on from: ranks keep their parts. Ends are dealt as in
`share`: `short` deals the last step evenly, and the last two together where one would leave a rank without a sample;
`pad` and `repeat` fill up with mask False; `drop` leaves the incomplete step out.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.plan.share import EndPolicy, Payload, Share, deal


class DealtBatch(NamedTuple):
    """One batch of one rank: positions that lie `ranks` apart, then those that only fill it."""

    real: range
    fill: tuple[int, ...] = ()

    @property
    def filled(self) -> int:
        return len(self.fill)

    def payload(self) -> Payload:
        """What a ticket says of it."""
        if self.real.step == 1:
            return self.real.start, max(self.real.start, self.real.stop), self.fill
        return 0, 0, (*self.real, *self.fill)

    def positions(self) -> list[int]:
        return [*self.real, *self.fill]

    def mask(self) -> list[bool]:
        """True where the sample is real, False where it only fills the batch."""
        return [True] * len(self.real) + [False] * len(self.fill)


@dataclass(frozen=True, slots=True)
class Remainders:
    length: int
    batch: int
    ranks: int = 1
    rank: int = 0
    policy: EndPolicy = "short"
    start: int = 0
    _share: Share = field(init=False, compare=False, repr=False)
    """Of all ranks together: how many steps there are, and which positions each of them holds."""

    def __post_init__(self) -> None:
        share = Share(self.length, self.batch, self.ranks, self.rank, self.policy, self.start)
        object.__setattr__(self, "_share", share)

    @property
    def steps(self) -> int:
        return self._share.steps

    @property
    def left_out(self) -> int:
        return self._share.left_out

    def delivered(self, steps: int) -> int:
        """The position reached after so many steps: all ranks together have delivered everything from start to it."""
        return self._share.delivered(steps)

    def at(self, position: int) -> tuple[int, int]:
        """The first step with a sample at or above this position, and how many of its samples lie below it."""
        return self._share.at(position)

    def block(self, step: int) -> DealtBatch:
        """What this rank receives at this step."""
        first, stop = self._share.delivered(step), self._share.delivered(step + 1)
        real = range(first + (self.rank - first) % self.ranks, stop, self.ranks)
        if self.policy not in ("pad", "repeat") or len(real) == self.batch:
            return DealtBatch(real)
        missing = self.batch - len(real)
        if self.policy == "pad":
            return DealtBatch(real, (self.length - 1,) * missing)
        # Fillers are counted over all ranks: those that earlier ranks of this step use come first.
        before = sum(
            self.batch - len(range(first + (r - first) % self.ranks, stop, self.ranks)) for r in range(self.rank)
        )
        return DealtBatch(real, tuple((before + i) % self.length for i in range(missing)))


def shared(
    length: int, batch: int, ranks: int, rank: int, policy: str, start: int = 0, *, by_remainder: bool
) -> Share | Remainders:
    """How ranks share an order: by remainder where it has parts, else in whole batches."""
    kind = Remainders if by_remainder else Share
    return kind(length, batch, ranks, rank, policy, start)  # type: ignore[arg-type]


def shared_singly(length: int, ranks: int, rank: int, start: int = 0, *, by_remainder: bool) -> range:
    """The same of single samples, which ranks take in turn: the positions of one rank."""
    mine = deal(length - start, ranks, (rank - start) % ranks if by_remainder else rank)
    return range(start + mine.start, start + mine.stop, ranks)
