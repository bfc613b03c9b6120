"""Voting: equal numbers of steps for ranks that cannot know these in advance, and one snapshot for all of them.

Ranks vote on handfuls of steps: each says how many batches it has ready, and all take the smallest number. When a rank
has fewer than a handful, that vote is the last: everybody stops after the same step. Where samples are read by
position, what others have left is then dealt anew among all (`round_robin`), and votes go on; where they are not, or
when too little is left for a step, it is counted and named in one warning. An epoch that had samples and no step is an
error. A rank that fails says so in its vote; all ranks make the steps before it, then it raises its error and the
others raise too. When ranks vote, and what they hold meanwhile, is in `equal_steps`.

With its vote a rank says where it will stand after each of these steps. So after any step every rank knows where the
whole job stands; steps that were voted on and not made yet do not count:

    turns      positions are dealt one by one, samples are regrouped once at most: two numbers a rank
               (see `feeds.elastic`); loads on any number of ranks
    others     the place of every rank before this handful, and how many steps ago that was (a `VotedPlace`);
               loads on as many ranks
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.engine.places import EpochPlace, RunPlace, VotedPlace, plain_epoch_place
from headrace.plan.turns import RankProgress
from headrace.ranks.vote import EpochVotes, PendingVote, Rows
from headrace.sharing.round_robin import Lockstep, RoundRobin

HANDFUL = 4
LONGEST = 500
"""Characters of an error that are sent to the other ranks."""

Mask = list[bool] | None


class RankVote(NamedTuple):
    """The numbers of a rank's vote."""

    ready: int
    """How many batches of this handful it has."""
    failed: int
    share: int
    skipped: int
    progress: tuple[int, ...] = ()
    """Two numbers for each of these steps: finished tickets after it, and delivered outputs of the next ticket."""

    @classmethod
    def read(cls, row: list[int]) -> "RankVote":
        ready, failed, share, skipped, *progress = row
        return cls(ready, failed, share, skipped, tuple(progress))

    def row(self, width: int) -> list[int]:
        numbers = [self.ready, self.failed, self.share, self.skipped, *self.progress]
        return numbers + [0] * (width - len(numbers))

    def after(self, step: int) -> RankProgress:
        return self.progress[2 * step - 2], self.progress[2 * step - 1]


HEAD = 4
"""Numbers of a rank's vote before its progress."""


class _VotedSteps(NamedTuple):
    """Where the ranks stand before and after the steps of a vote."""

    progress: list[list[RankProgress]]
    """After each step, how far each share has come."""
    skipped: int
    everyone: list[RunPlace]
    """Where the ranks stood before these steps, if they have no `progress`."""


class VoteOutcome(NamedTuple):
    """The outcome of a vote."""

    steps: int
    last: bool
    failed: str = ""
    """Which rank cannot make the step after these, and why."""
    wanting: tuple[int, ...] = ()
    """Ranks without a batch for the next step, if other ranks have one."""


@dataclass(eq=False)
class StepVotes:
    """The votes of one epoch, and where the job stands. It keeps no run and no samples alive."""

    _votes: EpochVotes
    _share: int
    _settled: EpochPlace | None = None
    """Where the job stood before the steps that were voted on last; None: at the start of the epoch."""
    _dealing: RoundRobin | Lockstep | None = None
    """How ranks take positions, or batches of them, in turn; None: each has a stream of its own."""
    _behind: int = 0
    """Steps to make again that were delivered before the snapshot was taken."""
    handful: int = HANDFUL
    masks: bool = False
    """Some batches may be filled up."""
    unit: str = "batches"
    """The unit in which samples that are left out are counted."""
    size: Callable[[Any], int] | None = None
    """How many of these a batch has; None: one."""
    mask: Mask = None
    """The mask of the batch delivered last."""
    deals: int = 0
    """How often what is left was dealt anew."""
    _handed: int = 0
    """Batches that were handed over."""
    _voted: _VotedSteps | None = None
    _steps: int = 0
    """Steps made in this deal before the handful at hand."""
    _step: int = 0
    """Steps made of that handful."""
    _next: tuple[RoundRobin, int] | None = None
    """The next deal, and how many samples were skipped before it."""

    def __post_init__(self) -> None:
        self._begun = self._settled is not None
        """Some steps of the epoch were made before this deal."""

    @property
    def each_step(self) -> bool:
        """Whether the place after each step is needed, not only the one before each handful."""
        return self._dealing is not None

    def cast(self, ready: int, error: Exception | None, before: RunPlace | None, after: list[RunPlace]) -> PendingVote:
        """Vote for `ready` steps: where this rank stands before them, and will stand after each of them."""
        dealing = self._dealing
        progress = () if dealing is None else tuple(n for place in after for n in dealing.progress_of(place))
        skipped = after[-1].skipped if after else 0
        vote = RankVote(ready, int(error is not None), self._share, skipped, progress)
        why = "" if error is None else f"{type(error).__name__}: {error}"[:LONGEST]
        text = json.dumps([plain_epoch_place(before), why]).encode()
        return self._votes.cast(vote.row(HEAD + 2 * self.handful), text, self._is_last, self._needs_texts)

    def _is_last(self, rows: Rows) -> bool:
        return any(row[0] < self.handful or row[1] for row in rows)

    def _needs_texts(self, rows: Rows) -> bool:
        return self._dealing is None or any(row[1] for row in rows)

    def count(self, vote: PendingVote) -> VoteOutcome:
        """Wait for the votes of all ranks. The steps that all can make are the ones to make now."""
        numbers, texts = vote.wait()
        settled, before = self._settled, self._steps
        if self._voted is not None:
            settled, before = self.place(), before + self._step
        rows = [RankVote.read(row) for row in numbers]
        shares = [row for _, row in sorted({row.share: row for row in rows}.items())]
        last = self._is_last(numbers)
        said = [json.loads(text) for text in texts]
        failed = [f"rank {rank}: {said[rank][1]}" for rank, row in enumerate(rows) if row.failed]
        steps = min(row.ready for row in rows)
        table = [[row.after(step) for row in shares] for step in range(1, steps + 1)] if self.each_step else []
        places = {row.share: place for row, (place, _) in zip(rows, said, strict=False) if place is not None}
        everyone = [RunPlace.read(place) for _, place in sorted(places.items())]
        voted = _VotedSteps(table, sum(row.skipped for row in shares) // len(shares), everyone)
        again: tuple[RoundRobin, int] | None = None
        if last and not failed and isinstance(self._dealing, RoundRobin):
            reached = table[steps - 1] if steps else self._dealing.progress_at(settled)
            if (dealing := _redealt(self._dealing, shares, reached, before + steps, steps)) is not None:
                again = dealing, voted.skipped
        wanting = tuple(rank for rank, row in enumerate(rows) if row.ready <= steps)
        granted = VoteOutcome(
            steps, last, failed[0] if failed else "", wanting if any(row.ready > steps for row in rows) else ()
        )
        # (No call between these: an interrupt finds the job before this vote or after it.)
        self._settled, self._steps = settled, before
        self._voted, self._step = voted, 0
        self._next = again
        return granted

    def deal_again(self) -> RunPlace | None:
        """Go on to the next deal, now that all steps of this one are made: where it begins; None if there is none."""
        if self._next is None:
            return None
        dealing, skipped = self._next
        at = dealing.place(((0, 0),) * dealing.ranks, 0, skipped)
        votes = self._votes.again()
        begun = bool(self._begun or self._steps or self._step)
        # (No call between these: an interrupt finds the job in one deal or the other.)
        self._votes, self._dealing, self._next = votes, dealing, None
        self._settled, self._voted, self._begun = at, None, begun
        self._steps = self._step = 0
        self.deals += 1
        return at

    @property
    def no_step(self) -> bool:
        """Whether no rank has made a step of this epoch."""
        return not self._begun and not self._steps and not self._step

    def delivered(self, mask: Mask) -> bool:
        """Count one step. Returns whether its batch is handed over: not if it was delivered before the snapshot."""
        behind = self._behind
        # (No call between these: they happen together or not at all.)
        self._step += 1
        self.mask = mask
        if behind:
            self._behind = behind - 1
            return False
        self._handed += 1
        return True

    def place(self, received: int | None = None) -> EpochPlace | None:
        """Where the whole job stands; None: at the start of the epoch.

        `received`: batches that have reached the caller, which may be one fewer than were handed out.
        """
        voted = self._voted
        step = self._step if received is None else self._step - (self._handed - received)
        if voted is None or self._behind:
            return self._settled
        if self._dealing is None:
            return VotedPlace(step, tuple(voted.everyone))
        if not step:
            return self._settled
        return self._dealing.place(voted.progress[step - 1], self._steps + step, voted.skipped)


def _redealt(
    dealing: RoundRobin, shares: list[RankVote], progress: Sequence[RankProgress], steps: int, handful: int
) -> RoundRobin | None:
    """The next deal, after so many steps, `handful` of them in the last vote; None if dealing anew gains nothing.

    `progress`: how far each share has come by then.
    """
    if all(row.ready == handful for row in shares):
        return None
    reached = list(progress)
    moved = any(map(any, reached))
    for share, row in enumerate(shares):
        if row.ready == handful and not (moved and dealing.drops):
            reached[share] = dealing.end(share)  # it has nothing more, whatever positions it has left
    return dealing.again(reached, steps, moved)
