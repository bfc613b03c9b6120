"""Exchange: numbers that the ranks of a loader tell each other while an epoch runs, in rounds.

    Exchange.epoch(number) -> EpochRounds                   the rounds of one epoch
    EpochRounds.begin(numbers, text) -> Round               returns at once
    Round.wait() -> [Told(numbers, text), ...]         what every rank gave, by rank
    Exchange.broadcast(number) -> number               what rank 0 gives, before the next epoch begins

    consumer    begin 1   deliver   deliver   deliver   wait 1   begin 2   deliver   deliver ...
    thread          └────── all ranks meet ──────┘                   └────── all ranks meet ─ ...

All ranks begin the same rounds in the same order. Rounds of two epochs never mix: each says which epoch it is about,
and the newest one continues. A rank that still iterates an older epoch is told that others have left it; a rank that
meets an older epoch gives its numbers again, until all have come to its own.

A thread owns the group, because a round may wait for other ranks for a long time: a process that ends must not wait
for them, and Ctrl-C must be heard. (What torch begins with async_op=True holds the exit of the process up until the
others come.) A rank that has closed or ended takes its connections with it, so that others do not wait for it. A rank
that closes lets a round that is under way come to its end for GRACE seconds: ranks that leave after the same step will
all take part. After that the thread continues alone; it closes the group when the others come, leave, or exceed the
time-out.
"""

import _thread
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from headrace.errors import Closed, RanksDisagree, WorkerStuck

GRACE = 2.0
EPOCHS = 2**63
"""Numbers of epochs that a row can tell apart."""
HALF = 2**32
UNKNOWN = -1
"""Stands for the number of an epoch that ranks have not settled yet."""
HEADER = 4
"""Numbers of a row that say what it is about: serial, epoch, number of the round, length of the text."""
ROOM = 544
"""Numbers of one round at the most. Rows are of one size, because ranks may be in different epochs."""
WIDTH = HEADER + ROOM
EXCHANGING: set[int] = set()
"""The identifiers of the threads of this process that exchange rounds."""

Rows = list[list[int]]


class Group(Protocol):
    """How ranks exchange rows; see `Agreement`."""

    def rows(self, row: list[int]) -> Rows: ...
    def close(self) -> None: ...


class Told(NamedTuple):
    """What one rank gave."""

    numbers: list[int]
    text: bytes


@dataclass(slots=True, eq=False)
class Round:
    """What this rank gives, and, once all ranks have come, what each of them gave."""

    rounds: "EpochRounds"
    row: list[int]
    text: bytes
    _timeout: float
    _owner: int = field(default_factory=os.getpid)
    # (Not an Event, whose own lock an interrupt can leave in disorder.)
    _answer: SimpleQueue[list[Told] | BaseException] = field(default_factory=SimpleQueue)

    def answer(self, answer: list[Told] | BaseException) -> None:
        """Called by the thread: what all ranks gave, or the error to raise."""
        self._answer.put(answer)

    @property
    def answered(self) -> bool:
        """Waiting for it takes no time."""
        return not self._answer.empty()

    def wait(self) -> list[Told]:
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
class EpochRounds:
    """The rounds of one epoch."""

    _exchange: "Exchange"
    serial: int
    """Counts the epochs that this rank has begun."""
    epoch: int | None = None
    """Its number; None while ranks settle which one comes next."""
    _begun: int = 0
    left: bool = False
    """Another rank has left this epoch."""

    def begin(self, numbers: Sequence[int], text: bytes = b"") -> Round:
        """Give these numbers, and a text."""
        number, self._begun = self._begun, self._begun + 1
        about = UNKNOWN if self.epoch is None else self.epoch % EPOCHS
        return self._exchange.begin(self, [self.serial, about, number, len(text), *numbers], text)


class Exchange:
    """The rounds of a loader."""

    def __init__(self, group: Group, timeout: float) -> None:
        self._group = group
        self._timeout = timeout
        self._owner = os.getpid()
        self._serial = 0
        self._next: EpochRounds | None = None
        """The rounds of an epoch whose number is being settled."""
        self._begun: SimpleQueue[Round | None] = SimpleQueue()
        self._unanswered: deque[Round] = deque()
        self._serving = threading.Lock()
        """Held for good by the thread that exchanges rounds: a second one, started before that, ends at once."""
        self._working = threading.Lock()
        """Held by that thread until it ends."""
        self._ident = 0
        self._closed = False

    def epoch(self, number: int) -> EpochRounds:
        """The rounds of an epoch that begins now."""
        rounds, self._next = self._upcoming(), None
        rounds.epoch = number
        return rounds

    def broadcast(self, number: int) -> int:
        """The number that rank 0 gives. All ranks ask between two epochs; a rank that is still inside one gets an
        error that says so."""
        self._next = self._upcoming()
        high, low = self._next.begin(divmod(number, HALF)).wait()[0].numbers[:2]
        return high * HALF + low

    def _upcoming(self) -> EpochRounds:
        if self._next is not None:
            return self._next
        self._serial += 1
        return EpochRounds(self, self._serial)

    def begin(self, rounds: EpochRounds, row: list[int], text: bytes) -> Round:
        _check_owner(self._owner)
        if self._closed:
            raise _closed()
        begun = Round(rounds, row + [0] * (WIDTH - len(row)), text, self._timeout)
        self._unanswered.append(begun)
        self._begun.put(begun)
        if not self._serving.locked():
            # It must never keep a program from ending, whatever the other ranks do. (Not `Thread.start()`, which an
            # interrupt leaves with a thread that runs, or one that never will, or with a lock in disorder.)
            _thread.start_new_thread(self._serve, ())
        return begun

    def close(self) -> None:
        """No more rounds."""
        if self._owner != os.getpid():
            return  # a forked copy: thread and connections belong to the parent
        self._closed = True
        for begun in list(self._unanswered):
            begun.answer(_closed())  # another thread may be waiting for it
        self._begun.put(None)
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
                EXCHANGING.add(self._ident)
                try:
                    self._answer_all()
                finally:
                    EXCHANGING.discard(self._ident)

    def _answer_all(self) -> None:
        broken: BaseException | None = None
        try:
            while (begun := self._begun.get()) is not None:
                try:
                    if broken is not None:
                        raise RuntimeError(str(broken)) from broken
                    if begun.rounds.left:
                        raise RuntimeError("this epoch has ended")  # nobody waits for it
                    begun.answer(self._meet(begun))
                except RanksDisagree as error:
                    begun.rounds.left = True
                    begun.answer(error)
                except Exception as error:
                    if not begun.rounds.left:
                        broken = broken or error
                    begun.answer(error)
                self._unanswered.popleft()
        finally:
            self._group.close()

    def _meet(self, begun: Round) -> list[Told]:
        """What all ranks give to this round."""
        rounds, mine = begun.rounds, begun.row
        while True:
            rows = self._rows(mine)
            newest = max(rows)
            if newest[0] > rounds.serial:
                raise RanksDisagree(
                    f"rank {rows.index(newest)} has left {_name(mine)} and begun {_name(newest)}, while this rank "
                    "is still in the middle of it: all have to leave an epoch after the same number of steps"
                )
            if all(row[0] == rounds.serial for row in rows):
                break
        for rank, row in enumerate(rows):
            if row[: HEADER - 1] != mine[: HEADER - 1]:
                raise RanksDisagree(
                    f"rank {rank} is in {_name(row)} at its round number {row[2]}, this rank in {_name(mine)} at "
                    f"number {mine[2]}: all ranks have to begin the same epochs, in the same order"
                )
        texts = [b""] * len(rows)
        for at in range(0, max(row[HEADER - 1] for row in rows), 8 * WIDTH):
            piece = begun.text[at : at + 8 * WIDTH].ljust(8 * WIDTH, b"\0")
            told = self._rows(
                [int.from_bytes(piece[i : i + 8], "little", signed=True) for i in range(0, len(piece), 8)]
            )
            for rank, row in enumerate(told):
                texts[rank] += b"".join(number.to_bytes(8, "little", signed=True) for number in row)
        return [Told(row[HEADER:], text[: row[HEADER - 1]]) for row, text in zip(rows, texts, strict=True)]

    def _rows(self, row: list[int]) -> Rows:
        began = time.monotonic()
        try:
            return self._group.rows(row)
        except Exception as error:
            if time.monotonic() - began >= self._timeout:
                raise _late(self._timeout) from error
            raise RuntimeError(
                f"another rank has left the job, or closed its loader, before the end of the epoch ({error}); what it "
                "printed says why"
            ) from error


def _name(row: list[int]) -> str:
    return "the next epoch" if row[1] == UNKNOWN else f"epoch {row[1]}"


def _late(timeout: float) -> WorkerStuck:
    return WorkerStuck(
        f"after {timeout:g} s another rank has not said how far it is: it is slower than that, or has left the epoch; "
        "if it is slow, give fullsync() or the reading service a longer timeout"
    )


def _closed() -> Closed:
    return Closed("this loader was closed while it was being read")


def _check_owner(owner: int) -> None:
    if os.getpid() != owner:
        raise Closed(f"ranks exchange counts in process {owner}, of which this one is a copy; iterate there")
