"""Task: running one ticket, in whatever thread or process that is, and naming the place where it fails.

    work (stage, epoch, number, payload)  --run-->   Made: outputs that are not packed yet
                                          --pack-->  the result, as it travels: in the message, or in a slot
                                          --fail-->  the error, with a note that says op, position and worker

Whatever user code raises is the answer of its ticket: `sys.exit()`, an interrupt that it raises itself and exceptions
that are no `Exception` too, as they would be without workers.
"""

import pickle
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.engine.executor import Executor
from headrace.engine.program import Program
from headrace.engine.wire import codec
from headrace.engine.wire.failures import failed
from headrace.engine.wire.messages import PACKING, Failed, Result, Seconds, Skip, Work
from headrace.errors import hint_at_limit
from headrace.memory.arena import OutOfSharedMemory
from headrace.observe.meter import files

IN_MESSAGE = 32 * 1024
"""A head larger than this goes into the slot."""
Load = Callable[[Any], list[Any]]
"""Samples of the stage before, out of what a ticket says about where they are."""


class Made(NamedTuple):
    """What a ticket made."""

    outputs: list[Any]
    many: bool
    """Its outputs are read one by one: by the next stage, or as samples of a stream."""
    alone: bool
    """It is one output by itself, such as a batch."""
    skipped: tuple[Skip, ...]
    strand: tuple[bool, Any] | None
    """Of a block of a stream: whether the stream has ended, and where it stands now."""
    began: float


class Task:
    """Runs the tickets of one program, one after the other.

    `packed` says that payloads have travelled: states of streams and listed items are bytes, there and back. `inline`:
    this is the caller's own thread, where Ctrl-C may come at any moment and must go up at once.
    """

    def __init__(
        self, program: Program, where: str, *, seeds: bool = True, packed: bool = True, inline: bool = False
    ) -> None:
        self.program = program
        self.executor = Executor(program, seeds, Exception if inline else BaseException)
        self._where = where
        self._packed = packed
        last = program.last.number
        self._many = [stage.feed == "strand" or stage.number != last for stage in program.stages]

    def run(self, work: Work, load: Load) -> Made:
        """The outputs of a ticket; `load` brings the samples that it refers to."""
        began = time.perf_counter()
        executor, stage, payload = self.executor, self.program.stages[work.stage], work.payload
        strand: tuple[bool, Any] | None = None
        if stage.feed == "strand":
            name, state = payload
            if self._packed and state is not None:
                state = codec.unpack_state(state)
            outputs, ended, state = executor.strand(work.epoch, name, work.number, state)
            strand = (ended, codec.pack_state(state) if self._packed else state)
        else:
            if stage.feed == "refs":
                refs, base, stride = payload
                payload = (load(refs), base, stride)
            elif stage.feed == "listed" and self._packed:
                payload = pickle.loads(payload)
            outputs = executor.run(work.stage, work.epoch, work.number, payload, work.avoid)
        alone = stage.single and len(outputs) == 1
        return Made(outputs, self._many[work.stage], alone, tuple(executor.skipped), strand, began)

    def pack(self, made: Made, writer: codec.Writer, grow: Callable[[int], codec.Writer]) -> Result:
        """The result, as it travels: what is not small lies where `writer` writes.

        If it does not fit there, `grow` makes memory of so many bytes.
        """
        self.executor.header[2] = PACKING
        if made.many:
            heads, parts = codec.pack_many(made.outputs)
            need = codec.need_many(writer, heads, parts)
            if need > writer.size:
                writer = grow(need)
            table = codec.write_many(writer, heads, parts)
            told = (made.skipped, self.seconds(made))
            return Result(None, (), len(made.outputs), writer.used, table, made.strand, *told)
        head: Any
        head, buffers = codec.pack(made.outputs[0] if made.alone else made.outputs)
        big = len(head) > IN_MESSAGE
        count = 1 if made.alone else -1
        if not buffers and not big:
            return Result(head, (), count, 0, None, None, made.skipped, self.seconds(made))
        need = writer.need(buffers, len(head) + codec.ALIGN if big else 0)
        if need > writer.size:
            writer = grow(need)
        spans = tuple(writer.write(buffers))
        if big:
            head = (writer.put(head), len(head))
        return Result(head, spans, count, need, None, None, made.skipped, self.seconds(made))

    def seconds(self, made: Made) -> Seconds:
        """How long the ticket has taken up to now."""
        reads = files.taken()
        told = None if reads is None else (reads.bytes, reads.opens, reads.requests)
        return time.perf_counter() - made.began, self.executor.timings, made.began, told

    def note(self, error: BaseException) -> None:
        """Say in the error where it happened."""
        if isinstance(error, OutOfSharedMemory):
            return  # it says all there is to say
        if self.executor.header[2] == PACKING:
            at = "while its results were being packed"
        else:
            at = self.executor.where()
        note = f"headrace: {at}, in {self._where}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        hint_at_limit(error)

    def fail(self, error: BaseException) -> Failed:
        """The error of a ticket, as it travels."""
        self.note(error)
        return failed(error)
