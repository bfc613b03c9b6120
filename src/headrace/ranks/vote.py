"""Vote: what the ranks of a loader tell each other while an epoch runs, in a thread that owns the group it goes over.

    VoteThread.begin(epoch) -> EpochVotes       the votes of one epoch
    EpochVotes.cast(row, ...) -> PendingVote    returns at once
    PendingVote.wait() -> rows, texts           what every rank gave, by rank
    VoteThread.broadcast(number) -> number      what rank 0 gives, before the next epoch begins

    consumer    cast 1   deliver   deliver   deliver   wait 1   cast 2   deliver   deliver ...
    thread         └────── all ranks meet ──────┘                  └────── all ranks meet ─ ...

All ranks cast the same votes in the same order. Votes of two epochs never mix: each says which epoch it is about, and
the newest one goes on. A rank that still iterates an older epoch is told that others have left it; a rank that meets
an older epoch casts its vote again, until all have come to its own. The vote that `is_last` accepts ends an epoch: what
was cast before its answer came is dropped, on every rank.

A rank that has closed or ended takes its connections with it, so the others do not wait for it. A rank that closes lets
a vote that is under way come to its end for GRACE seconds: ranks that leave after the same step will all cast it. After
that the thread goes on alone; it closes the group when the others come, leave, or exceed the time-out.
"""

import _thread
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from headrace.errors import Closed, RanksDisagree, WorkerStuck
from headrace.ranks.agree import HALF

GRACE = 2.0
EPOCHS = 2**63
"""Numbers of epochs that a row can tell apart."""
UNKNOWN = -1
"""Stands for the number of an epoch that ranks have not settled yet."""
HEADER = 4
"""Numbers of a row that say what it is about: serial, epoch, deal, number of the vote."""
WIDTH = 32
"""Numbers that ranks exchange at each vote, whatever it is about: ranks may be voting on different things."""
VOTING: set[int] = set()
"""The identifiers of the threads of this process that exchange votes."""

Rows = list[list[int]]
RowsTest = Callable[[Rows], bool]
T = TypeVar("T")
R = TypeVar("R")


class Group(Protocol):
    """How ranks exchange rows and texts; see `Agreement`."""

    def rows(self, row: list[int]) -> Rows: ...
    def texts(self, text: bytes) -> list[bytes]: ...
    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class PendingVote:
    """What this rank gives to a vote, and, once all ranks have voted, what each of them gave."""

    epoch: "EpochVotes"
    row: list[int]
    text: bytes
    is_last: RowsTest
    wants_texts: RowsTest
    _timeout: float
    _owner: int = field(default_factory=os.getpid)
    # (Not an Event, whose own lock an interrupt can leave in disorder.)
    _answer: SimpleQueue[tuple[Rows, list[bytes]] | BaseException] = field(default_factory=SimpleQueue)

    def answer(self, answer: tuple[Rows, list[bytes]] | BaseException) -> None:
        """Called by the thread: what all ranks gave, or the error to raise."""
        self._answer.put(answer)

    def wait(self) -> tuple[Rows, list[bytes]]:
        """What every rank gave, by rank; called once."""
        _check_owner(self._owner)
        try:
            answer = self._answer.get(timeout=self._timeout)
        except Empty:
            raise _late(self._timeout) from None
        try:
            if isinstance(answer, BaseException):
                raise answer
            return answer
        finally:
            del answer  # or its traceback and this frame would keep each other


@dataclass(slots=True, eq=False)
class EpochVotes:
    """The votes of one epoch."""

    _thread: "VoteThread"
    serial: int
    """Counts the epochs that this rank has begun."""
    epoch: int | None = None
    """Its number; None while ranks settle which one comes next."""
    _deal: int = 0
    """Counts how often ranks have shared what is left of the epoch anew."""
    _cast: int = 0
    ended: bool = False
    """All ranks know that there is nothing more to vote on."""

    def cast(self, row: list[int], text: bytes, is_last: RowsTest, wants_texts: RowsTest) -> PendingVote:
        """Give a row, as long as that of every other rank, and a text.

        `is_last` and `wants_texts` see the rows of all ranks: whether the vote ends the epoch, and whether ranks
        exchange their texts too.
        """
        number, self._cast = self._cast, self._cast + 1
        about = UNKNOWN if self.epoch is None else self.epoch % EPOCHS
        header = [self.serial, about, self._deal, number]
        return self._thread.cast(self, header + row, text, is_last, wants_texts)

    def again(self) -> "EpochVotes":
        """Further votes of the same epoch, after all ranks have cast the last of these."""
        return EpochVotes(self._thread, self.serial, self.epoch, self._deal + 1)


class VoteThread:
    """Casts the votes of a loader."""

    def __init__(self, group: Group, timeout: float) -> None:
        self._group = group
        self._timeout = timeout
        self._owner = os.getpid()
        self._begun = 0
        self._next: EpochVotes | None = None
        """The votes of an epoch whose number is being settled."""
        self._votes: SimpleQueue[PendingVote | None] = SimpleQueue()
        self._unanswered: deque[PendingVote] = deque()
        self._serving = threading.Lock()
        """Held for good by the thread that exchanges votes: a second one, begun before that, ends at once."""
        self._working = threading.Lock()
        """Held by that thread until it ends."""
        self._ident = 0
        self._closed = False

    def begin(self, epoch: int) -> EpochVotes:
        votes, self._next = self._upcoming(), None
        votes.epoch = epoch
        return votes

    def broadcast(self, number: int) -> int:
        """The number that rank 0 gives. All ranks ask between two epochs; a rank that is still inside one gets an
        error that says so."""
        self._next = self._upcoming()
        rows, _ = self._next.cast([*divmod(number, HALF)], b"", _never, _never).wait()
        return rows[0][0] * HALF + rows[0][1]

    def _upcoming(self) -> EpochVotes:
        if self._next is not None:
            return self._next
        self._begun += 1
        return EpochVotes(self, self._begun)

    def cast(
        self, epoch: EpochVotes, row: list[int], text: bytes, is_last: RowsTest, wants_texts: RowsTest
    ) -> PendingVote:
        _check_owner(self._owner)
        if self._closed:
            raise _closed()
        vote = PendingVote(epoch, row, text, is_last, wants_texts, self._timeout)
        self._unanswered.append(vote)
        self._votes.put(vote)
        if not self._serving.locked():
            # It must never keep a program from ending, whatever the other ranks do. (Not `Thread.start()`, which an
            # interrupt leaves with a thread that runs, or one that never will, or with a lock in disorder.)
            _thread.start_new_thread(self._serve, ())
        return vote

    def close(self) -> None:
        """No more votes."""
        if self._owner != os.getpid():
            return  # a forked copy: thread and connections belong to the parent
        self._closed = True
        for vote in list(self._unanswered):
            vote.answer(_closed())  # another thread may be waiting for it
        self._votes.put(None)
        if self._serving.acquire(blocking=False):
            self._group.close()
        elif self._ident == threading.get_ident():
            pass  # the garbage collector runs in any thread, in this one too
        elif self._working.acquire(timeout=min(self._timeout, GRACE)):
            self._working.release()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        if self._serving.acquire(blocking=False):
            with self._working:
                self._ident = threading.get_ident()
                VOTING.add(self._ident)
                try:
                    self._answer_all()
                finally:
                    VOTING.discard(self._ident)

    def _answer_all(self) -> None:
        broken: BaseException | None = None
        try:
            while (vote := self._votes.get()) is not None:
                try:
                    if broken is not None:
                        raise RuntimeError(str(broken)) from broken
                    if vote.epoch.ended:
                        raise RuntimeError("this epoch has ended")  # nobody waits for it
                    vote.answer(self._meet(vote))
                except RanksDisagree as error:
                    vote.epoch.ended = True
                    vote.answer(error)
                except Exception as error:
                    if broken is None and not vote.epoch.ended:
                        broken = error
                    vote.answer(error)
                self._unanswered.popleft()
        finally:
            self._group.close()

    def _meet(self, vote: PendingVote) -> tuple[Rows, list[bytes]]:
        """What all ranks give to this vote."""
        epoch, own_row = vote.epoch, vote.row
        while True:
            rows = self._exchange(self._group.rows, own_row + [0] * (WIDTH - len(own_row)))
            newest = max(rows)
            if newest[0] > epoch.serial:
                raise RanksDisagree(
                    f"rank {rows.index(newest)} has left {_name(own_row)} and begun {_name(newest)}, while this rank "
                    "is still in the middle of it: all have to leave an epoch after the same number of steps"
                )
            if all(row[0] == epoch.serial for row in rows):
                break
        for rank, row in enumerate(rows):
            if row[:HEADER] != own_row[:HEADER]:
                raise RanksDisagree(
                    f"rank {rank} is in {_name(row)} at its vote number {row[3]}, this rank in {_name(own_row)} at "
                    f"number {own_row[3]}: all ranks have to begin the same epochs, in the same order"
                )
        given = [row[HEADER : len(own_row)] for row in rows]
        texts = self._exchange(self._group.texts, vote.text) if vote.wants_texts(given) else []
        if vote.is_last(given):
            epoch.ended = True
        return given, texts

    def _exchange(self, exchange: Callable[[T], R], contribution: T) -> R:
        began = time.monotonic()
        try:
            return exchange(contribution)
        except Exception as error:
            if time.monotonic() - began >= self._timeout:
                raise _late(self._timeout) from error
            raise RuntimeError(
                f"another rank has left the job, or closed its loader, before the end of the epoch ({error}); what it "
                "printed says why"
            ) from error


def _never(rows: Rows) -> bool:
    return False


def _name(row: list[int]) -> str:
    return "the next epoch" if row[1] == UNKNOWN else f"epoch {row[1]}"


def _late(timeout: float) -> WorkerStuck:
    return WorkerStuck(
        f"after {timeout:g} s another rank has not come to the vote on the next steps: it is slower than that, or has "
        "left the epoch; if it is slow, give fullsync() or the reading service a longer timeout"
    )


def _closed() -> Closed:
    return Closed("this loader was closed while it was being read")


def _check_owner(owner: int) -> None:
    if os.getpid() != owner:
        raise Closed(f"ranks vote in process {owner}, of which this one is a copy; iterate there")
