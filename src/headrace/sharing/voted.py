"""Ranks vote: how many samples each one gets shows only while it runs, so they agree on the next steps as they go."""

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.engine.epoch import Epoch, Start
from headrace.engine.places import EpochPlace, RunPlace, VotedPlace
from headrace.engine.program import Program
from headrace.errors import BadOption, BadPipe
from headrace.ranks.agree import group_timeout
from headrace.ranks.vote import VoteThread
from headrace.sharing.arithmetic import Sharing
from headrace.sharing.equal_steps import EqualSteps
from headrace.sharing.round_robin import Lockstep, RoundRobin
from headrace.sharing.voting import StepVotes
from headrace.sharing.worlds import in_turns, shares_in_turns


class Voted(Sharing):
    """Ranks vote on how far they go."""

    _votes: VoteThread | None = None
    _steps: StepVotes | None = None

    @property
    def _steps_are_voted(self) -> bool:
        return not shares_in_turns(self.program)

    def first(self, number: int) -> int:
        # Not by a broadcast: a rank that is still inside an epoch waits for a vote, and would never join the broadcast.
        self._connect()
        return number if self._votes is None else self._votes.broadcast(number)

    def _connect(self) -> None:
        super()._connect()
        if self._agreement is not None and self._votes is None:
            self._votes = VoteThread(self._agreement, group_timeout(self._timeout))

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        self._verify(epoch, at)
        if self._votes is None and self.program.one_to_one and not isinstance(at, VotedPlace):
            return super().begin(epoch, at)
        if self._votes is None:
            raise BadPipe(
                "the ops after the division decide how many samples each rank gets, so ranks have to agree on the end "
                "of the epoch while they run: initialise torch.distributed in every rank before iterating"
            )
        rank = self._world.share_rank
        here: RunPlace | None = None
        dealing: RoundRobin | Lockstep | None = None
        behind = 0
        if shares_in_turns(self.program):
            assert not isinstance(at, VotedPlace)
            last, length = self.program.last, self.program.positions(epoch).length
            here = in_turns(at, self.program, self._world, length)
            dealing = RoundRobin.of(here, length, last.group or 0, last.drop_last or self._ends == "drop")
            at = None if at is None else here
        else:
            dealing = Lockstep() if _batches_in_turn(self.program) else None
            if isinstance(at, VotedPlace):
                here, behind = at.ranks[rank], at.steps
            elif at is not None and not self.program.one_to_one:
                self._refuse(1)
            else:
                here = at
        unit, size = _counting(self.program)
        self._steps = StepVotes(
            self._votes.begin(epoch), rank, at, dealing, behind, masks=self._ends in ("pad", "repeat"),
            unit=unit, size=size,
        )  # fmt: skip
        return Start(here, None, partial(EqualSteps, self._steps), self._steps.place)

    def _last_mask(self, epoch: Epoch[Any]) -> list[bool] | None:
        # Batches are made ahead of the vote: the one delivered last is not the one made last.
        return super()._last_mask(epoch) if self._steps is None else self._steps.mask

    def traceable_start(self, at: EpochPlace | None) -> RunPlace | None:
        if self._steps is not None and self._steps.deals:
            raise BadOption(
                "near the end of this epoch what was left was dealt anew among the ranks, so its batches cannot be "
                "traced; ask for those of an epoch that was not read to its end"
            )
        return super().traceable_start(at)

    def close(self, wait: bool = True) -> None:
        if self._votes is None:
            super().close(wait)
        else:
            self._votes.close()


def _batches_in_turn(program: Program) -> bool:
    """Whether ranks take whole batches by arithmetic, each from one ticket."""
    return program.indexed and len(program.stages) == 1 and program.last.single and not program.tail


def _counting(program: Program) -> tuple[str, Callable[[Any], int] | None]:
    """The unit in which samples that a rank has left over are counted, and how many an output is (None: one)."""
    if program.tail or program.last.nodes:
        return ("samples" if program.last.group is None and not program.tail else "batches"), None
    return "samples", len if program.last.group is not None else None
