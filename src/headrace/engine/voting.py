"""Voting: equal step counts for ranks that cannot know their lengths in advance, and one snapshot for all of them.

Ranks vote on handfuls of steps: each says how many batches it has ready, and all take the smallest number. When a rank
has fewer than a handful, that vote is the last: everybody stops after the same step, and what others had left over is
counted and named in one warning. A rank that fails says so in its vote; all ranks make the steps before it, then it
raises its error and the others raise too.

Nobody waits for a vote while there is something to deliver. Where handfuls are of 4:

    pulled     0 1 2 3 | 4 5   6 7   8 9   10 | 11   12   13   14 | 15   16 ...   in the consumer, one or two at a step
    cast            v0         v1               v2                  v3             with the last batch of a handful
    delivered          | 0     1     2     3  | 4    5    6    7  | 8    9 ...
    needed             v0                     v1                  v2               and usually there

How many votes a rank has cast follows from the steps that it has made, and from nothing else. So ranks that leave an
epoch after the same step have cast the same votes. At most two handfuls are held. Votes are exchanged by a thread (a
`Poll`: see `headrace.ranks.vote`); the samples and their places are touched by the consumer only.

With its vote a rank says where it will stand after each of these steps. So after any step every rank can say where the
whole job stands, and what is only voted on does not count:

    turns      positions are dealt one by one, samples are regrouped once at most: two numbers a rank
               (see `feeds.elastic`); loads on any number of ranks
    others     the place of every rank before this handful, and how many steps ago that was (a `VotedPlace`);
               loads on as many ranks
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from headrace.engine.feeds.elastic import InTurns
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunPlace, VotedPlace, plain_epoch_place
from headrace.plan.turns import Progress

log = logging.getLogger("headrace")
HANDFUL = 4
PULLS = 2
"""Batches that are pulled at one step, until enough are held."""
LONGEST = 500
"""Letters of an error that the other ranks are told."""
HEAD = 4
"""Numbers of a row before those about places: ready, failed, share, skipped."""

Rows = list[list[int]]
Judge = Callable[[Rows], bool]
Mask = list[bool] | None


class Answer(Protocol):
    """What all ranks gave, by rank: rows and texts."""

    def wait(self) -> tuple[Rows, list[bytes]]: ...


class Poll(Protocol):
    """The votes of one epoch. Of what ranks gave, `last` says whether there is nothing more to vote on, and `talk`
    whether their texts are wanted."""

    def cast(self, row: list[int], text: bytes, last: Judge, talk: Judge) -> Answer: ...


class _Voted(NamedTuple):
    """What is known after a vote."""

    places: list[RunPlace]
    """Of this rank, after each step."""
    progress: list[list[Progress]]
    """After each step, of each share: tickets behind, outputs gone."""
    skipped: int
    everyone: list[RunPlace]
    """Where the ranks stood before these steps, where that is all there is to say."""


class Granted(NamedTuple):
    """The outcome of a vote."""

    steps: int
    last: bool
    failed: str
    """Which rank cannot make the step after these, and why."""


class Ballot:
    """The votes of one epoch. It knows where the job stands, and holds on to nothing that runs."""

    def __init__(
        self,
        poll: Poll,
        share: int,
        at: EpochPlace | None = None,
        turns: tuple[int, int] | None = None,
        behind: int = 0,
        handful: int = HANDFUL,
        masks: bool = False,
    ) -> None:
        self._poll = poll
        self._share = share
        self._turns = turns
        """Where ranks take positions in turn: steps before the epoch began or went on, and samples in a step."""
        self._settled = at
        self.behind = behind
        """Steps that were delivered already when the snapshot was taken."""
        self.handful = handful
        self.masks = masks
        """Some batches may be filled up."""
        self.mask: Mask = None
        """Of the batch delivered last."""
        self.handed = 0
        """Batches that went out."""
        self._voted: _Voted | None = None
        self._steps = self._step = 0
        """Before the handful at hand, and of it."""

    def watch(self, source: Iterator[Any], place: Callable[[], RunPlace], mask: Callable[[], Mask]) -> "Voting":
        return Voting(source, place, mask, self)

    @property
    def each_step(self) -> bool:
        """Whether the place after each step is wanted, not only that before each handful."""
        return self._turns is not None

    def cast(self, ready: int, error: Exception | None, before: RunPlace | None, after: list[RunPlace]) -> Answer:
        """Tell the others; where this rank stood before these steps, and will stand after each."""
        row = [ready, int(error is not None), self._share, 0, *([0] * (2 * self.handful))]
        if self._turns is not None:
            for step, place in enumerate(after):
                row[HEAD + 2 * step : HEAD + 2 * step + 2] = _progress(place)
            row[3] = after[-1].skipped if after else 0
        why = "" if error is None else f"{type(error).__name__}: {error}"[:LONGEST]
        text = json.dumps([plain_epoch_place(before), why]).encode()
        return self._poll.cast(row, text, self._last, self._talk)

    def _last(self, rows: Rows) -> bool:
        return any(row[0] < self.handful or row[1] for row in rows)

    def _talk(self, rows: Rows) -> bool:
        return self._turns is None or any(row[1] for row in rows)

    def count(self, answer: Answer, after: list[RunPlace]) -> Granted:
        """Wait for the others. The steps that all can make are those at hand now."""
        rows, texts = answer.wait()
        if self._voted is not None:
            self._settled = self.place()
            self._steps += self._step
        steps = min(row[0] for row in rows)
        shares = {row[2]: row for row in rows}
        table = [
            [(row[HEAD + 2 * step], row[HEAD + 2 * step + 1]) for _, row in sorted(shares.items())]
            for step in range(steps if self._turns is not None else 0)
        ]
        told = [json.loads(text) for text in texts]
        places = {row[2]: place for row, (place, _) in zip(rows, told, strict=False) if place is not None}
        everyone = [RunPlace.read(place) for _, place in sorted(places.items())]
        self._voted = _Voted(after, table, sum(row[3] for row in shares.values()) // len(shares), everyone)
        self._step = 0
        failed = next((f"rank {rank}: {told[rank][1]}" for rank, row in enumerate(rows) if row[1]), "")
        return Granted(steps, self._last(rows), failed)

    def delivered(self, mask: Mask) -> None:
        self._step += 1
        self.mask = mask

    def place(self, received: int | None = None) -> EpochPlace | None:
        """Where the whole job stands; None: at the start of the epoch.

        `received`: as seen by a caller who has received so many batches, which may be one fewer than were handed out.
        """
        voted = self._voted
        step = self._step if received is None else self._step - (self.handed - received)
        if voted is None or self.behind:
            return self._settled
        if self._turns is None:
            return VotedPlace(step, tuple(voted.everyone))
        if not step:
            return self._settled
        turns = _groups(voted.places[step - 1]).source
        assert isinstance(turns, InTurns)
        number, group = self._turns
        number = (number + self._steps + step) if group else 0
        whole = InTurns(turns.rest, turns.block, tuple(voted.progress[step - 1]))
        return RunPlace(Regrouped(whole, 0, number * group, number), 0, voted.skipped)


def _groups(at: RunPlace) -> Regrouped:
    assert isinstance(at.place, Regrouped)
    return at.place


def _progress(at: RunPlace) -> Progress:
    """Tickets behind a rank, and outputs gone of the next."""
    groups = _groups(at)
    assert isinstance(groups.source, InTurns)
    return groups.source.progress[0][0], groups.offset + at.gone


class _Handful:
    """Batches that are voted on together."""

    def __init__(self, before: RunPlace | None) -> None:
        self.before = before
        self.after: list[RunPlace] = []
        self.ready = 0
        self.room = 0
        """Batches that were asked for."""
        self.answer: Answer | None = None


class Voting(Iterator[Any]):
    """The samples of `source`, as far as every rank can follow."""

    def __init__(
        self, source: Iterator[Any], place: Callable[[], RunPlace], mask: Callable[[], Mask], ballot: Ballot
    ) -> None:
        self._source = source
        self._place = place
        self._mask = mask
        self._ballot = ballot
        self._held: deque[tuple[Any, Mask]] = deque()
        self._handfuls: deque[_Handful] = deque()
        """Those that are voted on or being pulled, oldest first."""
        self._ahead = 0
        """Batches that were asked for and not delivered, whether there were as many or not."""
        self._granted = Granted(0, False, "")
        self._left = 0
        """Of the steps that were granted."""
        self._dry = False
        """Nothing more will come from the source."""
        self._error: Exception | None = None
        self._final = False
        """The vote cast last will end the epoch."""
        self._over = False
        self.surplus = 0
        """Batches of this rank that could not be delivered."""

    def __next__(self) -> Any:
        ballot = self._ballot
        while True:
            if not self._left:
                self._begin_handful()
            for _ in range(PULLS):
                if self._ahead < 2 * ballot.handful and not self._final and not self._granted.last:
                    self._pull()
            self._left -= 1
            self._ahead -= 1
            sample, mask = self._held.popleft()
            ballot.delivered(mask)
            if not ballot.behind:
                ballot.handed += 1
                return sample
            ballot.behind -= 1

    def leave(self) -> None:
        """Nobody will ask for more. Votes that are under way come to their end by themselves."""
        self._over = True
        self._error = None  # its traceback knows this object

    def _begin_handful(self) -> None:
        """Go on to the next handful, or raise what ends the epoch."""
        if self._granted.last:
            self._end()
        if self._over:
            raise StopIteration
        while not self._handfuls or (answer := self._handfuls[0].answer) is None:
            self._pull()
        try:
            self._granted = self._ballot.count(answer, self._handfuls[0].after)
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
        self._left = self._granted.steps
        if not self._left:
            self._begin_handful()

    def _pull(self) -> None:
        """Get the next batch, if there is one; with the last of a handful, vote."""
        ballot = self._ballot
        if not self._handfuls or self._handfuls[-1].answer is not None:
            self._handfuls.append(_Handful(None if ballot.each_step else self._place()))
        handful = self._handfuls[-1]
        if not self._dry:
            try:
                sample = next(self._source)
            except StopIteration:
                self._dry = True
            except Exception as error:
                self._dry, self._error = True, error
            else:
                self._held.append((sample, self._mask() if ballot.masks else None))
                handful.ready += 1
                if ballot.each_step:
                    handful.after.append(self._place())
        handful.room += 1
        self._ahead += 1
        if handful.room == ballot.handful:
            self._final = handful.ready < ballot.handful
            wrong = self._error if self._final else None
            handful.answer = ballot.cast(handful.ready, wrong, handful.before, handful.after)

    def _end(self) -> None:
        """All steps are made."""
        if self._over:
            return
        self._over = True
        failed = self._granted.failed
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or its traceback and this frame would keep each other
        if failed:
            raise RuntimeError(f"another rank failed ({failed}); what it printed says more")
        self.surplus = len(self._held) + sum(1 for _ in self._source)
        if self.surplus:
            log.warning(
                "%d batches of this rank are left out, because another rank has no more; "
                "every rank takes the same number of steps",
                self.surplus,
            )
