"""The channel between a consumer and the server of a shared pool: a local socket, and the messages over it.

consumer -> server   HELLO key               I run the program with this key
                     PROGRAM key, bytes      the program
                     ASK tickets             run these
                     FREE slots              I have no views of these any more
                     DROP epoch              I left this epoch: forget the tickets that were not begun
                     COUNT | STUCK | STACK worker | REPLACE worker
server -> consumer   NEED                    send the program
                     OPENED                  the program is open: send tickets
                     REPLIES replies, slots  (+ the descriptors of slots that are new to this consumer)
                     GONE slots              these will not be lent again
                     BROKEN error            the workers have failed for good, or your message made no sense
                     ANSWER anything         to COUNT, STUCK, STACK, REPLACE

The socket is abstract: its name is in no file system, so nothing of it is left when a process is killed.
"""

import marshal
import os
import socket
import struct
from typing import Any

from headrace.engine.program import Program
from headrace.engine.wire import packets as wire
from headrace.engine.workers.process.start import awaited
from headrace.errors import WorkerDied, WorkerStuck

HELLO, PROGRAM, ASK, FREE, DROP, COUNT, STUCK, STACK, REPLACE = range(9)
NEED, OPENED, REPLIES, GONE, BROKEN, ANSWER = range(20, 26)
DROPPED, PAST_END = 30, 31
"""Kinds of replies: the ticket was dropped before it was begun; it is for a block after the end of its strand."""
OPENING = 120.0
"""Seconds for the server to open the program; it may have to import large modules first."""
SILENCE = 1.0
"""Seconds without an answer after which a consumer checks whether the server is stopped."""
SENDING = 1 << 20
"""Bytes of a socket's send buffer."""
ENDED = "the shared pool has ended: whoever started it has closed it, or is gone"
_CREDENTIALS = struct.Struct("3i")


def key_of(program: Program) -> str:
    """Everything that has to be the same for all consumers of a pool, as one string."""
    groups = [(stage.feed, stage.group, stage.drop_last) for stage in program.stages]
    whole = (program.pipe.fingerprint(), program.seed, program.strands, program.block, program.keyed, program.skips)
    return repr((*whole, groups))


def peer(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end. (For a consumer: the process that has listened last, which is the server.)"""
    pid, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


def connect(address: str) -> socket.socket:
    """A connection to the server of the pool with this address."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDING)
        sock.connect(f"\0{address}")
        if peer(sock)[1] != os.getuid():
            raise PermissionError("it belongs to another user")
    except OSError as error:
        sock.close()
        raise WorkerDied(f"there is no shared pool at {address} ({error}); start one, and keep it open") from None
    return sock


def listen(name: str) -> socket.socket:
    """The socket of a new pool. (Its server listens again, so that consumers see the pid of the server.)"""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"\0{name}")
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def await_word(sock: socket.socket, timeout: float | None) -> None:
    """Wait until there is a message of the server; if its process is stopped, for `timeout` at most."""
    within = OPENING if timeout is None else timeout
    pid, _ = peer(sock)
    if not awaited(sock, pid, min(within, SILENCE), within, OPENING):
        raise WorkerStuck(
            f"the server of the shared pool (process {pid}) has not answered within {within} seconds; is it stopped?"
        )


def ask(address: str, *question: Any, timeout: float | None = None) -> Any:
    """Ask the server of a pool one question, over a connection of its own."""
    with connect(address) as sock:
        try:
            wire.send(sock, marshal.dumps(question))
            await_word(sock, timeout)
            data, _ = wire.receive(sock)
        except (BrokenPipeError, ConnectionResetError):
            data = b""
    if not data:
        raise WorkerDied(ENDED)
    return marshal.loads(data)[1]
