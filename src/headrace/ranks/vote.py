"""Vote: what the ranks of a loader tell each other while an epoch runs, in a thread that owns the group it goes over.

    VoteThread.begin(epoch) -> EpochVotes       the votes of one epoch
    EpochVotes.cast(row, ...) -> PendingVote    returns at once
    PendingVote.wait() -> rows, texts           what every rank gave, by rank
    VoteThread.first(number) -> number          what rank 0 gives, before the next epoch begins

    consumer    cast 1   deliver   deliver   deliver   wait 1   cast 2   deliver   deliver ...
    thread         └────── all ranks meet ──────┘                  └────── all ranks meet ─ ...

All ranks cast the same votes in the same order. Votes of two epochs never mix: each says which epoch it is about, and
the newest one goes on. A rank that still iterates an older epoch is told that others have left it; a rank that meets
an older epoch casts its vote again, until all have come to its own. The vote that `last` accepts ends an epoch: what
was cast ahead of its answer is dropped, on every rank.

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
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, TypeVar

from headrace.errors import Closed, RanksDisagree, WorkerStuck
from headrace.ranks.agree import HALF

GRACE = 2.0
EPOCHS = 2**63
"""Numbers of epochs that a row can tell apart."""
SERVING: set[int] = set()
"""The threads of this process that cast votes."""
UNKNOWN = -1

Rows = list[list[int]]
Judge = Callable[[Rows], bool]
T = TypeVar("T")
R = TypeVar("R")


class Group(Protocol):
    """How ranks exchange things; see `Agreement`."""

    def rows(self, row: list[int]) -> Rows: ...
    def texts(self, text: bytes) -> list[bytes]: ...
    def close(self) -> None: ...


class PendingVote:
    """What ranks give to a vote, once they have; it is waited for once."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._owner = os.getpid()
        # (Not an Event, whose own lock an interrupt can leave in disorder.)
        self._given: SimpleQueue[tuple[Rows, list[bytes]] | BaseException] = SimpleQueue()

    def give(self, rows: Rows, texts: list[bytes]) -> None:
        self._given.put((rows, texts))

    def fail(self, error: BaseException) -> None:
        self._given.put(error)

    def wait(self) -> tuple[Rows, list[bytes]]:
        _check_owner(self._owner)
        try:
            given = self._given.get(timeout=self._timeout)
        except Empty:
            raise _late(self._timeout) from None
        try:
            if isinstance(given, BaseException):
                raise given
            return given
        finally:
            del given  # or its traceback and this frame would keep each other


class EpochVotes:
    """The votes of one epoch."""

    def __init__(self, thread: "VoteThread", serial: int, deal: int = 0) -> None:
        self._thread = thread
        self._cast = 0
        self._deal = deal
        """Counts how often ranks have shared what is left of the epoch anew."""
        self.serial = serial
        """Counts the epochs that this rank has begun."""
        self.epoch: int | None = None
        """Its number; None while ranks settle which one comes next."""
        self.ended = False
        """All ranks know that there is nothing more to vote on."""

    def cast(self, row: list[int], text: bytes, last: Judge, talk: Judge) -> PendingVote:
        """A row of as many numbers as every rank gives; texts are exchanged too if `talk` accepts what all gave."""
        number, self._cast = self._cast, self._cast + 1
        about = UNKNOWN if self.epoch is None else self.epoch % EPOCHS
        return self._thread.cast(_Vote(self, [self.serial, about, self._deal, number, *row], text, last, talk))

    def again(self) -> "EpochVotes":
        """Further votes of the same epoch, after all ranks have cast the last of these."""
        votes = EpochVotes(self._thread, self.serial, self._deal + 1)
        votes.epoch = self.epoch
        return votes


class _Vote(NamedTuple):
    epoch: EpochVotes
    row: list[int]
    text: bytes
    last: Judge
    talk: Judge


HEAD = 4
"""Numbers of a row that say what it is about: serial, epoch, deal, number of the vote."""
WIDTH = 32
"""Numbers that ranks exchange at each vote, whatever it is about: ranks may be voting on different things."""


class VoteThread:
    """Casts the votes of a loader."""

    def __init__(self, group: Group, timeout: float) -> None:
        self._group = group
        self._timeout = timeout
        self._owner = os.getpid()
        self._begun = 0
        self._next: EpochVotes | None = None
        """Of an epoch whose number is being settled."""
        self._votes: SimpleQueue[tuple[_Vote, PendingVote] | None] = SimpleQueue()
        self._open: deque[PendingVote] = deque()
        """Those that somebody may wait for."""
        self._serving = threading.Lock()
        """Held for good by the thread that casts them: a second one, begun before that, ends at once."""
        self._working = threading.Lock()
        """Held by it until it ends."""
        self._ident = 0
        self._closed = False

    def begin(self, epoch: int) -> EpochVotes:
        votes, self._next = self._upcoming(), None
        votes.epoch = epoch
        return votes

    def first(self, number: int) -> int:
        """What rank 0 gives. All ranks ask between two epochs; one that is still inside an epoch is told of others."""
        self._next = self._upcoming()
        rows, _ = self._next.cast([*divmod(number, HALF)], b"", _never, _never).wait()
        return rows[0][0] * HALF + rows[0][1]

    def _upcoming(self) -> EpochVotes:
        if self._next is not None:
            return self._next
        self._begun += 1
        return EpochVotes(self, self._begun)

    def cast(self, vote: _Vote) -> PendingVote:
        _check_owner(self._owner)
        if self._closed:
            raise _closed()
        answer = PendingVote(self._timeout)
        self._open.append(answer)
        self._votes.put((vote, answer))
        if not self._serving.locked():
            # It must never keep a program from ending, whatever the other ranks do. (Not `Thread.start()`, which an
            # interrupt leaves with a thread that runs, or one that never will, or with a lock in disorder.)
            _thread.start_new_thread(self._serve, ())
        return answer

    def close(self) -> None:
        """No more votes."""
        if self._owner != os.getpid():
            return  # a forked copy: thread and connections belong to the parent
        self._closed = True
        for answer in list(self._open):
            answer.fail(_closed())  # another thread may be reading
        self._votes.put(None)
        if self._serving.acquire(blocking=False):
            self._group.close()
        elif self._ident == threading.get_ident():
            pass  # the collector runs anywhere
        elif self._working.acquire(timeout=min(self._timeout, GRACE)):
            self._working.release()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        if self._serving.acquire(blocking=False):
            with self._working:
                self._ident = threading.get_ident()
                SERVING.add(self._ident)
                try:
                    self._cast_all()
                finally:
                    SERVING.discard(self._ident)

    def _cast_all(self) -> None:
        broken: BaseException | None = None
        try:
            while (asked := self._votes.get()) is not None:
                vote, answer = asked
                try:
                    if broken is not None:
                        raise RuntimeError(str(broken)) from broken
                    if vote.epoch.ended:
                        raise RuntimeError("this epoch has ended")  # nobody waits for it
                    answer.give(*self._meet(vote))
                except RanksDisagree as error:
                    vote.epoch.ended = True
                    answer.fail(error)
                except Exception as error:
                    if broken is None and not vote.epoch.ended:
                        broken = error
                    answer.fail(error)
                self._open.popleft()
        finally:
            self._group.close()

    def _meet(self, vote: _Vote) -> tuple[Rows, list[bytes]]:
        """What all ranks have to say to this vote."""
        epoch, mine = vote.epoch, vote.row
        while True:
            rows = self._exchange(self._group.rows, mine + [0] * (WIDTH - len(mine)))
            newest = max(rows)
            if newest[0] > epoch.serial:
                raise RanksDisagree(
                    f"rank {rows.index(newest)} has left {_name(mine)} and begun {_name(newest)}, while this rank is "
                    "still in the middle of it: all have to leave an epoch after the same number of steps"
                )
            if all(row[0] == epoch.serial for row in rows):
                break
        for rank, row in enumerate(rows):
            if row[:HEAD] != mine[:HEAD]:
                raise RanksDisagree(
                    f"rank {rank} is in {_name(row)} at its vote number {row[3]}, this rank in {_name(mine)} at "
                    f"number {mine[3]}: all ranks have to begin the same epochs, in the same order"
                )
        said = [row[HEAD : len(mine)] for row in rows]
        texts = self._exchange(self._group.texts, vote.text) if vote.talk(said) else []
        if vote.last(said):
            epoch.ended = True
        return said, texts

    def _exchange(self, exchange: Callable[[T], R], mine: T) -> R:
        began = time.monotonic()
        try:
            return exchange(mine)
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
