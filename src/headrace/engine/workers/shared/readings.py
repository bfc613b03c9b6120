"""Readings: the streams of a shared pool, read once for all consumers that begin together.

Where a stream is cut into blocks depends on time, so block 7 of one reading is not block 7 of another. Consumers that
begin at the same place, while its first block can still be had, share a **reading**: they get the same blocks. Those
that come too late, or go on from a snapshot that others do not have, get a reading of their own, in another worker
where there is one.

A worker keeps one cursor for each strand, and knows it by the number of its next block. So that readings do not take
each other's cursors, no two of them have a number in common. A worker that does not have the cursor (another reading
has replaced it, or the worker is a new one) says so, and is asked again with the state of the strand.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engine.wire import codec
from headrace.engine.wire.messages import Reply
from headrace.engine.workers.shared.accounts import ConsumerState, made_of

APART = 1 << 32
"""More blocks than any reading has."""
EPOCHS = 64
"""Epochs whose readings are remembered after their end, for consumers that come late."""
LOST = codec.pack_state(None)
"""The state that a worker gives of a strand that it does not have open."""

Beginning = tuple[int, bytes | None]
"""Of a strand: the number of the first block, and the state before it."""
FRESH: Beginning = (0, None)
There = Callable[["StreamReading", int, int], bool]


@dataclass(eq=False)
class StreamReading:
    """One reading of the strands of an epoch."""

    name: bytes
    serial: int
    private: bool
    """It belongs to one consumer, and no other joins it."""
    open: bool
    """Other consumers may still join it."""
    readers: dict[ConsumerState, set[int]] = field(default_factory=dict)
    """Its consumers, and the strands that each of them has begun."""
    began: dict[int, Beginning] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    """By strand: the first block that was not asked for yet."""
    in_flight: Counter[int] = field(default_factory=Counter)
    """By strand: blocks that are being read."""
    lost: Counter[int] = field(default_factory=Counter)
    """By strand: blocks that have to be asked for again."""
    last: dict[int, int] = field(default_factory=dict)
    """By strand, of those that have ended: the last block."""
    _state: dict[int, bytes | None] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return bool(self.readers) or self.in_flight.total() + self.lost.total() > 0

    def begin(self, strand: int, beginning: Beginning) -> None:
        self.began[strand] = beginning
        self.next[strand], self._state[strand] = beginning

    def ticket(self, strand: int, number: int) -> tuple[int, int, tuple[int, bytes | None]]:
        """The number of a block as the workers know it, the worker that reads it, and the strand with its state."""
        alias = number
        if self.serial:
            # Only a strand that is opened at its start, without a state, may have a number that is not above zero.
            alias = self.serial * APART + number if number else -2 * self.serial
        # While blocks before this one are being read, its state is not known yet, but its worker will have the strand.
        state = None if self.in_flight[strand] else self._state[strand]
        return alias, strand + self.serial, (strand, state)

    def heard(self, strand: int, number: int, reply: Reply) -> bool:
        """Take note of a block that was read; False if the worker did not have the strand open."""
        self.in_flight[strand] -= 1
        if reply.state == LOST and strand not in self.last:
            self.lost[strand] += 1
            return False
        self._state[strand] = reply.state
        if reply.ended or reply.error is not None:
            self.last.setdefault(strand, number)
        return True


@dataclass(eq=False)
class StreamReadings:
    """All readings of one program."""

    strands: int
    same: bool
    _count: int = 0
    _epochs: dict[int, list[StreamReading]] = field(default_factory=dict)
    _serials: Counter[int] = field(default_factory=Counter)
    _current: dict[ConsumerState, tuple[int, StreamReading]] = field(default_factory=dict)
    _known: dict[ConsumerState, set[int]] = field(default_factory=dict)
    """The epochs of which a consumer has had a reading."""

    def of(self, consumer: ConsumerState, epoch: int, strand: int, start: Beginning, there: There) -> StreamReading:
        """The reading that a consumer takes its blocks from; `there` says whether a block can still be had."""
        reading = self.now(consumer, epoch)
        begins = start == FRESH or start[1] is not None
        if reading is None or (begins and strand in reading.readers[consumer]):
            self.leave(consumer)
            reading = self._join(consumer, epoch, strand, start, there) or self._new(consumer, epoch, start)
            self._current[consumer] = (epoch, reading)
            self._known.setdefault(consumer, set()).add(epoch)
            reading.readers[consumer] = set()
        if strand not in reading.began:
            reading.begin(strand, start)
        reading.readers[consumer].add(strand)
        return reading

    def _join(
        self, consumer: ConsumerState, epoch: int, strand: int, start: Beginning, there: There
    ) -> StreamReading | None:
        if epoch in self._known.get(consumer, ()) or (start != FRESH and self.strands > 1):
            return None  # it had these samples, and may have written to them; or its other strands may begin elsewhere
        for reading in self._epochs.get(epoch, ()):
            if not reading.open or reading.began.get(strand, start) != start:
                continue
            if all(reading.next[s] == first or there(reading, s, first) for s, (first, _) in reading.began.items()):
                return reading
        return None

    def _new(self, consumer: ConsumerState, epoch: int, start: Beginning) -> StreamReading:
        others = [reading for reading in self._epochs.get(epoch, ()) if reading.alive]
        serial = 0
        if epoch not in self._serials or others or start != FRESH:
            serial = self._serials[epoch]
            self._serials[epoch] += 1
        private = epoch in self._known.get(consumer, ()) or (self.same and bool(others))
        if private:
            consumer.apart.add(epoch)
        self._count += 1
        reading = StreamReading(made_of(self._count), serial, private, open=not private)
        self._epochs[epoch] = [*others, reading]
        for old in list(self._epochs)[:-EPOCHS]:
            if not any(reading.alive for reading in self._epochs[old]):
                del self._epochs[old]
        return reading

    def now(self, consumer: ConsumerState, epoch: int) -> StreamReading | None:
        """The reading of this epoch that a consumer takes part in."""
        current, reading = self._current.get(consumer, (-1, None))
        return reading if current == epoch else None

    def leave(self, consumer: ConsumerState) -> None:
        """A consumer needs no more blocks of its current epoch."""
        _, reading = self._current.pop(consumer, (-1, None))
        if reading is not None:
            del reading.readers[consumer]
            # A consumer in its place must not get the samples that it had: they may have been written to.
            reading.open = reading.open and self.same

    def forget(self, consumer: ConsumerState) -> None:
        self.leave(consumer)
        self._known.pop(consumer, None)
