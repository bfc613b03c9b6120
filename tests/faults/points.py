"""Fault points: every moment at which a worker touches something that the consumer can see.

    points = Points()                    before the workers are forked: they share one count of moments
    points.arm(n)                        the worker that reaches moment n is killed there, once
    ...                                  run a loader with start_method="fork"
    points.reached                       how many moments the run had

A moment is: before and after a message is sent or received, before and after each write to a slot's header, before, in
the middle of and after each buffer that is put into a slot, before and after an array is made inside a slot. Nothing in
the engine knows of this: the worker's socket, slots and writer are wrapped in the process that forks.
"""

import mmap
import os
import signal
import struct
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.wire import codec
from headrace.engine.workers.process import child

_FIELD, _FIELDS = struct.Struct("<q"), struct.Struct("<qq")


class Points:
    """One count over all workers, in memory that survives them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)
        self.arm(-1)
        serve = child.serve
        points = self

        def watched(sock: Any, *rest: Any) -> None:
            serve(Socket(sock, points), *rest)  # type: ignore[arg-type]

        class MappedSlot(child.MappedSlot):  # type: ignore[name-defined,misc]
            def __init__(self, fd: int) -> None:
                super().__init__(fd)
                self.header = Header(self.header, points)  # type: ignore[has-type]

        patch.setattr(child, "serve", watched)
        patch.setattr(child, "MappedSlot", MappedSlot)
        put, allocate = codec.Writer.put, codec.Writer.allocate

        def put_in_halves(writer: Any, raw: Any) -> int:
            points.moment()
            size = raw.nbytes if isinstance(raw, memoryview) else len(raw)
            start = -(-writer.used // codec.ALIGN) * codec.ALIGN
            writer.memory[start : start + size // 2] = raw[: size // 2]
            points.moment()
            at = put(writer, raw)
            points.moment()
            return at

        patch.setattr(codec.Writer, "put", put_in_halves)
        patch.setattr(codec.Writer, "allocate", lambda *a: points.around(lambda: allocate(*a)))

    def arm(self, moment: int) -> None:
        _FIELDS.pack_into(self._shared, 0, 0, moment)

    @property
    def reached(self) -> int:
        return int(_FIELDS.unpack_from(self._shared, 0)[0])

    def moment(self) -> None:
        count, armed = _FIELDS.unpack_from(self._shared, 0)
        _FIELD.pack_into(self._shared, 0, count + 1)
        if count + 1 == armed:
            # Others count at the same time, and one of them may set the count back: once is once all the same.
            _FIELD.pack_into(self._shared, _FIELD.size, -1)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, work: Callable[[], Any]) -> Any:
        self.moment()
        done = work()
        self.moment()
        return done


class Socket:
    """The worker's socket, with a moment before and after each message."""

    def __init__(self, sock: Any, points: Points) -> None:
        self._sock = sock
        self._points = points

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def send(self, *args: Any) -> Any:
        return self._points.around(lambda: self._sock.send(*args))

    def sendmsg(self, *args: Any) -> Any:
        return self._points.around(lambda: self._sock.sendmsg(*args))

    def recvmsg_into(self, *args: Any) -> Any:
        return self._points.around(lambda: self._sock.recvmsg_into(*args))


class Header:
    """The header of a slot, with a moment before and after each write."""

    def __init__(self, fields: Any, points: Points) -> None:
        self._fields = fields
        self._points = points

    def __setitem__(self, field: int, value: int) -> None:
        self._points.moment()
        self._fields[field] = value
        self._points.moment()

    def __getitem__(self, field: int) -> int:
        return int(self._fields[field])
