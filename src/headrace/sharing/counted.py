"""Counted: ranks tell each other how many outputs their positions have; everything else is arithmetic.

Which samples a global step has does not depend on the number of ranks, where ops choose (`plan.counted` has both
deals). The place is one for the whole job, and loads in any world; where one process resumes from a place that several
ranks have left in pieces, it evaluates all positions itself.
"""

from typing import NamedTuple

from headrace.engine.epoch import Start
from headrace.engine.feeds.counted import Evaluated
from headrace.engine.places import EpochPlace, RunPlace
from headrace.ranks.exchange import Round
from headrace.sharing.counting import alone, counted_place, evaluated
from headrace.sharing.exchanging import ExchangingSharing


class OfShares(NamedTuple):
    """What the shares of an epoch give to one round. (Ranks of one copy of the model have the same share.)"""

    round: Round

    @property
    def answered(self) -> bool:
        return self.round.answered

    def wait(self) -> list[tuple[list[int], bytes]]:
        shares = {numbers[0]: (numbers[1:], text) for numbers, text in reversed(self.round.wait())}
        return [shares[share] for share in sorted(shares)]


class CountedSharing(ExchangingSharing):
    """Ranks exchange the counts of their positions."""

    _feed: Evaluated | None = None
    _twice = 0

    def check(self, at: EpochPlace | None) -> EpochPlace | None:
        if at is None:
            return None
        if not isinstance(at, RunPlace) or at.ahead is not None:
            return super().check(at)
        return counted_place(at, self.program).fit(self.program)

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        self._verify(epoch, at)
        assert at is None or isinstance(at, RunPlace)
        if at is None and self._must_guess:
            return Start()
        rounds = self._rounds(epoch)
        share = self._world.share_rank

        def tell(numbers: list[int], text: bytes) -> OfShares:
            return OfShares(rounds.begin([share, *numbers], text))

        def feed(at: RunPlace | None) -> Evaluated:
            self._twice = self.made_twice()
            first = self._feed is None
            self._feed = evaluated(self.program, self._world, self._ends, epoch, at, tell, checks=first)
            return self._feed

        return Start(at, feed)

    def alone(self, epoch: int, at: EpochPlace | None) -> Start:
        return alone(self.program, self._world, self._ends, epoch, at)

    def made_twice(self) -> int:
        return self._twice + (0 if self._feed is None else self._feed.made_twice)
