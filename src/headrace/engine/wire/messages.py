"""What consumer and workers say to each other.

On the wire these are plain tuples (a frozen dataclass costs seven times as much); these classes are the reader's view.

    consumer -> worker     TICKETS [(seq, stage, epoch, number, payload, slot, avoid, forget, new, room), ...], short
                                                                   (+ the descriptors of the slots that are `new`)
                           FAR     size                            too large for a message: it is in a descriptor
                           STOP
    worker -> consumer     a list of these, each packed by itself:
                           INLINE  seq, head, ...                  a small result, inside the message
                           SLOTTED seq, head, spans, ...           a result in the slot that was lent
                           MANY    seq, count, table, ...          many samples in the slot
                           FAILED  seq, error, traceback, ...
                           READY   pid
                           RETIRED handled                         it asks to be replaced
                           (+ a descriptor when the result outgrew the slot: the worker made a new one)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.engine.feeds.place import Place, Placed

TICKETS, STOP, FAR = range(3)
READY, INLINE, SLOTTED, MANY, FAILED, RETIRED, PLACED = range(10, 17)
BEGUN, DONE, PACKING = 1, 2, 3
"""What a slot's header says of its ticket: inside a sample, answered, or making the reply."""


class _Nowhere:
    """A credit for a block of a strand has no place of its own: the samples that come of it have theirs."""

    def place(self) -> Place:
        raise AssertionError(self.__doc__)


NOWHERE = _Nowhere()


class Ticket:
    """One unit of work."""

    __slots__ = (
        "after", "avoid", "before", "blocks", "epoch", "error", "home", "kept", "number", "order", "owner", "payload",
        "pin", "seq", "skips", "slot", "stage", "strand",
    )  # fmt: skip

    def __init__(self, owner: Any, stage: int, epoch: int, number: int, payload: Any) -> None:
        self.owner = owner
        self.stage = stage
        self.epoch = epoch
        self.number = number
        self.payload = payload
        self.seq = 0
        self.order = 0
        """Its place among the tickets of its stage in this run."""
        self.before: Placed = NOWHERE
        self.after: Placed = NOWHERE
        """Where the epoch stands before and after this ticket: what a snapshot says."""
        self.error: BaseException | None = None
        """It stands for work that failed in the stage before."""
        self.pin: int | None = None
        """The only worker that may run it."""
        self.strand: int | None = None
        self.blocks: Any = ()
        """Blocks that the payload refers to, kept until the reply."""
        self.home: Any = None
        """The block behind whose samples the result may be written: its last ones come first in this ticket."""
        self.skips = 0
        """Samples that earlier stages have left out, up to here."""
        self.kept = (0, 0)
        """The same, but only those that a run that goes on from `before` or from `after` will not meet again."""
        self.slot: Any = None
        self.avoid: tuple[int, ...] = ()
        """Positions that are left out because they are poison."""

    def inputs(self) -> int:
        """How many samples it is made from."""
        payload = self.payload
        if type(payload) is tuple and len(payload) == 3:
            if type(payload[0]) is list:
                return sum(stop - first for _, first, stop in payload[0])
            return int(payload[1] - payload[0] + len(payload[2]))
        return 1


class Reply:
    """What came of a ticket."""

    __slots__ = (
        "bytes", "count", "ended", "error", "kept", "outputs", "seconds", "skipped", "skips", "slot", "spans", "state",
        "ticket", "worker",
    )  # fmt: skip

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.outputs: Any = None
        """The outputs themselves (a list), or the packed head of them."""
        self.slot: Any = None
        """Where the outputs lie, if they were packed into a slot."""
        self.spans: Any = ()
        self.count = 0
        self.error: BaseException | None = None
        self.skipped: Any = ()
        """Samples of this ticket that failed and were left out."""
        self.skips = 0
        """How many were left out up to here, in order."""
        self.kept = (0, 0)
        """How many of these a run that goes on from before or from after the ticket will not meet again."""
        self.seconds: Any = ()
        """How long it took, the seconds by op if it was timed (else None), and when it began, on a shared clock."""
        self.worker = 0
        """The number of the worker that ran it."""
        self.bytes = 0
        """How much of a slot the outputs take."""
        self.ended = False
        self.state: Any = None
