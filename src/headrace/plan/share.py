"""Share: which positions of an epoch each rank receives, at which step.

Ranks take whole batches in turn: at `step` rank r receives global batch b = step x ranks + r, which is the positions
[b x batch, (b+1) x batch). Every rank makes the same number of steps, and no rank asks another: all of it is arithmetic
on (length, batch, ranks), exact for any size. What happens where the length does not fill whole steps is the policy:

    short    every sample once. The last step is dealt evenly (sizes differ by at most one, none is empty). When fewer
             samples than ranks are left over, the last full step is dealt again together with them: over two steps,
             or, for batches of one, over a single step of one or two samples each.
    pad      every batch is full; the last sample fills what is missing, with mask False.
    repeat   every batch is full; the samples from the epoch's start fill what is missing, with mask False.
    drop     the incomplete step is left out on every rank; `left_out` counts its samples.

An epoch that continues in the middle (a snapshot, perhaps of another world) is the same thing with `start`: the rules
apply to the positions [start, length), and steps count from there.

An order whose parts belong to ranks (`plan.parts`) is shared `by_remainder`. At every step all ranks together take the
same batch x ranks positions, but not whole batches in turn: rank r takes those positions p with p mod ranks = r. So a
rank meets only its own parts, and the samples of a step are the same for any number of ranks with the same global
batch:

    batch 2, ranks 3      step 0: positions 0..5      rank 0: 0 3    rank 1: 1 4    rank 2: 2 5
                          step 1: positions 6..11     rank 0: 6 9    rank 1: 7 10   rank 2: 8 11

It is the remainder of the position itself, wherever an epoch goes on from: ranks keep their parts.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from headrace.errors import BadOption

EndPolicy = Literal["short", "pad", "repeat", "drop"]


Payload = tuple[int, int, tuple[int, ...]]
"""Positions from the first number up to the second, then those of the tuple."""


class RankBatch(NamedTuple):
    """One batch of one rank: the positions from `start` up to `stop`, `stride` apart, then `filled` more to fill it up.

    These fillers are `fill_from`, `fill_from + 1`, ... modulo `cycle`, or all `fill_from` where `cycle` is 0.
    """

    start: int
    stop: int
    filled: int = 0
    fill_from: int = 0
    cycle: int = 0
    stride: int = 1

    @property
    def real(self) -> range:
        return range(self.start, self.stop, self.stride)

    def payload(self) -> "Payload":
        """The batch as a ticket carries it."""
        if self.stride > 1:
            return 0, 0, tuple(self.positions())
        return self.start, self.stop, self._fill() if self.filled else ()

    def _fill(self) -> tuple[int, ...]:
        if not self.cycle:
            return (self.fill_from,) * self.filled
        return tuple((self.fill_from + i) % self.cycle for i in range(self.filled))

    def positions(self) -> list[int]:
        return [*self.real, *self._fill()]

    def mask(self) -> list[bool]:
        """True where the sample is real, False where it only fills the batch."""
        return [True] * len(self.real) + [False] * self.filled


@dataclass(frozen=True, slots=True)
class Share:
    length: int
    batch: int
    ranks: int = 1
    rank: int = 0
    policy: str = "short"
    """One of EndPolicy."""
    start: int = 0
    by_remainder: bool = False
    steps: int = field(init=False, compare=False)
    left_out: int = field(init=False, compare=False)
    # Steps of exactly batch x ranks positions; then the sizes of the steps that are dealt evenly (short only).
    _full: int = field(init=False, compare=False, repr=False)
    _dealt: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        rest = self.length - self.start
        whole = self.batch * self.ranks
        full, over = divmod(rest, whole)
        dealt: tuple[int, ...] = ()
        if self.policy == "short" and over:
            if over >= self.ranks:
                dealt = (over,)
            elif not full:
                raise BadOption(
                    f"{rest} samples cannot be shared among {self.ranks} ranks so that each has at least one; "
                    "use fewer ranks, or the policy 'pad', 'repeat' or 'drop'"
                )
            else:
                full -= 1
                together = whole + over
                # Halves, not a full step and one of single samples: both lie between ranks and batch x ranks.
                dealt = (together - together // 2, together // 2) if self.batch > 1 else (together,)
        fills = self.policy in ("pad", "repeat") and over > 0
        put = object.__setattr__
        put(self, "steps", full + len(dealt) + fills)
        put(self, "left_out", over if self.policy == "drop" else 0)
        put(self, "_full", full)
        put(self, "_dealt", dealt)

    def _check(self) -> None:
        for name, least in (("length", 0), ("batch", 1), ("ranks", 1), ("rank", 0), ("start", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadOption(f"{name}={value!r}: give an int of at least {least}")
        if self.rank >= self.ranks:
            raise BadOption(f"rank={self.rank}, ranks={self.ranks}: rank must be one of 0..{self.ranks - 1}")
        if self.start > self.length:
            raise BadOption(f"start={self.start} lies beyond the length {self.length}; start at the length or below")
        if self.policy not in get_args(EndPolicy):
            raise BadOption(f"policy={self.policy!r}: choose one of {', '.join(map(repr, get_args(EndPolicy)))}")

    def block(self, step: int) -> RankBatch:
        """What this rank receives at this step."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} is outside an epoch of {self.steps} steps")
        if self.by_remainder:
            return self._by_remainder(self.delivered(step), self.delivered(step + 1))
        batch = self.batch
        if step < self._full:
            first = self.start + (step * self.ranks + self.rank) * batch
            return RankBatch(first, first + batch)
        if self._dealt:
            size, extra = divmod(self._dealt[step - self._full], self.ranks)
            first = self.delivered(step) + self.rank * size + min(self.rank, extra)
            return RankBatch(first, first + size + (self.rank < extra))
        wanted = self.start + (step * self.ranks + self.rank) * batch
        first, stop = min(wanted, self.length), min(wanted + batch, self.length)
        filled = batch - (stop - first)
        if self.policy == "pad":
            return RankBatch(first, stop, filled, self.length - 1)
        # Fillers are counted over all ranks: those that earlier ranks of this step use come first.
        return RankBatch(first, stop, filled, max(0, wanted - self.length) % self.length, self.length)

    def _by_remainder(self, first: int, stop: int) -> RankBatch:
        """What this rank receives of the positions [first, stop) of a step."""
        real = range(first + (self.rank - first) % self.ranks, stop, self.ranks)
        missing = self.batch - len(real) if self.policy in ("pad", "repeat") else 0
        if not missing or self.policy == "pad":
            return RankBatch(real.start, stop, missing, self.length - 1, 0, self.ranks)
        # Fillers that earlier ranks of this step use come first.
        real_before = sum(len(range(first + (r - first) % self.ranks, stop, self.ranks)) for r in range(self.rank))
        before = self.rank * self.batch - real_before
        return RankBatch(real.start, stop, missing, before % self.length, self.length, self.ranks)

    def delivered(self, steps: int) -> int:
        """The position after so many steps: all ranks together have delivered everything from `start` up to it."""
        if not 0 <= steps <= self.steps:
            raise IndexError(f"{steps} steps are outside an epoch of {self.steps} steps")
        if steps > self._full and not self._dealt:
            return self.length
        whole = self.batch * self.ranks
        return self.start + min(steps, self._full) * whole + sum(self._dealt[: max(0, steps - self._full)])

    def at(self, position: int) -> tuple[int, int]:
        """The first step with a sample at or above this position, and how many of its samples lie below it.

        Counted over all ranks. Past the last delivered sample this is (steps, 0).
        """
        if not self.start <= position <= self.length:
            raise BadOption(
                f"position={position}: this epoch runs from {self.start} to {self.length}; give one of these"
            )
        step = min((position - self.start) // (self.batch * self.ranks), self._full)
        while step < self.steps and self.delivered(step + 1) <= position:  # at most the two dealt steps
            step += 1
        return step, position - self.delivered(step) if step < self.steps else 0


def deal(length: int, ranks: int, rank: int, start: int = 0, by_remainder: bool = False, uneven: bool = False) -> range:
    """The positions of one rank, where samples are not batched: from `start` on ranks take them in turn, or by
    remainder. What is left over for only some of the ranks is dropped, unless parts may be `uneven`."""
    if length < start or not 0 <= rank < ranks:
        raise BadOption(
            f"deal({length}, ranks={ranks}, rank={rank}): rank must be one of 0..ranks-1, length at least 0"
        )
    turn = (rank - start) % ranks if by_remainder else rank
    return range(start + turn, length if uneven else start + (length - start) // ranks * ranks, ranks)
