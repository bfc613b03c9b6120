"""What consumer and workers say to each other.

On the wire these are plain tuples (a frozen dataclass costs seven times as much); the classes are the reader's view of
them, one for each kind of message.

    consumer -> worker     TICKETS [SentTicket, ...], short              (+ the descriptors of the slots that are `new`)
                           STOP
    worker -> consumer     a list of these, each packed by itself:
                           (RESULT | FAILED, seq, Result | Failed, held)
                                                                   (+ a descriptor when the result outgrew its slot)
                           (READY, pid)
                           (RETIRED, handled)                      it asks to be replaced

`held` are numbers of slots that user code still looks into. The messages to and from Ray actors carry the same
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from headrace.engine.feeds.block import Block

from headrace.memory.arena import Slot
from headrace.tracebacks import Call

TICKETS, STOP = range(2)
READY, RESULT, FAILED, RETIRED = range(10, 14)
BEGUN, DONE, PACKING, GROUPED, AHEAD = 1, 2, 3, 4, 5
"""What a slot's header says of its ticket: inside a sample, answered, making the reply, inside an op on a batch, or
inside a source that reads all samples of the ticket in one call."""
ALONE = -1
"""Among the positions that a ticket avoids: its samples are read one by one, so that a death names one of them."""

Skip = tuple[int, str, str, int | None, bool]
"""A sample that failed and was left out: its position, the op, the error, which one of its source it is, and whether
nothing is left at that position. (Of a row or an inner batch, what did not fail stays.)"""
Seconds = tuple[float, dict[int, float] | None, float, tuple[int, ...] | None]
"""How long a ticket took, the seconds by op if it was timed (else None), when it began, on a shared clock, and what it
read of files (`meter.Reads`), if anything."""
SampleTable = tuple[int, int]
"""Where the table of the samples in a slot lies: offset and size."""
WHOLE = -1
"""In place of the position of a fault: the ticket has failed as a whole."""
FAILED_HERE = -1
"""In place of how many outputs a position has: it has failed."""
Fault = tuple[int, int, BaseException]
"""An error in the place of outputs: how many outputs of its ticket come before it, its position, and the error."""


class Result(NamedTuple):
    """What a ticket made: one packed output, or samples that were packed one by one."""

    head: Any
    """The packed output, or its offset and size in the slot; None: samples one by one."""
    spans: tuple[int, ...]
    """Where its arrays are in the slot: offset, size, offset, size, ..."""
    outputs: int | None
    """How many; None: a list of them was packed as one."""
    size: int
    """Bytes that it takes of the slot; 0: it is small, and all of it is in the message."""
    table: SampleTable | None
    """Of samples for the next stage, or of a block of a stream."""
    strand: tuple[bool, Any] | None
    """Of a block of a stream: whether the stream has ended, and where it stands now; of another ticket False, and what
    an op has noted with it, if one has."""
    skipped: tuple[Skip, ...]
    seconds: Seconds
    faults: tuple[tuple[int, int, Failed], ...]
    """Of positions that have failed: how many outputs come before it, which it is, and the error."""
    counts: tuple[int, ...] | None
    """Of each position of the ticket, where they are taken one by one: how many outputs it has; None: one."""


class Failed(NamedTuple):
    """An error of user code."""

    error: bytes
    led: str
    """The traceback of what led to it, if something did."""
    calls: tuple[Call, ...]
    """Those that it went through, without headrace's own."""


class SentTicket(NamedTuple):
    """A ticket on its way to a worker process, with the slot that its result is made in."""

    seq: int
    stage: int
    epoch: int
    number: int
    payload: Any
    slot: int
    avoid: tuple[int, ...]
    room: tuple[int, int] | None
    """The part of the slot that the result may take, where that is not all of it: from, to."""
    forget: Sequence[int]
    """Slots that will not be used again."""
    new: Sequence[int]
    """Slots whose descriptors come with this message."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One unit of work."""

    owner: object
    """The run that has made it. (The next run of the same workers takes no replies to it.)"""
    stage: int
    epoch: int
    number: int
    payload: Any
    seq: int = 0
    order: int = 0
    """Its place among the tickets of its stage in this run."""
    before: object = None
    after: object = None
    """Marks of where the epoch stands before and after this ticket; its feed says which places they stand for."""
    error: BaseException | None = None
    """The stage before has failed where this ticket's samples would be: it is answered with this error."""
    pin: int | None = None
    """The number of the only worker that may run it; None: any worker."""
    strand: int | None = None
    blocks: Sequence[Block] = ()
    """Blocks that the payload refers to, kept until the reply."""
    append_to: Block | None = None
    """A block whose last samples come first in this ticket: the result may be written behind them, in the same slot."""
    skips: int = 0
    """How many samples earlier stages have left out up to this ticket."""
    kept: tuple[int, int] = (0, 0)
    """How many of `skips` a run that is resumed at `before`, or at `after`, does not count again."""
    slot: Slot | None = None
    avoid: tuple[int, ...] = ()
    """Positions that are left out because they are poison; in the end also those that have failed."""
    noted: tuple[int, Any] | None = None
    """What an op has noted with it, behind the number of the worker; known when it is delivered."""
    many: int = 0
    """How many outputs it has had; known when it is delivered."""
    breaks: Sequence[tuple[int, object]] = ()
    """For each error among its outputs, how many outputs come before it, and the mark behind it if there is one."""

    def release_inputs(self) -> None:
        """It is answered or dropped: the samples that it refers to are not needed for it any more."""
        for block in self.blocks:
            block.drop()

    def inputs(self) -> int:
        """How many samples it is made from, if it is one of positions or of samples of the stage before."""
        first, stop, extra = self.payload
        if type(first) is list:
            return sum(stop - first for _, first, stop in first)
        return int(stop - first + len(extra))

    def __str__(self) -> str:
        return f"ticket {self.number} of stage {self.stage} in epoch {self.epoch}"


@dataclass(slots=True, eq=False)
class Reply:
    """What came of a ticket."""

    ticket: Ticket
    outputs: Any = None
    """The outputs themselves (a list), or the packed head of them."""
    slot: Slot | None = None
    """Where the outputs lie, if they were packed into a slot."""
    spans: tuple[int, ...] = ()
    count: int | None = 0
    """How many outputs; None: a list of them was packed as one."""
    faults: Sequence[Fault] = ()
    """Errors among the outputs, in order. A ticket that has failed as a whole has one, and no outputs."""
    counts: Sequence[int] | None = None
    """Of each position, where they are taken one by one: how many outputs it has (`FAILED_HERE`: an error); None:
    one."""
    skipped: tuple[Skip, ...] = ()
    """Samples of this ticket that failed and were left out."""
    skips: int = 0
    """How many were left out up to here, in order."""
    kept: tuple[int, int] = (0, 0)
    """How many of these a run that is resumed before, or after, the ticket does not count again."""
    seconds: Seconds | tuple[()] = ()
    worker: int = 0
    """The number of the worker that ran it."""
    bytes: int = 0
    """How much of a slot the outputs take."""
    ended: bool = False
    """Of a block of a stream: nothing comes after it."""
    state: Any = None
    """Of a block of a stream: where that stands now; of another ticket: what an op has noted with it."""


def numbered(base: int | tuple[int, ...], stride: int) -> Iterable[int]:
    """The numbers of the samples that a ticket refers to: from `base` on, `stride` apart, or those listed there."""
    return base if isinstance(base, tuple) else count(base, stride)


def failure(error: Exception) -> str:
    """An error as the quarantine tells it: its type and text, and what ops have noted about it (which file it was)."""
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
