"""The line between a consumer and the server of a shared pool: a local socket, and what is said over it.

consumer -> server   HELLO key            I run the program with this key
                     PROGRAM key, bytes   here it is
                     ASK tickets          run these
                     FREE slots           nobody here looks into them any more
                     DROP epoch           I left this epoch: forget what you have not begun
                     COUNT | STUCK | STACK worker | REPLACE worker
server -> consumer   NEED                 send the program
                     OPENED               go on
                     TOLD replies, slots  (+ the descriptors of slots that are new to you)
                     GONE slots           they will not be lent again
                     BROKEN error         the workers are of no use any more
                     ANSWER anything
"""

import marshal
import os
import socket
from typing import Any

from headrace.engine.program import Program
from headrace.engine.wire import packets as wire
from headrace.errors import WorkerDied

HELLO, PROGRAM, ASK, FREE, DROP, COUNT, STUCK, STACK, REPLACE = range(9)
NEED, OPENED, TOLD, GONE, BROKEN, ANSWER = range(20, 26)
DROPPED, PAST = 30, 31
"""Replies to a ticket that was dropped before it was begun, and to one for a block after the end of its strand."""
OPENING = 120.0
"""Seconds for the server to open the program; it may have to import large modules first."""
SOCKET = "socket"
SENDING = 1 << 20


def key_of(program: Program) -> str:
    """What has to be the same for all consumers of a pool."""
    groups = [(stage.feed, stage.group, stage.drop_last) for stage in program.stages]
    told = (program.pipe.fingerprint(), program.seed, program.strands, program.block, program.keyed, program.skips)
    return repr((*told, groups))


def connect(folder: str) -> socket.socket:
    """A line to the server of the pool in this folder."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDING)
        sock.connect(os.path.join(folder, SOCKET))
    except OSError as error:
        sock.close()
        raise WorkerDied(f"there is no shared pool at {folder} ({error}); start one, and keep it open") from None
    return sock


def ask(folder: str, *question: Any) -> Any:
    """One question to the server of a pool, by somebody who is no consumer."""
    with connect(folder) as sock:
        sock.settimeout(OPENING)
        wire.send(sock, marshal.dumps(question))
        data, _ = wire.receive(sock)
    if not data:
        raise WorkerDied(ENDED)
    return marshal.loads(data)[1]


ENDED = "the shared pool has ended: whoever started it has closed it, or is gone"
