"""The wire: one message over a socket, whatever its size and however many descriptors go with it.

A message that is too large for a packet travels as memory of its own; descriptors that are too many for one packet go
ahead in packets without a message. A packet is whole or not there at all, so a death on either side never leaves half
a message; both sides read until the message itself has come.
"""

import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Sequence

from headrace.memory.arena import memfd

SPILL = 1 << 16
"""A message larger than this travels as memory of its own."""
_MOST_FDS = 64
"""Descriptors in one packet; the system takes 253 at the most."""
_SPILLED, _MORE = b"S", b"M"
_ANCILLARY = socket.CMSG_LEN(4 * (_MOST_FDS + 1))
# Plain numbers: the arithmetic of enums costs as much as a system call.
NOW = int(socket.MSG_DONTWAIT)
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_CUT_OFF = int(socket.MSG_CTRUNC)


class _Landing(threading.local):
    """Where packets of this thread arrive: memory made anew for the largest one costs more than reading a usual one."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(SPILL))


_landing = _Landing()


def send(sock: socket.socket, message: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message."""
    while len(fds) > _MOST_FDS:
        socket.send_fds(sock, [_MORE], fds[:_MOST_FDS])
        fds = fds[_MOST_FDS:]
    if len(message) > SPILL:
        spilled = memfd()
        try:
            with open(spilled, "wb", closefd=False) as file:
                file.write(message)
            socket.send_fds(sock, [_SPILLED], [spilled, *fds])
        finally:
            os.close(spilled)
    elif fds:
        socket.send_fds(sock, [message], fds)
    else:
        sock.send(message)


def receive(sock: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """The next message and its descriptors; an empty one when the other side is gone."""
    ahead: list[int] = []
    memory = _landing.memory
    while True:
        # (socket.recv_fds of Python 3.11 leaves the flags out.)
        size, ancillary, told, _ = sock.recvmsg_into((memory,), _ANCILLARY, flags | _CLOSE_ON_EXEC)
        data = bytes(memory[:size])
        if not ancillary and data != _SPILLED and not told & _CUT_OFF:
            return data, ahead
        fds = _descriptors(ancillary)
        if told & _CUT_OFF:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "this process has too many open files to take the next batch; raise ulimit -n")
        if data == _SPILLED:
            data = _read(fds.pop(0))
        ahead += fds
        if data != _MORE:
            return data, ahead


def readable(fd: int, seconds: float | None) -> bool:
    """Whether there is something to read, or an end to notice, within so many seconds; None: however long it takes."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, packed in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(packed) // 4}i", packed[: len(packed) // 4 * 4])
    return fds


def _read(fd: int) -> bytes:
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read()
