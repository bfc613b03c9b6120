"""Token mixture: shares of tokens, kept to within a document, where the lengths of all documents are known.

The documents of each source lie end to end; source i is read at the speed w_i. A document comes when the middle of it
is reached, so at any moment each source is within half a document of its share:

    weights 1 : 1     source 0    |---- 6 ----|---- 6 ----|         comes at    6,      18
                      source 1    |-2-|-2-|-2-|-2-|-2-|-2-|                     2, 6, 10, 14, 18, 22

The order is cut into blocks of about 1024 documents, each where the source that is furthest from its share is nearest
to it; inside a block a keyed permutation mixes the sources, and each gives its documents in its own order. Weights
change where a block ends: what a source has too much or too little is carried over, so shares stay exact however often
that happens. A change asked for in the middle of a block holds from its end on.

Blocks are planned one after the other, from lengths only, as far as they are asked for: 0.2 us a document of two
sources, 0.5 us of ten.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from threading import Lock
from typing import NamedTuple

import numpy as np

from headrace.plan.mixture import BLOCK, NEVER, Blocks, Drawn, Ends, Floats, WeightStage, never_whole, running_counts
from headrace.plan.order import Ints, permutation
from headrace.plan.rounds import Rounds
from headrace.plan.seed import key as derive

LengthsOf = Callable[[int, int, Ints], Ints]
"""From (source, turn through it, rows) to the tokens of the documents in these rows."""


class TokenBlock(NamedTuple):
    """A block: some consecutive documents of the mixture."""

    start: int
    given: Ints
    """Documents of each source that come before."""
    counts: Ints
    """Documents of each source in it."""


class TokenMixture(Blocks):
    """A mixture by shares of tokens."""

    def __init__(
        self,
        lengths: tuple[int, ...],
        stages: tuple[WeightStage, ...],
        key: int,
        ends: Ends,
        tokens_of: LengthsOf,
        rounds: Sequence[Rounds] | None = None,
    ) -> None:
        """`lengths` are those of the first turn through each source; `rounds` has those of all turns, if they
        differ."""
        self.lengths, self.stages, self.ends = lengths, stages, ends
        self._rounds = [Rounds(length) for length in lengths] if rounds is None else rounds
        self._key, self._tokens_of = key, tokens_of
        self._lock = Lock()
        self._blocks: list[TokenBlock] = []
        self._position = 0
        self._given = np.zeros(len(lengths), np.int64)
        self._over: Floats = np.zeros(len(lengths))
        """How many tokens each source has given beyond its share."""
        self._ahead = [np.zeros(0, np.int64) for _ in lengths]
        """The lengths of the next documents of each source, as far as they were asked for."""
        self._horizon = 1.0
        self._ended = False

    @property
    def length(self) -> int:
        if self.ends == "forever":
            return NEVER
        self._plan(NEVER)
        return self._position

    def block_at(self, position: int) -> int:
        self._plan(position + 1)
        if not 0 <= position < self._position:
            raise IndexError(f"a position is outside a mixture of {self._position} samples")
        return self._blocks[self._number(position)].start

    def drawn(self, start: int) -> Drawn:
        number = self._number(start)
        _, given, counts = self._blocks[number]
        in_turn = np.repeat(np.arange(len(counts)), counts)
        source: Ints = in_turn[permutation(len(in_turn), derive(self._key, "token mixture", number))]
        return Drawn(source, given[source] + running_counts(source))

    def _number(self, position: int) -> int:
        """Which block a position that is planned lies in."""
        return bisect_right(self._blocks, position, key=attrgetter("start")) - 1

    def before(self, position: int) -> list[tuple[object, ...]]:
        """All that determines the samples before a position, which must be the end of a block."""
        self._plan(position)
        return [(block.start, block.counts.tolist()) for block in self._blocks if block.start < position]

    # --- planning ---------------------------------------------------------------------------------------------------

    def _plan(self, position: int) -> None:
        """Plan blocks up to a position, or to the end."""
        if self._position < position and not self._ended:
            with self._lock:
                while self._position < position and not self._ended:
                    self._next_block()

    def _next_block(self) -> None:
        weights = np.array(
            self.stages[bisect_right(self.stages, self._position, key=attrgetter("start")) - 1].weights, np.float64
        )
        if self.ends == "first" and weights[self._given >= self.lengths].any():
            self._ended = True
            return
        if self.ends == "drop":
            weights = weights * (self._given < self.lengths)
        if not weights.any():
            self._go_on_with_next_stage()
            return
        share: Floats = weights / weights.sum()
        source, tokens = self._in_turn(share)
        size, last = self._cut(share, source, tokens)
        counts = np.bincount(source[:size], minlength=len(share))
        taken = np.array([int(self._ahead[i][: counts[i]].sum()) for i in range(len(share))], np.int64)
        self._blocks.append(TokenBlock(self._position, self._given.copy(), counts))
        self._over = self._over + taken - share * int(taken.sum())
        self._ahead = [ahead[count:] for ahead, count in zip(self._ahead, counts.tolist(), strict=True)]
        self._given = self._given + counts
        self._position += size
        self._ended = last

    def _go_on_with_next_stage(self) -> None:
        """Nothing is left to draw with the weights of now: let the next stage begin here, if there is one."""
        later = [stage for stage in self.stages if stage.start > self._position]
        if not later:
            self._ended = True
            return
        self.stages = (
            *(stage for stage in self.stages if stage.start <= self._position),
            WeightStage(self._position, later[0].weights),
            *later[1:],
        )

    def _in_turn(self, share: Floats) -> tuple[Ints, Ints]:
        """Sources and lengths of the documents that come next, in order: a block and a half of them, if there are as
        many."""
        while True:
            times: list[Floats] = []
            for i in np.flatnonzero(share).tolist():
                middles = self._middles(i, share)
                while (not len(middles) or middles[-1] < self._horizon) and self._look_ahead(i):
                    middles = self._middles(i, share)
                times.append(middles[: np.searchsorted(middles, self._horizon, side="right")])
            found = sum(map(len, times))
            if found >= 3 * BLOCK // 2 or found == sum(len(self._ahead[i]) for i in np.flatnonzero(share)):
                break
            self._horizon *= 2 if found < BLOCK // 2 else 1.5 * BLOCK / found + 0.1
        active = np.flatnonzero(share).tolist()
        order = np.argsort(np.concatenate(times), kind="stable")[: 3 * BLOCK // 2]
        source = np.repeat(active, [len(some) for some in times])[order]
        tokens = np.concatenate([self._ahead[i][: len(some)] for i, some in zip(active, times, strict=True)])[order]
        return source, tokens

    def _middles(self, i: int, share: Floats) -> Floats:
        """When the middle of each of the next documents is reached, in tokens of the whole mixture from here."""
        ahead = self._ahead[i]
        found: Floats = (self._over[i] + np.cumsum(ahead) - ahead / 2) / share[i]
        return found

    def _look_ahead(self, i: int) -> bool:
        """Ask for more lengths of a source; False if it has no more."""
        first = int(self._given[i]) + len(self._ahead[i])
        if first >= self.lengths[i] and self.ends in ("drop", "first"):
            return False
        turn, row = self._rounds[i].find(first)
        found = self._tokens_of(i, turn, np.arange(row, min(self._rounds[i].length(turn), row + BLOCK)))
        self._ahead[i] = np.concatenate([self._ahead[i], found])
        return True

    def _cut(self, share: Floats, source: Ints, tokens: Ints) -> tuple[int, bool]:
        """How many of these documents make up the next block, and whether it is the last."""
        done = [
            int(at[left - 1]) + 1
            for i, left in enumerate((np.array(self.lengths) - self._given).tolist())
            if left > 0 and len(at := np.flatnonzero(source == i)) >= left
        ]
        if done and self.ends in ("drop", "first"):  # a source ends
            return min(done), self.ends == "first"
        missing = int((self._given < self.lengths).sum())
        if self.ends == "all" and len(done) == missing:
            return max(done, default=0), True
        if (
            self.ends == "all"
            and not any((self._given < self.lengths) & (share > 0))
            and self.stages[-1].start <= self._position
        ):
            raise never_whole(self._given, self.lengths, share)
        total = np.cumsum(tokens)
        furthest = np.zeros(len(tokens))
        for i in range(len(share)):
            beyond = self._over[i] + np.cumsum(np.where(source == i, tokens, 0)) - share[i] * total
            furthest = np.maximum(furthest, np.abs(beyond))
        least = min(BLOCK // 2, len(tokens) - 1)
        return least + int(np.argmin(furthest[least:])) + 1, False
