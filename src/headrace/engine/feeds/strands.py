"""Strands: a stream that cannot be indexed, cut into a fixed number of strands that are read side by side.

A strand is a cursor that one worker has open; a ticket asks for its next block of samples. The strands take turns, one
sample of each, whichever block arrives first: the stream does not depend on time.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.plain import PlainRecord, brief, row, whole
from headrace.engine.program import Program
from headrace.engine.wire.codec import unpack_state
from headrace.engine.wire.messages import Reply, Ticket
from headrace.errors import SnapshotRefused
from headrace.pipe.cursor import State
from headrace.pipe.graph import Pipe


@dataclass(frozen=True, slots=True)
class Strand(PlainRecord):
    """Where one strand stands: its cursor's state before block `block`, and how many samples of that are delivered."""

    label: ClassVar[str] = "a strand"
    state: State | None = None
    block: int = 0
    skip: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class InStrands(Place):
    """Where every strand stands, and whose turn it is."""

    label: ClassVar[str] = "a place in strands"
    kind: ClassVar[str] = "strands"
    feed: ClassVar[str] = "strand"
    common: ClassVar[bool] = True
    turn: int
    strands: tuple[Strand, ...]

    @classmethod
    def start(cls, program: Program, stage: int) -> Place:
        return cls(0, (Strand(),) * program.strands)

    def check(self) -> None:
        if not self.strands:
            raise SnapshotRefused("the snapshot has no strands")

    def describe(self) -> str:
        many = [f"block {s.block}" + (f" + {s.skip}" if s.skip else "") for s in self.strands]
        return f"{', '.join(many)} of {len(many)} strand{'s' * (len(many) > 1)}"

    def fit(self, program: Program, stage: int) -> Place:
        # (Not `super()`: a dataclass with slots is made twice, and the first one is not this class.)
        Place.fit(self, program, stage)
        if len(self.strands) != program.strands:
            raise SnapshotRefused(
                f"the snapshot was taken with strands={len(self.strands)}; make the loader with that, "
                f"not {program.strands}"
            )
        for strand in self.strands:
            if strand.state is not None:
                _check_state(strand.state, program.head)
        return self

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        unordered = not setting.policy.ordered and stage == len(setting.program.stages) - 1
        return Strands(self, setting.epoch, setting.policy.prefetch, unordered, setting.program.head.op.opens)


def _check_state(state: object, node: Pipe[Any]) -> None:
    """Raise unless this can be the state of a cursor of this op and of those before it."""
    name = node.op.name()
    emitted, skip, note, turn, inputs = row(state, 5, f"the state of {name}")
    if not node.op.accepts(note):
        raise SnapshotRefused(f"{name} never notes {brief(note)}: this snapshot is damaged, or of another pipe")
    for number in (emitted, skip, turn):
        whole(number)
    for below, source in zip(row(inputs, len(node.inputs), f"the inputs of {name}"), node.inputs, strict=True):
        _check_state(below, source)


class _StrandsMark(NamedTuple):
    """A mark: where all strands stand at one moment."""

    turn: int
    strands: list[tuple[Any, int, int, bool]]
    """The fields of a `Strand`, for each; states of cursors in other processes are packed."""


class Strands(Feed):
    """Asks for blocks of strands, and puts their samples in order.

    Its tickets have no marks: the entries that it makes of the replies have them.
    """

    streamed = True

    def __init__(self, at: InStrands, epoch: int, depth: int, unordered: bool = False, opens: bool = False) -> None:
        self._unordered = unordered
        """Blocks are handed on as they come: strands do not wait for each other."""
        self.start: InStrands | None = None if opens and any(s.block == 0 and not s.over for s in at.strands) else at
        """Where it began; None until every strand has said where it stood when it was opened, if they say that. Before
        that nothing is handed on."""
        self._epoch = epoch
        self._depth = depth
        self._turn = at.turn
        # By strand:
        self._asked = [s.block for s in at.strands]
        """The next block to ask for."""
        self._over = [s.over for s in at.strands]
        self._taken = [s.skip for s in at.strands]
        """Samples taken of the block at the front of its queue."""
        self._states: list[Any] = [s.state for s in at.strands]
        """Its state before the block at the front of its queue."""
        self._open = list(self._states)
        """The state that the first ticket brings along."""
        self._numbers = list(self._asked)
        """The number of the block at the front of its queue."""
        self._waiting = [0] * len(at.strands)
        """Blocks that were asked for and have not come."""
        self._queues: list[deque[tuple[Block, Any]]] = [deque() for _ in at.strands]
        """Blocks that have come, each with the state after it."""
        self.ended = all(self._over)

    def next(self, owner: object) -> Ticket | None:
        # The strand with the least work ahead of it, and among those the one whose turn comes first.
        strands = len(self._over)
        for s in sorted(range(strands), key=lambda s: (self._ahead(s), (s - self._turn) % strands)):
            if not self._over[s] and self._ahead(s) < self._depth:
                ticket = Ticket(owner, 0, self._epoch, self._asked[s], (s, self._open[s]))
                ticket.strand = ticket.pin = s
                self._open[s] = None
                self._asked[s] += 1
                self._waiting[s] += 1
                return ticket
        return None

    def _ahead(self, s: int) -> int:
        return self._waiting[s] + len(self._queues[s])

    def entries(self, reply: Reply, block: Block) -> Iterator[Entry]:
        """Blocks of one strand come in order, because one worker has it open."""
        s = reply.ticket.strand
        assert s is not None
        self._waiting[s] -= 1
        self._over[s] = self._over[s] or reply.ended or (bool(reply.faults) and reply.state is None)
        self._queues[s].append((block, reply.state))
        if self.start is None:
            if self._numbers[s] == 0 and not reply.faults:
                self._next_block(s)
            if not all(map(self._begun, range(len(self._queues)))):
                return iter(())
            self.start = self.now()
        return self._as_they_come() if self._unordered else self._in_turn()

    def _begun(self, s: int) -> bool:
        return self._numbers[s] > 0 or self._over[s] or bool(self._queues[s])

    def seen(self, before: int, reply: Reply) -> int:
        # No ticket says how many samples it asks for. Some may wait in an op, such as a shuffle, but one that has
        # failed says by its number how many came before it.
        failed = max((position + 1 for position, *_ in reply.skipped), default=0)
        return max(before + (reply.count or 0) + len(reply.skipped), failed)

    def _as_they_come(self) -> Iterator[Entry]:
        for s, queue in enumerate(self._queues):
            while queue:
                block, first = queue[0][0], self._taken[s]
                if first < block.count:
                    self._turn, before = s, self._now()
                    self._turn, self._taken[s] = s + 1, block.count
                    if not block.faults:
                        self._next_block(s)
                    yield Entry(block, first, block.count, before, self._now())
                elif block.faults:
                    yield self._failed(s)
                else:
                    self._next_block(s)
        self.ended = all(self._over)

    def _in_turn(self) -> Iterator[Entry]:
        strands = len(self._queues)
        idle = 0
        while idle < strands:
            s = self._turn % strands
            queue = self._queues[s]
            while queue and not queue[0][0].faults and self._taken[s] >= queue[0][0].count:
                self._next_block(s)
            if not queue:
                if not self._over[s]:
                    return
                self._turn += 1
                idle += 1
                continue
            idle = 0
            block, first = queue[0][0], self._taken[s]
            if first >= block.count:
                yield self._failed(s)
                continue
            before = self._now()
            stop = block.count if strands == 1 else first + 1
            self._taken[s] = stop
            self._turn += 1
            if stop >= block.count and not block.faults:
                self._next_block(s)
            yield Entry(block, first, stop, before, self._now())
        self.ended = True

    def _failed(self, s: int) -> Entry:
        """The error behind the samples of the block at the front of a queue: it has a turn of its own."""
        block = self._queues[s][0][0]
        ((*_, error),) = block.faults
        self._turn, before = s, self._now()
        self._turn = s + 1
        self._next_block(s)
        return Entry(block, block.count, block.count, before, self._now(), error=error)

    def blocks(self) -> list[Block]:
        return [block for queue in self._queues for block, _ in queue]

    def _next_block(self, s: int) -> None:
        block, state = self._queues[s].popleft()
        if not block.count:
            block.spend()  # (the end of a strand: an empty block, which no ticket will read)
        self._taken[s] = max(0, self._taken[s] - block.count)
        self._states[s] = state
        self._numbers[s] += 1

    def _now(self) -> _StrandsMark:
        saved = [
            (self._states[s], self._numbers[s], self._taken[s], self._over[s] and not self._queues[s])
            for s in range(len(self._queues))
        ]
        return _StrandsMark(self._turn % len(saved), saved)

    def now(self) -> InStrands:
        """Where all strands stand now."""
        return self._place(self._now())

    def at(self, mark: object) -> Place:
        return self._place(mark) if isinstance(mark, _StrandsMark) else super().at(mark)

    def _place(self, mark: _StrandsMark) -> InStrands:
        unpacked = ((unpack_state(s) if isinstance(s, bytes) else s, *rest) for s, *rest in mark.strands)
        return InStrands(mark.turn, tuple(Strand(*strand) for strand in unpacked))
