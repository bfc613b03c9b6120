"""Counted: which outputs each rank delivers at each step, where ops decide how many outputs a position has.

Position p of the epoch is evaluated by rank p mod ranks. Ranks tell each other how many outputs their positions have;
everything else follows from these counts, in the same way on every rank:

    position      0  1  2  3  4  5  6  7  8         4 ranks would evaluate 0 4 8 | 1 5 | 2 6 | 3 7
    outputs       1  0  1  1  1  0  1  1  1
    number        0     1  2  3     4  5  6

By position, for ops that choose (no output, or one): global step s has the outputs s x size x ranks and following. So
its samples do not depend on the number of ranks. Each rank keeps the first `size` of its own outputs; what it has
beyond these goes, in order, to the ranks that lack some, and they make it themselves, from its position.

Own outputs, for everything else (another rank's window of documents, or row group, would be made again for a few rows):
every rank delivers its own outputs, in order. From the step on that some rank cannot fill from its own, what is left is
dealt by position.

The last steps are those of `plan.share`. A step is granted only when as many outputs as there are ranks follow it, or
none at all, so that no rank gets an empty batch.
"""

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.errors import BadPipe
from headrace.plan.reach import FAILED, SKIPS, Reach, Standing
from headrace.plan.share import Share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.plan.order import Ints

MANY = 512
"""The most counts of one rank in one round."""
STEPS = 4
"""Ranks look about so many steps ahead."""
LEAST = 64
"""Where batches are small, ranks look at least so many outputs ahead."""
_ALL = 1 << 62


class Step(NamedTuple):
    """What this rank delivers at one step: outputs in the order of positions."""

    positions: list[int]
    outputs: list[int]
    """Which output of its position each is."""
    numbers: list[int]
    """The number of each among all outputs of the epoch."""
    number: int
    """That of the batch, over all ranks."""
    before: Standing
    after: Standing
    filled: int = 0
    """How many samples more fill the batch."""
    fill_from: tuple[int, int] | None = None
    """The position and output that they repeat; None: the epoch's outputs in turn, from number `fill_start` on."""
    fill_start: int = 0
    failed: tuple[int, int] | None = None
    """In place of a step: the rank and the position that have failed."""


class Lane:
    """The positions that one rank evaluates, in order."""

    def __init__(self, number: int, lanes: int, reached: tuple[Reach, ...], length: int) -> None:
        self._lanes, self._reached, self._length = lanes, reached, length
        lowest = _all_delivered_below(reached)
        self._ahead: Ints = np.zeros(0, np.int64)
        """Positions that were looked up and not taken."""
        self._next = lowest + (number - lowest) % lanes
        """The next position to look up."""
        self._look(1)

    @property
    def frontier(self) -> int:
        """The first position that was not taken; the length of the epoch at its end."""
        return int(self._ahead[0]) if len(self._ahead) else self._length

    @property
    def ended(self) -> bool:
        return not len(self._ahead)

    def ahead(self, many: int, below: int) -> "Ints":
        """The next positions, as many as that, below this one."""
        self._look(many)
        return self._ahead[: min(many, int(np.searchsorted(self._ahead, below)))]

    def take(self, many: int) -> None:
        self._look(many + 1)
        self._ahead = self._ahead[many:]

    def _look(self, many: int) -> None:
        while len(self._ahead) < many and self._next < self._length:
            stop = min(self._length, self._next + max(many, MANY) * self._lanes)
            positions = np.arange(self._next, stop, self._lanes, dtype=np.int64)
            self._next = int(positions[-1]) + self._lanes
            if self._reached:
                positions = positions[delivered(self._reached, positions) < _ALL]
            self._ahead = np.concatenate([self._ahead, positions])


def _all_delivered_below(reached: tuple[Reach, ...]) -> int:
    """A position below which everything is delivered: what some world has divided among all its ranks says so."""
    lowest = 0
    for ranks in {reach.ranks for reach in reached}:
        world = [reach.position for reach in reached if reach.ranks == ranks]
        if len(world) == ranks:
            lowest = max(lowest, min(world))
    return lowest


def delivered(reached: tuple[Reach, ...], positions: "Ints") -> "Ints":
    """How many outputs of each of these positions are delivered; a number above any count: all."""
    found = np.zeros(len(positions), np.int64)
    for residue, ranks, position, outputs in reached:
        its = positions % ranks == residue
        found[its & (positions < position)] = _ALL
        found[its & (positions == position) & (found < outputs)] = outputs
    return found


def deal(owners: "Ints", sizes: "Ints") -> "Ints":
    """For each output of these steps, in order, the seat that delivers it: step x ranks + rank.

    `sizes` (steps, ranks): how many outputs each rank delivers at each step.
    """
    steps, ranks = sizes.shape
    seat: Ints = np.repeat(np.arange(steps), sizes.sum(axis=1)) * ranks + owners
    own = np.bincount(seat, minlength=steps * ranks)
    nth = np.empty_like(seat)  # which one of its owner's outputs of that step it is
    nth[np.argsort(seat, kind="stable")] = np.arange(len(seat)) - np.repeat(np.cumsum(own) - own, own)
    room = sizes.reshape(-1)
    seat[nth >= room[seat]] = np.repeat(np.arange(steps * ranks), np.maximum(room - own, 0))
    return seat


class CountedSteps:
    """The steps of one rank, from the counts of all.

    `wanted()` says of which positions every rank tells the counts in the next round, `absorb()` takes what they told;
    `steps` are those granted meanwhile. `lanes`: how many evaluate positions; 1: this process alone, for all ranks.
    """

    def __init__(
        self,
        length: int,
        size: int,
        ranks: int,
        rank: int,
        ends: str,
        at: Standing,
        *,
        gone: int = 0,
        own: bool = False,
        whole: int = 1,
        drops: bool = False,
        single: bool = False,
        first: int = MANY,
        lanes: int | None = None,
    ) -> None:
        """`gone`: so many outputs more, in the order of positions, are delivered. `whole`: batches are made of groups
        of so many outputs, which are not cut; where it `drops`, the last one is left out if it is not full. `single`:
        outputs are delivered one by one, so those that not every rank can have are left out. `first`: at most so many
        positions of a rank are asked for in the first round."""
        self.length, self._size, self._ranks, self._rank = length, size, ranks, rank
        self.single, self._whole, self._drops = single, whole, drops
        self._ends = "drop" if single else ends
        self._all_wanted = ends == "short"
        self.own = own
        """The deal of own outputs holds."""
        self.steps: deque[Step] = deque()
        self.over = False
        """No further step will be granted."""
        self.left_out = 0
        """Outputs that no step has room for."""
        self._reached, self._base = at.reached, at.base
        self._gone = gone
        self.lanes = [Lane(n, lanes or ranks, at.reached, length) for n in range(lanes or ranks)]
        self._positions: Ints = np.zeros(0, np.int64)
        """Of the outputs that are known and not dealt, in order; beside them, which output of it each is."""
        self._outputs: Ints = np.zeros(0, np.int64)
        self._failures: list[tuple[int, int]] = []
        """Position and rank."""
        self._stop = length
        """No place is beyond this position: it has failed, or the epoch ends there."""
        self._skips: list[tuple[int, int]] = []
        """Positions at which samples were left out, and how many."""
        self._skipped = at.skipped * ranks
        self._number = at.base // size
        """The number of rank 0's next batch."""
        self._target = size + 1
        self._first = first
        self._seen = np.zeros((2, ranks), np.int64)
        """By owner: positions counted, and outputs of them."""
        self._at = at
        self._wanted: list[Ints] | None = None
        if all(lane.ended for lane in self.lanes):
            self._grant()

    # --- counts -------------------------------------------------------------------------------------------------------

    def wanted(self) -> "list[Ints]":
        """By lane, the positions whose counts are told in the next round."""
        if self._wanted is None:
            self._wanted = self._next_for_own() if self.own and not self._gone else self._next_by_position()
        return self._wanted

    def _next_for_own(self) -> "list[Ints]":
        have = np.bincount(self._positions % self._ranks, minlength=self._ranks)
        missing = np.maximum(self._target - have, 0)
        if not missing.any():
            missing[:] = 1
        lanes = len(self.lanes)
        rate = (self._seen[1] + 1) / (self._seen[0] + 1)
        wanted = np.ceil(missing / rate).astype(np.int64)
        if lanes == 1:
            wanted = np.array([int(wanted.max()) * self._ranks])
        most = min(MANY, self._first)
        asked = [lane.ahead(min(int(n), most), self.length) for lane, n in zip(self.lanes, wanted, strict=True)]
        return asked if any(map(len, asked)) else [lane.ahead(1, self.length) for lane in self.lanes]

    def _next_by_position(self) -> "list[Ints]":
        missing = max(1, self._target * self._ranks - len(self._positions) + self._gone)
        seen, outputs = int(self._seen[0].sum()), int(self._seen[1].sum())
        span = -(-missing * (seen + 1) // (outputs + 1))
        frontier = min(lane.frontier for lane in self.lanes)
        most = min(MANY, self._first)
        return [lane.ahead(most, frontier + span) for lane in self.lanes]

    def absorb(self, told: list[list[int]]) -> None:
        """Take the counts of the positions that were wanted."""
        positions: list[Ints] = []
        outputs: list[Ints] = []
        for lane, asked, row in zip(self.lanes, self.wanted(), told, strict=True):
            counts = np.array(row, np.int64)
            lane.take(len(asked))
            for failed in asked[counts == FAILED].tolist():
                insort(self._failures, (failed, failed % self._ranks))
            counts[counts < 0] = 0
            for skipped in np.flatnonzero(counts >> SKIPS).tolist():
                insort(self._skips, (int(asked[skipped]), int(counts[skipped] >> SKIPS)))
            counts &= (1 << SKIPS) - 1
            owners = asked % self._ranks
            self._seen[0] += np.bincount(owners, minlength=self._ranks)
            self._seen[1] += np.bincount(owners, weights=counts, minlength=self._ranks).astype(np.int64)
            which = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            where = np.repeat(asked, counts)
            if self._reached:
                left = which >= delivered(self._reached, where)
                where, which = where[left], which[left]
            positions.append(where)
            outputs.append(which)
        self._wanted = None
        self._first = MANY
        self._target = min(2 * self._target, max(STEPS * self._size, LEAST) + 1)
        found = np.concatenate([self._positions, *positions])
        order = np.argsort(found, kind="stable")
        self._positions, self._outputs = found[order], np.concatenate([self._outputs, *outputs])[order]
        self._grant()

    # --- steps --------------------------------------------------------------------------------------------------------

    def _grant(self) -> None:
        """Grant all steps that the known counts allow."""
        frontier = min(lane.frontier for lane in self.lanes)
        if self._gone:
            passed = min(self._gone, int(np.searchsorted(self._positions, frontier)))
            self._positions, self._outputs = self._positions[passed:], self._outputs[passed:]
            self._gone -= passed
            if self._gone and frontier < self.length:
                return
        if self.own:
            self._grant_own()
        if not self.own:
            self._grant_by_position(frontier)

    def _grant_own(self) -> None:
        """Every rank delivers its own outputs, until one cannot fill a batch from them."""
        size, ranks = self._size, self._ranks
        owners = self._positions % ranks
        mine = [np.flatnonzero(owners == rank) for rank in range(ranks)]
        broken = {rank: position for position, rank in reversed(self._failures)}
        for rank, position in broken.items():
            mine[rank] = mine[rank][self._positions[mine[rank]] < position]
        ended = [self.lanes[rank % len(self.lanes)].ended or rank in broken for rank in range(ranks)]
        # (One more than a batch, so that where a rank stands after it is known too.)
        steps = min((len(its) - (not end)) // size for its, end in zip(mine, ended, strict=True))
        follow = ranks * self._whole
        steps = max(0, min(steps, (len(owners) - follow) // (size * ranks)) if not all(ended) else steps)
        if steps and all(ended) and not broken and 0 < len(owners) - steps * size * ranks < follow:
            steps -= 1
        for step in range(steps):
            stop = (step + 1) * size
            reached = tuple(
                Reach(rank, ranks, *self._at_output(its[stop]))
                if stop < len(its)
                else Reach(rank, ranks, broken.get(rank, self.length), 0)
                for rank, its in enumerate(mine)
            )
            chosen = mine[self._rank][stop - size : stop]
            first = self._base + self._rank * size
            self._base += size * ranks
            self._add(chosen, range(first, first + size), self._standing(reached))
        taken = np.zeros(len(owners), bool)
        for its in mine:
            taken[its[: steps * size]] = True
        self._drop(taken)
        short = [rank for rank, its in enumerate(mine) if ended[rank] and len(its) - steps * size < size]
        if not short and not all(ended):
            return
        if failing := [rank for rank in short if rank in broken]:
            rank = failing[0]
            self._fail(rank, broken[rank], (self._positions % ranks == rank) & (self._positions < broken[rank]))
            self._grant_own()
            return
        self.own = False
        self._reached = self._at.reached

    def _grant_by_position(self, frontier: int) -> None:
        size, ranks = self._size, self._ranks
        whole = size * ranks
        if self._failures and (barrier := self._failures[0])[0] < frontier:
            known = int(np.searchsorted(self._positions, barrier[0]))
            self._stop = barrier[0]
            self._deal(np.full((known // whole, ranks), size))
            self._stop = self.length
            self._fail(barrier[1], barrier[0], self._positions < barrier[0])
            self._grant_by_position(frontier)
            return
        known = int(np.searchsorted(self._positions, frontier))
        if frontier < self.length:
            self._deal(np.full((max(0, (known - ranks * self._whole) // whole), ranks), size))
            return
        self._deal(np.full((max(0, known // whole - 1), ranks), size))
        self._deal_end()

    def _deal_end(self) -> None:
        """The last steps: all counts are known."""
        left, group = len(self._positions), self._whole
        if self._drops:
            left -= left % group
        groups = -(-left // group)
        if 0 < groups < self._ranks and (self._ends == "short" or (self._all_wanted and not self._base)):
            raise BadPipe(
                f"{left} samples are left after the ops that decide how many there are, for {self._ranks} ranks, so "
                "that not every rank can have one; use fewer ranks, or ends='pad', 'repeat' or 'drop'"
            )
        size, ends = self._size // group, self._ends if group == 1 or self._ends == "drop" else "short"
        shares = [Share(groups, size, self._ranks, rank, ends) for rank in range(self._ranks)]
        mine = shares[self._rank]
        self.left_out = mine.left_out * group
        last = self._at_output(left - 1) if self._ends == "pad" and left else None
        for step in range(mine.steps):
            blocks = [share.block(step) for share in shares]
            # (Ranks before this one have filled their batches with the first of what fills.)
            before = sum(block.filled for block in blocks[: self._rank])
            sizes = [len(block.real) * group for block in blocks]
            cut = next((rank for rank, block in enumerate(blocks) if block.real and block.stop == groups), None)
            if cut is not None:
                sizes[cut] -= groups * group - left  # (the last group)
            self._deal(np.array([sizes]), blocks[self._rank].filled, last, before)
        self.over = True

    def _deal(
        self, sizes: "Ints", filled: int = 0, fill_from: tuple[int, int] | None = None, fill_start: int = 0
    ) -> None:
        """Grant steps of these sizes (steps, ranks), of the first outputs."""
        steps, ranks = sizes.shape
        if not steps:
            return
        ends = np.cumsum(sizes.sum(axis=1))
        seats = deal(self._positions[: ends[-1]] % ranks, sizes)
        mine = np.flatnonzero(seats % ranks == self._rank)
        cuts = np.searchsorted(seats[mine] // ranks, np.arange(steps + 1))
        first = self._base
        for step, end in enumerate(ends.tolist()):
            chosen = mine[cuts[step] : cuts[step + 1]]
            self._base = first + end
            after = self._standing((Reach(0, 1, *self._at_output(end)),))
            self._add(chosen, (first + chosen).tolist(), after, filled, fill_from, fill_start)
        taken = np.zeros(len(self._positions), bool)
        taken[: ends[-1]] = True
        self._drop(taken)

    def _at_output(self, index: int) -> tuple[int, int]:
        """The position of an output that is known and not dealt, and which one of it that is; where all stops after
        the last."""
        if index >= len(self._positions) or self._positions[index] > self._stop:
            return self._stop, 0
        return int(self._positions[index]), int(self._outputs[index])

    def _standing(self, reached: tuple[Reach, ...]) -> Standing:
        lowest = min(reach.position for reach in reached)
        known = {(reach.residue, reach.ranks) for reach in reached}
        older = (r for r in self._reached if r.position > lowest and (r.residue, r.ranks) not in known)
        reached = tuple(dict.fromkeys((*reached, *older)))
        skipped = self._skipped
        if self._skips:
            positions = np.array([position for position, _ in self._skips], np.int64)
            gone = delivered(reached, positions) == _ALL
            skipped += sum(many for (_, many), its in zip(self._skips, gone.tolist(), strict=True) if its)
        return Standing(reached, self._base, skipped // self._ranks)

    def _add(
        self, chosen: "Ints", numbers: "range | list[int]", after: Standing, filled: int = 0,
        fill_from: tuple[int, int] | None = None, fill_start: int = 0,
    ) -> None:  # fmt: skip
        number, before = self._number + self._rank, self._at
        self._number += self._ranks
        self._at = after
        its = self._positions[chosen].tolist(), self._outputs[chosen].tolist()
        self.steps.append(Step(*its, list(numbers), number, before, after, filled, fill_from, fill_start))

    def _fail(self, rank: int, position: int, passed: "NDArray[np.bool_]") -> None:
        """All ranks raise here. Outputs before the position that fill no step are passed over, as on one rank."""
        self._failures.remove((position, rank))
        self._base += int(passed.sum())
        self._drop(passed)
        behind = Reach(position % self._ranks, self._ranks, position + self._ranks, 0)
        if self.own:
            now = [r for r in self._at.reached if (r.residue, r.ranks) != (behind.residue, behind.ranks)]
            reached = (behind, *now)
        else:
            reached = (Reach(0, 1, position + 1, 0),)
        before, self._at = self._at, self._standing(reached)
        self.steps.append(Step([], [], [], self._number + self._rank, before, self._at, failed=(rank, position)))

    def _drop(self, taken: "NDArray[np.bool_]") -> None:
        """These outputs are dealt, or passed over."""
        self._positions, self._outputs = self._positions[~taken], self._outputs[~taken]
