"""The worker's side of a worker beyond this machine: tickets in, replies out, as plain objects that a store can carry.

Nothing here knows how messages travel; `workers.ray` puts an actor around it. A ticket is the tuple

    (seq, stage, epoch, number, payload, avoid, witness)

and a reply one of

    INLINE   head, alone, skipped, seconds                       a result without large buffers
    SLOTTED  head, arrays, alone, skipped, seconds               a result, and its buffers as they lie in memory
    PLACED   head, spans, need, alone, skipped, seconds          a result whose buffers are in the slot that was lent
    MANY     count, packed, skipped, seconds, extra, size        many samples (`packed` is None when they stay behind)
    FAILED   error, traceback

**Packed** samples are `(table, image)`: an array of bytes that looks like a slot, and where its table lies. Samples of
the stage before come as such packs, in memory that belongs to the store and may be read again after a death: user code
gets copies.
"""

import faulthandler
import os
import pickle
import signal
import socket
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from headrace.engine.executor import Executor
from headrace.engine.wire import codec
from headrace.engine.wire.messages import FAILED, INLINE, MANY, PLACED, READY, SLOTTED
from headrace.engine.wire.shipping import unship
from headrace.engine.workers.process import heap
from headrace.engine.workers.process.child import _private
from headrace.engine.workers.ray.near import Nearby, Offer
from headrace.memory.arena import HEADER, lease_type, scratch
from headrace.op import place

PIECES = 8
"""Pieces of scratch memory: as many as results of one call that are alive at once."""
Wire = tuple[Any, ...]
Tell = Callable[[Any, int, int], None]
"""Tells a witness, which will outlive this process, at which position a ticket is."""


class Servant:
    """One worker, from inside."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._scratch = Scratch()
        self._nearby = Nearby()

    def start(self, shipped: Any, number: int) -> Wire:
        """Open the program; READY with where this process is, or FAILED."""
        heap.keep()
        try:
            self.program, extra = unship(shipped)
            self.number = number
            if extra["worker_init"] is not None:
                extra["worker_init"](number)
            self.executor = Executor(self.program, seeds=True)
        except Exception as error:
            error.add_note(f"headrace: while worker {number} was starting on {socket.gethostname()}")
            return FAILED, codec.pack_error(error), "".join(traceback.format_exception(error))
        self._last = self.program.last.number
        self._recycle, self._recycle_memory = extra["recycle"], extra["recycle_memory"]
        self._handled = 0
        self._dump = scratch()
        faulthandler.register(signal.SIGUSR2, file=self._dump, all_threads=True)
        return READY, os.getpid(), self._dump

    # --- tickets ------------------------------------------------------------------------------------------------------

    def deliver(
        self, tickets: list[Wire], packs: Sequence[Any], lent: Sequence[Offer | None] = ()
    ) -> tuple[list[Wire], bool]:
        """Replies with everything in them, or in the slots that were lent; whether this worker asks to be replaced."""
        pairs = zip_longest(tickets, lent)
        return [self._answer(ticket, packs, offered) for ticket, offered in pairs], self._spent(len(tickets))

    def keep(self, ticket: Wire, packs: Sequence[Any]) -> tuple[tuple[Wire, bool], Any]:
        """The reply without its samples, and the samples; or, twice, how it failed."""
        reply = self._answer(ticket, packs)
        spent = self._spent(1)
        if reply[0] == FAILED:
            return (reply, spent), reply
        kind, count, packed, *rest = reply
        assert kind == MANY
        return ((kind, count, None, *rest), spent), packed

    def again(self, ticket: Wire, count: int) -> Any:
        """The first `count` samples of a strand from a state on: a block that was lost, made once more.

        How many samples a block of a strand holds depends on time, so the number is given. The strand that is open
        here is left alone.
        """
        _, _, epoch, number, (strand, state), _, _ = ticket
        executor = Executor(self.program, seeds=True)
        samples: list[Any] = []
        known = codec.unpack_state(state) if state else None
        while len(samples) < count:
            more, ended, _ = executor.strand(epoch, strand, number, known)
            samples += more
            number += 1
            if ended and len(samples) < count:
                raise RuntimeError(f"a stream gave {len(samples)} samples where it had given {count} before")
        return _pack(samples[:count])

    def _answer(self, ticket: Wire, packs: Sequence[Any], offered: Offer | None = None) -> Wire:
        executor = self.executor
        seq, witness = ticket[0], ticket[6]
        executor.header = [0, 0, 0] if witness is None else _Told(self._tell, witness, seq)
        slot = self._nearby.find(offered) if offered is not None else None
        writer = codec.Writer(slot.view, slot.address, HEADER) if slot is not None else None
        place.allocate = writer.allocate if writer is not None else self._scratch.allocator()
        try:
            return self._run(ticket, packs, writer, time.perf_counter())
        except Exception as error:
            op, position = executor.where()
            where = f"worker {self.number} (process {os.getpid()} on {socket.gethostname()})"
            error.add_note(f"headrace: in {op}, at position {position}, in {where}")
            text = "".join(traceback.format_exception(error))
            return FAILED, codec.pack_error(error), text
        finally:
            place.allocate = None

    def _run(self, ticket: Wire, packs: Sequence[Any], writer: codec.Writer | None, started: float) -> Wire:
        _, number_of_stage, epoch, number, payload, avoid, _ = ticket
        executor, stage = self.executor, self.program.stages[number_of_stage]
        extra: Any = None
        if stage.feed == "strand":
            strand, state = payload
            outputs, ended, now = executor.strand(epoch, strand, number, codec.unpack_state(state) if state else None)
            extra = (ended, codec.pack_state(now))
        else:
            if stage.feed == "refs":
                refs, base, stride = payload
                payload = ([s for which, first, stop in refs for s in _load(packs[which], first, stop)], base, stride)
            elif stage.feed == "listed":
                payload = pickle.loads(payload)
            outputs = executor.run(number_of_stage, epoch, number, payload, avoid)
        skipped = tuple(executor.skipped)
        if extra is not None or number_of_stage != self._last:
            packed = _pack(outputs)
            seconds = (time.perf_counter() - started, executor.timings)
            return MANY, len(outputs), packed, skipped, seconds, extra, packed[1].nbytes
        alone = stage.single and len(outputs) == 1
        head, buffers = codec.pack(outputs[0] if alone else outputs)
        if not buffers:
            return INLINE, head, alone, skipped, (time.perf_counter() - started, executor.timings)
        if writer is not None and (need := writer.need(buffers, 0)) <= writer.size:
            spans = tuple(writer.write(buffers))
            return PLACED, head, spans, need, alone, skipped, (time.perf_counter() - started, executor.timings)
        arrays = [np.frombuffer(raw, np.uint8) for raw in buffers]
        self._scratch.learn(sum(raw.nbytes + codec.ALIGN for raw in buffers))
        return SLOTTED, head, arrays, alone, skipped, (time.perf_counter() - started, executor.timings)

    def _spent(self, handled: int) -> bool:
        self._handled += handled
        if self._recycle is not None and self._handled >= self._recycle:
            return True
        return self._recycle_memory is not None and _private() > self._recycle_memory


class Scratch:
    """Warm memory to collate into: new memory costs as much as filling it.

    The store copies a result when it has been returned; a piece is used again when nobody looks into it any more.
    """

    def __init__(self) -> None:
        self._size = 0
        self._pieces: list[tuple[Any, Any]] = []
        """Each with a weak reference to whoever uses it."""

    def learn(self, size: int) -> None:
        """A result took so many bytes."""
        if size > self._size:
            self._size, self._pieces = size + size // 8, []

    def allocator(self) -> Callable[[tuple[int, ...], Any], Any] | None:
        """Makes arrays in a piece that nobody looks into."""
        if not self._size:
            return None
        free = next((k for k, (_, lease) in enumerate(self._pieces) if lease() is None), None)
        if free is None:
            if len(self._pieces) == PIECES:
                return None
            free = len(self._pieces)
            self._pieces.append((np.empty(self._size, np.uint8), None))
        piece = self._pieces[free][0]
        exporter = lease_type(self._size).from_buffer(piece)
        self._pieces[free] = (piece, weakref.ref(exporter))
        return codec.Writer(memoryview(exporter).cast("B"), piece.ctypes.data, 0).allocate


class _Told:
    """An executor's header that is told to a witness before each sample."""

    def __init__(self, tell: Tell, witness: Any, seq: int) -> None:
        self._tell = tell
        self._witness = witness
        self._seq = seq

    def __setitem__(self, place: int, value: int) -> None:
        if place == 1:
            self._tell(self._witness, self._seq, value)


def _pack(samples: list[Any]) -> tuple[tuple[int, int], Any]:
    heads, buffers = codec.pack_many(samples)
    size = codec.need_many(codec.Writer(memoryview(b""), 0, HEADER), heads, buffers)
    image: Any = np.empty(size, np.uint8)
    writer = codec.Writer(memoryview(image), image.ctypes.data, HEADER)
    return codec.write_many(writer, heads, buffers), image


def _load(packed: Any, first: int, stop: int) -> list[Any]:
    if packed[0] == FAILED:
        error = codec.load_error(packed[1])
        error.add_note("headrace: while samples that were lost with their node were made again")
        raise error
    (offset, size), image = packed
    memory = memoryview(image)
    return codec.load_many(_Copied(memory), codec.read_table(memory, offset, size), first, stop)


class _Copied:
    """Memory that is only ever copied out of."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    def __getitem__(self, part: slice) -> bytearray:
        return bytearray(self._memory[part])
