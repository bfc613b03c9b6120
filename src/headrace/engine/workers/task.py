"""Task: running one ticket, in whatever thread or process that is, and naming the place where it fails.

    stage, epoch, number, payload, avoid  --run-->   outputs that are not packed yet
                                          --pack-->  the result, as it travels: in the message, or in a slot
                                          --fail-->  the error, with a note that says op, position and worker

Whatever user code raises is the answer of its ticket: `sys.exit()` (which the consumer gets as an ordinary error), an
interrupt that it raises itself and exceptions that are no `Exception` too.

When user code forks (`os.fork`) and returns in both processes, the worker's answer counts: the copy has no access to
the memory of results (`context.place`), and ends here.
"""

import os
import pickle
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.engine.executor import Executor
from headrace.engine.program import Program
from headrace.engine.wire import codec
from headrace.engine.wire.failures import failed
from headrace.engine.wire.messages import FAILED_HERE, PACKING, WHOLE, Failed, Fault, Seconds
from headrace.errors import NotPicklable, hint_at_limit
from headrace.memory.arena import OutOfSharedMemory
from headrace.observe.meter import files

IN_MESSAGE = 32 * 1024
"""A head larger than this goes into the slot."""
Load = Callable[[Any], list[Any]]
"""Samples of the stage before, out of what a ticket says about where they are."""


class Task:
    """Runs the tickets of one program, one after the other.

    `where` says in which worker that is; it is empty in the caller's own thread. `packed` says that payloads have
    travelled: states of streams and listed items are bytes, there and back. `inline`: this is the caller's own thread,
    where Ctrl-C may come at any moment and must go up at once.
    """

    def __init__(
        self, program: Program, where: str, *, seeds: bool = True, packed: bool = True, inline: bool = False
    ) -> None:
        self.program = program
        self.executor = Executor(program, seeds, Exception if inline else BaseException, self.note)
        self._where = where
        self._packed = packed
        self._process = os.getpid()
        last = program.last.number
        self.one_by_one = [stage.feed == "strand" or stage.number != last for stage in program.stages]
        """By stage: its outputs are read one by one, by the next stage or as samples of a stream."""
        self.began = 0.0
        """When the ticket at hand was begun."""
        self.strand: tuple[bool, Any] | None = None
        """After a block of a stream: whether the stream has ended, and where it stands now. After another ticket:
        False, and the state that an op has noted with it, if one has."""

    def run(
        self, stage_number: int, epoch: int, number: int, payload: Any, avoid: tuple[int, ...], load: Load
    ) -> list[Any]:
        """The outputs of a ticket; `load` brings the samples that it refers to."""
        self.began = time.perf_counter()
        executor, stage = self.executor, self.program.stages[stage_number]
        self.strand = None
        if stage.feed == "strand":
            name, state = payload
            if self._packed and state is not None:
                state = codec.unpack_state(state)
            outputs, ended, state = executor.strand(epoch, name, number, state)
            self.strand = (ended, self._packed_state(state))
            return outputs
        if stage.feed == "refs":
            refs, base, stride = payload
            payload = (load(refs), base, stride)
        elif stage.feed == "listed" and self._packed:
            payload = pickle.loads(payload)
        outputs = executor.run(stage_number, epoch, number, payload, avoid)
        if executor.spot.state is not None:
            self.strand = (False, self._packed_state(executor.spot.state))
        return outputs

    def _packed_state(self, state: Any) -> Any:
        return codec.pack_state(state) if self._packed and state is not None else state

    def pack(
        self, stage_number: int, outputs: list[Any], writer: codec.Writer, grow: Callable[[int], codec.Writer]
    ) -> tuple[Any, ...]:
        """The fields of the `Result` that the ticket's outputs make; what is not small lies where `writer` writes.

        If it does not fit there, `grow` makes memory of so many bytes. (A `Result` itself would cost.)
        """
        self.end_copy()
        self.executor.header[2] = PACKING
        if self.one_by_one[stage_number]:
            return self._pack_samples(outputs, writer, grow)
        single = self.program.stages[stage_number].single
        alone = single and len(outputs) == 1
        head: Any
        try:
            head, buffers = codec.pack(outputs[0] if alone else outputs)
        except NotPicklable:
            raise
        except Exception:
            if single:
                raise
            outputs = self._without_unpackable(outputs)
            head, buffers = codec.pack(outputs)
        count = 1 if alone else None
        big = len(head) > IN_MESSAGE
        if not buffers and not big:
            return head, (), count, 0, None, self.strand, *self._about()
        need = writer.need(buffers, len(head) + codec.ALIGN if big else 0)
        if need > writer.size:
            writer = grow(need)
        spans = tuple(writer.write(buffers))
        if big:
            head = (writer.put(head), len(head))
        return head, spans, count, need, None, self.strand, *self._about()

    def _without_unpackable(self, outputs: list[Any]) -> list[Any]:
        """The outputs that can be packed; those that cannot are errors in their places."""
        good: list[Any] = []
        faults: list[Fault] = []
        known = deque(self.executor.faults)
        counts = self.executor.counts
        number = 0
        for at, many in enumerate([1] * len(outputs) if counts is None else counts):
            while known and known[0][0] == number:
                faults.append((len(good), *known.popleft()[1:]))
            if many == FAILED_HERE:
                continue
            its = outputs[number : number + many]
            number += many
            try:
                for output in its:
                    codec.pack(output)
                good += its
            except Exception as error:
                self.note(error)
                faults.append((len(good), WHOLE, error))
                if counts is not None:
                    counts[at] = FAILED_HERE
        self.executor.faults = [*faults, *((len(good), position, error) for _, position, error in known)]
        return good

    def _about(self) -> tuple[Any, ...]:
        """The last fields of a `Result`: what was left out, the time, errors, and how many outputs positions have."""
        faults, self.executor.faults = self.executor.faults, []  # (tracebacks keep what their frames hold)
        sent = tuple([(before, position, tuple(failed(error))) for before, position, error in faults])
        counts = self.executor.counts
        uneven = None if counts is None or counts.count(1) == len(counts) else tuple(counts)
        return tuple(self.executor.skipped), self.seconds(), sent, uneven

    def _pack_samples(
        self, outputs: list[Any], writer: codec.Writer, grow: Callable[[int], codec.Writer]
    ) -> tuple[Any, ...]:
        """The same for outputs that are read one by one: by the next stage, or as samples of a stream."""
        try:
            heads, parts = codec.pack_many(outputs)
        except NotPicklable:
            raise
        except Exception:
            if self.strand is not None:
                raise  # (a stream that goes on behind what it could not hand on would hide the loss)
            outputs = self._without_unpackable(outputs)
            heads, parts = codec.pack_many(outputs)
        need = codec.need_many(writer, heads, parts)
        if need > writer.size:
            writer = grow(need)
        table = codec.write_many(writer, heads, parts)
        return None, (), len(outputs), writer.used, table, self.strand, *self._about()

    def seconds(self) -> Seconds:
        """How long the ticket has taken up to now."""
        reads = files.taken()
        read = None if reads is None else tuple(reads)
        return time.perf_counter() - self.began, self.executor.timings, self.began, read

    def note(self, error: BaseException) -> None:
        """Say in the error where it happened."""
        if isinstance(error, OutOfSharedMemory):
            return  # it says all there is to say
        if self.executor.header[2] == PACKING:
            at = "while its results were being packed"
        else:
            at = self.executor.where()
        note = f"headrace: {at}, in {self._where}" if self._where else f"headrace: {at}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        hint_at_limit(error)

    def fail(self, error: BaseException) -> Failed:
        """The error of a ticket, as it travels."""
        self.end_copy(error)
        self.note(error)
        return failed(error)

    def end_copy(self, error: BaseException | None = None) -> None:
        """End this process if it is a copy of the worker's that user code has forked; `error`: what it has raised."""
        if os.getpid() == self._process:
            return
        exits = isinstance(error, SystemExit)
        if not exits:
            import logging  # (The server that forks workers imports this module, and little else.)

            logging.getLogger("headrace").warning(
                "code of the pipe has forked %s (os.fork), and the copy went on: it is ended, and what it has made is "
                "not used; end a copy with os._exit() where its work is done", self._where, exc_info=error,
            )  # fmt: skip
        os._exit(not exits)  # (An ordinary exit would write once more what the worker has not written yet.)
