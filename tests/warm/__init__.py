"""Programs that start in milliseconds although they import torch: forks of a process that has imported it once.

    warm.run(path, args, folder, timeout=60)           as `python path args...`, in a session of its own, in that folder
    warm.torchrun(3, path, args, folder, timeout=60)   as `torchrun --nproc-per-node 3 path args...`

Importing torch costs more than most programs that tests write. Such a program may not be about the start of an
interpreter: modules that are loaded, tracebacks, the command line. Of headrace nothing is imported before the fork.

    pytest ── path, arguments, folder, environment, stdout and stderr ──> server ── fork ──> the program, a session
           <─────────────────── its pid, then its exit code ───────────────

The server lives as long as the pytest that it serves, and ends when its socket is closed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.depth import DEPTH

SRC = Path(__file__).resolve().parents[2] / "src"
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A process with threads must not fork: libraries start none."""
LARGEST = 1 << 18
"""Bytes of a request: mostly the environment."""


class Server:
    """The process that forks, seen from pytest."""

    now: "Server | None" = None
    lock = threading.Lock()

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "server.py"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ALONE, "PYTHONPATH": str(SRC)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @classmethod
    def get(cls) -> "Server":
        if cls.now is None:
            cls.now = cls()
        return cls.now


def run(
    path: Path,
    args: Sequence[object],
    folder: Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
    begun: Callable[[int], None] = lambda pid: None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end, in this environment; `begun` is told its process number.

    Its path is that of the server, whatever PYTHONPATH says. At the time-out its session is killed.
    """
    words = [str(path), *map(str, args)]
    wanted = {**(ALONE | os.environ if env is None else env), "PYTHONPATH": str(SRC)}
    request = json.dumps({"argv": words, "folder": str(folder), "env": wanted}).encode()
    with Server.lock, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        channel = Server.get().socket
        socket.send_fds(channel, [request], [out.fileno(), err.fileno()])
        channel.settimeout(60)  # (the server may still be importing)
        pid = _number(channel)
        begun(pid)
        channel.settimeout(timeout)
        try:
            code = _number(channel)
        except BaseException as error:
            os.killpg(pid, signal.SIGKILL)
            channel.settimeout(None)
            _number(channel)
            if not isinstance(error, TimeoutError):
                raise
            raise subprocess.TimeoutExpired(words, timeout, _text(out), _text(err)) from None
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def torchrun(
    ranks: int, path: Path, args: Sequence[object], folder: Path, timeout: float
) -> "subprocess.CompletedProcess[str]":
    """A program on several ranks of this machine; torchrun itself starts them under the full counts."""
    if DEPTH != "deep":
        return run(Path(__file__).parent / "ranks.py", [ranks, path, *args], folder, timeout)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(path)]
    return subprocess.run(
        [*command, *map(str, args)],
        env={**os.environ, **ALONE, "PYTHONPATH": str(SRC)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _number(channel: socket.socket) -> int:
    said = channel.recv(64)
    if not said:
        Server.now = None
        raise ConnectionError("the process that forks warm programs has ended; its output says why")
    return int(said)


def _text(file: "tempfile._TemporaryFileWrapper[str]") -> str:
    file.seek(0)
    return file.read()
