"""The worker's side of a worker process: one loop over tickets, from start to end.

It waits on two things at once: its socket, and the life of the consumer. (End-of-file alone is not enough: forked
siblings inherit each other's ends.) Before each sample it writes the sample's position into the header of the slot it
was lent, so that after its death the consumer knows where it was.
"""

import contextlib
import ctypes
import faulthandler
import marshal
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from headrace.engine.program import Program
from headrace.engine.wire import codec
from headrace.engine.wire import packets as wire
from headrace.engine.wire.failures import failed
from headrace.engine.wire.messages import DONE, FAILED, READY, RESULT, RETIRED, STOP, TICKETS, SentTicket
from headrace.engine.wire.unshipping import unship
from headrace.engine.workers.process import heap, threads
from headrace.engine.workers.process.handles import before_exit, received
from headrace.engine.workers.task import IN_MESSAGE, Task
from headrace.memory.arena import HEADER, MappedSlot, allocate, lease_type, map_readonly, overflow_size
from headrace.op import place

TOGETHER = 1e-3
"""Seconds for which a reply may wait for the next one."""
PR_SET_PDEATHSIG = 1
"""Dies with the thread that started it, even inside native code that holds the interpreter; so only asked for where
that is the main thread of the consumer."""
HELD = (signal.SIGINT, signal.SIGTERM)
"""Signals that wait while a process is being started."""


class Unwanted(Exception):
    """Nobody reads what this worker says any more: the consumer is gone, or has left what it was making."""


class Child:
    """One worker process, from inside."""

    def __init__(self, sock: socket.socket, number: int, program: Program) -> None:
        self.sock = sock
        self.slots: dict[int, MappedSlot] = {}
        self.task = Task(program, f"worker {number} (process {os.getpid()})")
        self._leases: list[tuple[int, weakref.ref[Any]]] = []
        """Slots of the stage before that the ticket at hand reads, and whether anybody looks into them."""
        self._overflow = -1
        """The memory of a result that did not fit."""

    def handle_all(self, tickets: list[tuple[Any, ...]], short: bool) -> None:
        """Run tickets that came together; where they are short as a rule, replies wait a little for each other."""
        replies: list[bytes] = []
        size = 0
        since = time.perf_counter()
        for left, ticket in zip(range(len(tickets) - 1, -1, -1), tickets, strict=True):
            reply, fd = self.handle(ticket)
            if fd >= 0:
                if replies:
                    _send(self.sock, replies)
                _send(self.sock, [reply], fd)
                replies, size = [], 0
                continue
            replies.append(reply)
            size += len(reply)
            if not left or not short or size > IN_MESSAGE or time.perf_counter() - since > TOGETHER:
                _send(self.sock, replies)
                replies, size = [], 0
                since = time.perf_counter()
        if replies:
            _send(self.sock, replies)

    def handle(self, ticket: tuple[Any, ...]) -> tuple[bytes, int]:
        """Run one ticket; the packed reply, and a descriptor that goes with it or -1."""
        # (The fields of a `SentTicket`, whose making would cost.)
        seq, stage, epoch, number, payload, lent, avoid, room, forget, _ = ticket
        for gone in forget:
            self.slots.pop(gone, None)
        slot = self.slots[lent]
        header = self.task.executor.header = slot.header
        header[2] = 0
        header[1] = -1
        header[0] = seq
        writer = codec.Writer(slot.view[: room[1]] if room else slot.view, slot.address, room[0] if room else HEADER)
        place.allocate, place.extend = writer.allocate, writer.extend if room else None
        result: tuple[Any, ...]
        held: tuple[int, ...] = ()
        self._overflow = -1
        try:
            outputs = self.task.run(stage, epoch, number, payload, avoid, self._load)
            kind, result = RESULT, self.task.pack(stage, outputs, writer, self._grow)
            del outputs
            # Views of the stage before that user code still holds: their slots must not be used again.
            if self._leases:
                held = tuple(number for number, alive in self._leases if alive() is not None)
        except BaseException as error:
            kind, result = FAILED, tuple(self.task.fail(error))
            if self._overflow >= 0:
                os.close(self._overflow)
                self._overflow = -1
        finally:
            place.allocate = place.extend = None
            self._leases.clear()
        header[2] = DONE
        return marshal.dumps((kind, seq, result, held)), self._overflow

    def _load(self, refs: Iterable[tuple[int, int, int, int, int, int]]) -> list[Any]:
        """Samples of the stage before, out of their slots."""
        samples: list[Any] = []
        for slot, offset, size, writer_seq, first, stop in refs:
            mapped = self.slots[slot]
            if mapped.table[0] != writer_seq:
                mapped.table = (writer_seq, codec.read_table(mapped.view, offset, size))
            exporter = lease_type(mapped.size).from_buffer(mapped.map)
            self._leases.append((slot, weakref.ref(exporter)))
            samples += codec.load_many(memoryview(exporter).cast("B"), mapped.table[1], first, stop)
            del exporter
        return samples

    def _grow(self, need: int) -> codec.Writer:
        """Memory of its own, for a result that does not fit into its slot."""
        fd = allocate(overflow_size(need))
        try:
            mapped = MappedSlot(os.dup(fd))
        except OSError:
            os.close(fd)
            raise
        self._overflow = fd
        return codec.Writer(mapped.view, mapped.address, HEADER)


def serve(sock: socket.socket, consumer: int, number: int, program: Program, extra: dict[str, Any]) -> None:
    """Run tickets until the consumer says stop, or is gone."""
    reset_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR2, file=extra["dump"], all_threads=True)
    heap.keep()
    threads.limit_tokenizers()
    if extra["bound"]:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(consumer,), name="headrace-watch", daemon=True).start()
    try:
        init: Callable[[int], None] | None = extra.get("worker_init")
        if init is not None:
            init(number)
        child = Child(sock, number, program)
    except BaseException as error:
        error.add_note(f"headrace: while worker {number} was starting")
        with contextlib.suppress(Unwanted):
            _send(sock, [_start_failed(error)])
        return
    try:
        _send(sock, [marshal.dumps((READY, os.getpid()))])
        _run_tickets(child, sock, extra.get("recycle"), extra.get("recycle_memory"))
    except Unwanted:
        pass
    finally:
        child.task.executor.close()


def _run_tickets(child: Child, sock: socket.socket, recycle: int | None, limit: int | None) -> None:
    handled = 0
    while True:
        try:
            data, fds = wire.receive(sock)
        except ConnectionResetError:
            return
        if not data:
            return
        message = marshal.loads(data)
        if message[0] == STOP:
            return
        assert message[0] == TICKETS
        if fds:
            for slot, fd in zip([slot for sent in message[1] for slot in SentTicket._make(sent).new], fds, strict=True):
                child.slots[slot] = MappedSlot(fd)
        child.handle_all(message[1], message[2])
        if not handled:
            # An error must be able to travel even when no more files can be opened, not those of modules either; but
            # the first batch does not wait for this.
            import headrace.engine.wire.by_value  # noqa: F401
        handled += len(message[1])
        if (recycle is not None and handled >= recycle) or (limit is not None and private_memory() > limit):
            # Ask to be replaced; tickets that are already on their way here are run first.
            _send(sock, [marshal.dumps((RETIRED, handled))])
            recycle = limit = None


def _send(sock: socket.socket, replies: list[bytes], fd: int = -1) -> None:
    try:
        wire.send(sock, marshal.dumps(replies), (fd,) if fd >= 0 else ())
    except (BrokenPipeError, ConnectionResetError):
        raise Unwanted from None
    finally:
        if fd >= 0:
            os.close(fd)


def _start_failed(error: BaseException) -> bytes:
    return marshal.dumps((FAILED, -1, tuple(failed(error)), ()))


def _watch(consumer: int) -> None:
    # A thread of its own: the main one may be in a sample that takes hours while the consumer is killed.
    wire.readable(consumer, None)
    os._exit(0)


def private_memory() -> int:
    with open("/proc/self/statm") as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return (resident - shared) * os.sysconf("SC_PAGESIZE")


def reset_signals() -> None:
    # Ctrl-C reaches the whole foreground group: the consumer decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def main(consumer: int, sock: int, dump: int, bound: bool) -> None:
    """Entry of a worker that was started as a new interpreter."""
    reset_signals()
    connection = socket.socket(fileno=sock)
    open_and_serve(connection, consumer, dump, bound)
    exit_process(0)


def open_and_serve(
    connection: socket.socket,
    consumer: int,
    dump: int,
    bound: bool = False,
    surround: Callable[[str, dict[str, str]], None] | None = None,
) -> None:
    """Wait for a program, open it, and run its tickets; `surround` takes over the consumer's folder and environment."""
    packed, fds = wire.receive(connection)
    if not packed:
        return  # nobody needs this worker
    number, authkey, surroundings = marshal.loads(packed)
    shipped, *handles = fds
    try:
        if surround is not None:
            surround(*surroundings)
        with received(handles, authkey):
            program, extra = unship(memoryview(map_readonly(shipped)))
    except BaseException as error:
        note = f"headrace: while the pipe was being opened in worker {number}; is a module missing there?"
        error.add_note(note)
        with contextlib.suppress(Unwanted):
            _send(connection, [_start_failed(error)])
        return
    finally:
        os.close(shipped)
    serve(connection, consumer, number, program, {**extra, "dump": dump, "bound": bound})


def fork(run: Callable[[], None]) -> int:
    """Fork this process: the new one does nothing but `run`, and ends. Gives its number."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            heap.inherit()
            run()
            code = 0
        except SystemExit as left:
            # What `sys.exit(...)` means, as the interpreter reads it.
            code = int(left.code or 0) & 0xFF if left.code is None or isinstance(left.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            # Whatever happens, this copy of the program must not run on.
            exit_process(code)
    return pid


def exit_status(pid: int) -> int | None:
    """How a child of this process has ended."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None  # somebody else has waited for it


def exit_process(code: int) -> None:
    """Exit without the clean-up of whatever process this one was forked from, but not without its output."""
    try:
        before_exit()
        flush()
    finally:
        os._exit(code)


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a program may run without
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
