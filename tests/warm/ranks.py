"""A program on several ranks, each a fork, with the variables that torchrun gives them: `ranks.py 3 program.py args...`

As torchrun does, it ends the others when one fails, and then fails itself.
"""

import os
import signal
import socket
import sys
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def become(rank: int, ranks: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "none",
    }


def fork(ranks: int) -> bool:
    """True in a rank; where the ranks were started it waits for all of them, and leaves."""
    port = free_port()
    running = set()
    for rank in range(ranks):
        if (pid := os.fork()) == 0:
            become(rank, ranks, port)
            return True
        running.add(pid)
    failed = 0
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if status and not failed:
            failed = 1
            for other in running:
                os.kill(other, signal.SIGTERM)
    sys.exit(failed)


if fork(int(sys.argv[1])):
    del sys.argv[:2]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    __file__ = sys.argv[0]
    exec(compile(Path(__file__).read_text(), __file__, "exec"), globals())
