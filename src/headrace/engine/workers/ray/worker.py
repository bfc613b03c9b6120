"""The worker's side of a Ray actor: tickets in, answers out, as plain objects that the object store can carry.

Nothing here knows how messages travel; `ray.actor` puts an actor around it. Samples of the stage before come as packs,
in memory of the store that may be read again after a death of this worker: user code gets copies.
"""

import faulthandler
import os
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from headrace.engine.executor import Executor
from headrace.engine.wire import codec
from headrace.engine.wire.failures import failed, load_error
from headrace.engine.wire.messages import FAILED, PACKING, READY, RESULT, Failed, Result
from headrace.engine.wire.unshipping import unship
from headrace.engine.workers.process import heap
from headrace.engine.workers.process.child import private_memory
from headrace.engine.workers.ray.answers import PackedSamples, RayAnswer, RayTicket
from headrace.engine.workers.ray.same_node import MappedSlots, SlotAddress
from headrace.engine.workers.task import Task
from headrace.memory.arena import HEADER, memfd
from headrace.op import place

Report = Callable[[Any, int, int, bool], None]
"""Tells a watcher, an actor that outlives this one, the number of a ticket, its position, and if it is being packed."""
StartReport = tuple[int, int, int] | Failed
"""READY, the pid, and the descriptor that stacks are written to."""


class RayWorker:
    """One worker, inside its actor."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._slots = MappedSlots()
        self._image_sizes: dict[int, int] = {}
        """By stage: bytes to reserve for a result that is not made in a slot of the consumer's."""

    def start(self, shipped: bytes | memoryview, number: int) -> StartReport:
        """Open the program."""
        heap.keep()
        host = socket.gethostname()
        try:
            program, extra = unship(shipped)
            if extra["worker_init"] is not None:
                extra["worker_init"](number)
            self.task = Task(program, f"worker {number} (process {os.getpid()} on {host})")
        except BaseException as error:
            error.add_note(f"headrace: while worker {number} was starting on {host}")
            return failed(error)
        self._recycle, self._recycle_memory = extra["recycle"], extra["recycle_memory"]
        self._handled = 0
        self._dump = memfd()
        faulthandler.register(signal.SIGUSR2, file=self._dump, all_threads=True)
        return READY, os.getpid(), self._dump

    # --- tickets ------------------------------------------------------------------------------------------------------

    def deliver(
        self, tickets: list[RayTicket], packs: Sequence[PackedSamples | Failed], lent: Sequence[SlotAddress | None] = ()
    ) -> tuple[list[RayAnswer], bool]:
        """Answers, each with its result or with that in the slot that was lent; and whether to replace this worker."""
        pairs = zip_longest(tickets, lent)
        return [self._answer(ticket, packs, address) for ticket, address in pairs], self._spent(len(tickets))

    def keep(
        self, ticket: RayTicket, packs: Sequence[PackedSamples | Failed]
    ) -> tuple[tuple[RayAnswer, bool], PackedSamples | Failed]:
        """The answer without its samples (and whether to replace this worker), and the samples; or twice the error."""
        answer = self._answer(ticket, packs)
        spent = self._spent(1)
        if isinstance(answer.result, Failed):
            return (answer, spent), answer.result
        return (answer._replace(image=None), spent), _packed(answer)

    def remake(self, ticket: RayTicket, count: int) -> PackedSamples:
        """Make a lost block again: the first `count` samples of a strand from a state on.

        How many samples a block of a strand holds depends on time, so the number is needed. The strand that is open
        in this worker does not move.
        """
        strand, state = ticket.payload
        number = ticket.number
        executor = Executor(self.task.program, seeds=True)
        samples: list[Any] = []
        known = codec.unpack_state(state) if state else None
        while len(samples) < count:
            more, ended, _ = executor.strand(ticket.epoch, strand, number, known)
            samples += more
            number += 1
            if ended and len(samples) < count:
                raise RuntimeError(f"a stream gave {len(samples)} samples where it had given {count} before")
        image = np.empty(0, np.uint8)
        return _packed(self._pack(ticket.stage, samples[:count], image, _writer(image)))

    def _answer(
        self, ticket: RayTicket, packs: Sequence[PackedSamples | Failed], address: SlotAddress | None = None
    ) -> RayAnswer:
        task = self.task
        task.executor.header = [0, 0, 0]
        if ticket.watcher is not None:
            task.executor.header = _ReportedHeader(partial(self._report, ticket.watcher, ticket.seq))
        slot = self._slots.find(address) if address is not None else None
        image = np.empty(self._image_sizes.get(ticket.stage, 0) if slot is None else 0, np.uint8)
        writer = _writer(image) if slot is None else codec.Writer(slot.view, slot.address, HEADER)
        place.allocate = writer.allocate
        try:
            outputs = task.run(
                ticket.stage,
                ticket.epoch,
                ticket.number,
                ticket.payload,
                ticket.avoid,
                lambda refs: [s for which, first, stop in refs for s in _load(packs[which], first, stop)],
            )
            return self._pack(ticket.stage, outputs, image, writer)
        except BaseException as error:
            return RayAnswer(FAILED, task.fail(error))
        finally:
            place.allocate = None

    def _pack(self, stage: int, outputs: list[Any], image: Any, writer: codec.Writer) -> RayAnswer:
        """The answer. Its result lies in `image`, if `writer` writes there, in a larger one, or in a slot."""
        # (The table of many samples lies at the end of their image: that cannot be cut to size.)
        alone = not self.task.one_by_one[stage]

        def grow(need: int) -> codec.Writer:
            nonlocal image
            if alone:
                self._image_sizes[stage] = need + need // 8
            image = np.empty(need, np.uint8)
            return _writer(image)

        result = Result._make(self.task.pack(stage, outputs, writer, grow))
        if alone:
            image = image[: result.size]
        return RayAnswer(RESULT, result, image if image.nbytes else None)

    def _spent(self, handled: int) -> bool:
        self._handled += handled
        if self._recycle is not None and self._handled >= self._recycle:
            return True
        return self._recycle_memory is not None and private_memory() > self._recycle_memory


class _ReportedHeader(list[int]):
    """An executor's header that calls `report` before each sample, and before the reply is packed."""

    def __init__(self, report: Callable[[int, bool], None]) -> None:
        super().__init__((0, 0, 0))
        self._report = report

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(place, value)
        if place == 1 or value == PACKING:
            self._report(self[1], place == 2)


def _writer(image: Any) -> codec.Writer:
    return codec.Writer(memoryview(image), image.ctypes.data, HEADER)


def _packed(answer: RayAnswer) -> PackedSamples:
    assert isinstance(answer.result, Result)
    assert answer.result.table is not None
    return answer.result.table, answer.image


def _load(packed: PackedSamples | Failed, first: int, stop: int) -> list[Any]:
    if isinstance(packed, Failed):
        error = load_error(packed.error)
        error.add_note("headrace: while samples that were lost with their node were made again")
        raise error
    (offset, size), image = packed
    memory = memoryview(image)
    return codec.load_many(_CopyOnRead(memory), codec.read_table(memory, offset, size), first, stop)


class _CopyOnRead:
    """Memory whose slices are copies."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    def __getitem__(self, part: slice) -> bytearray:
        return bytearray(self._memory[part])
