"""Equal steps: the samples of one rank, delivered as far as all ranks can follow.

A rank does not wait for a vote while it has something to deliver. With handfuls of 4:

    pulled     0 1 2 3 | 4 5   6 7   8 9   10 | 11   12   13   14 | 15   16 ...   in the consumer, one or two at a step
    cast            v0         v1               v2                  v3             with the last batch of a handful
    delivered          | 0     1     2     3  | 4    5    6    7  | 8    9 ...
    needed             v0                     v1                  v2               and usually there

How many votes a rank has cast depends only on the steps that it has made. So ranks that leave an epoch after the same
step have cast the same votes. At most two handfuls are held. Votes are exchanged by a thread (see
`headrace.ranks.vote`); samples and their places are touched by the consumer only.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.engine.places import RunningEpoch, RunPlace
from headrace.errors import BadPipe, HeadraceError
from headrace.ranks.vote import PendingVote
from headrace.sharing.voting import Mask, StepVotes, VoteOutcome

log = logging.getLogger("headrace")
PULLS = 2
"""Batches that are pulled at one step, until enough are held."""


@dataclass(eq=False)
class _Handful:
    """Batches that are voted on together."""

    before: RunPlace | None
    """Where the run stands before them."""
    after: list[RunPlace] = field(default_factory=list)
    """Where it stands after each of them."""
    ready: int = 0
    """Batches that the run has given."""
    asked: int = 0
    """Batches that the run was asked for."""
    vote: PendingVote | None = None


class EqualSteps(Iterator[Any]):
    """The samples of a run, as far as every rank can follow; `again` is another run, from a place on."""

    def __init__(self, votes: StepVotes, run: RunningEpoch, again: Callable[[RunPlace], RunningEpoch]) -> None:
        self._again = again
        self._votes = votes
        self._error: Exception | None = None
        self._over = False
        self.surplus = 0
        """How many samples this rank could not deliver."""
        self._begin_deal(run)

    def _begin_deal(self, run: RunningEpoch) -> None:
        self._run = run
        self._held: deque[tuple[Any, Mask]] = deque()
        self._handfuls: deque[_Handful] = deque()
        """Handfuls that are voted on or being pulled, oldest first."""
        self._ahead = 0
        """Batches that the run was asked for and that were not delivered, whether it gave as many or not."""
        self._outcome = VoteOutcome(0, False)
        """The outcome of the last vote that was waited for."""
        self._left = 0
        """Steps of that outcome that are not made yet."""
        self._dry = False
        """The run has ended, or failed."""
        self._final = False
        """The vote cast last will end the deal."""

    def __next__(self) -> Any:
        votes = self._votes
        while True:
            while not self._left:
                self._begin_handful()
            for _ in range(PULLS):
                if self._ahead < 2 * votes.handful and not self._final and not self._outcome.last:
                    self._pull()
            self._left -= 1
            self._ahead -= 1
            sample, mask = self._held.popleft()
            if votes.delivered(mask):
                return sample

    def leave(self) -> None:
        """The epoch was left. Votes that are under way come to their end by themselves."""
        self._over = True
        self._error = None  # its traceback knows this object

    def _begin_handful(self) -> None:
        """Go on to the next handful, or raise the exception that ends the epoch."""
        if self._outcome.last and not self._over:
            if (at := self._votes.deal_again()) is None:
                self._end()
            else:
                self._begin_deal(self._again(at))
        if self._over:
            raise StopIteration
        while not self._handfuls or (vote := self._handfuls[0].vote) is None:
            self._pull()
        try:
            self._outcome = self._votes.count(vote)
        except Exception as lost:
            self._over = True
            error, self._error = self._error, None
            if error is None:
                raise
            error.add_note(f"(the other ranks could not be told: {lost})")
            try:
                raise error from error.__cause__
            finally:
                del error
        self._handfuls.popleft()
        self._left = self._outcome.steps

    def _pull(self) -> None:
        """Get the next batch of the run, if there is one; with the last one of a handful, vote."""
        votes = self._votes
        if not self._handfuls or self._handfuls[-1].vote is not None:
            self._handfuls.append(_Handful(None if votes.each_step else self._run.place()))
        handful = self._handfuls[-1]
        if not self._dry:
            try:
                sample = next(self._run)
            except StopIteration:
                self._dry = True
            except Exception as error:
                if not isinstance(error, HeadraceError) and not self._run.consistent:
                    raise  # out of the middle of the loop: a signal handler's, and it is not for later
                self._dry, self._error = True, error
            else:
                self._held.append((sample, self._mask()))
                handful.ready += 1
                if votes.each_step:
                    handful.after.append(self._run.place())
        handful.asked += 1
        self._ahead += 1
        if handful.asked == votes.handful:
            self._final = handful.ready < votes.handful
            wrong = self._error if self._final else None
            handful.vote = votes.cast(handful.ready, wrong, handful.before, handful.after)

    def _end(self) -> None:
        """All steps are made: raise an error of this rank or of another, or count what is left over."""
        self._over = True
        failed, wanting = self._outcome.failed, self._outcome.wanting
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or its traceback and this frame would keep each other
        if failed:
            raise RuntimeError(f"another rank failed ({failed}); what it printed says more")
        if wanting and self._votes.no_step:
            raise BadPipe(
                "no step of this epoch can be made: behind the ops that decide how many samples there are, there is "
                f"none on rank {', '.join(map(str, wanting))}, and some on others; use fewer ranks, or put these ops "
                "before the place where ranks part"
            )
        self.surplus = sum(self._real(*held) for held in self._held)
        self.surplus += sum(self._real(sample, self._mask()) for sample in self._run)
        if self.surplus:
            log.warning(
                "%d %s of this rank are left out, because another rank has no more; "
                "every rank takes the same number of steps",
                self.surplus, self._votes.unit,
            )  # fmt: skip

    def _mask(self) -> Mask:
        """Which samples of the batch that the run gave last are real."""
        return self._run.mask() if self._votes.masks else None

    def _real(self, sample: Any, mask: Mask) -> int:
        """How many samples are left out with this one, which may be a batch that others fill up."""
        size = self._votes.size
        return 1 if size is None else size(sample) if mask is None else sum(mask)
