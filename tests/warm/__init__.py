"""Programs that start in milliseconds although they import torch: forks of a process that has imported it once.

    warm.run(path, args, folder, timeout=60)           as `python path args...`, in a session of its own, in that folder
    warm.start(path, args, folder)                     the same, without waiting for it: a Program
    warm.run(warm.MODULE, ["headrace.cli", ...], ...)   as `python -m headrace.cli ...`
    warm.torchrun(3, path, args, folder, timeout=60)   as `torchrun --nproc-per-node 3 path args...`

Importing torch costs more than most programs that tests write. Such a program may not be about the start of an
interpreter: modules that are loaded, tracebacks, the command line. Of headrace nothing is imported before the fork.

    pytest ── path, arguments, folder, environment, stdout, stderr, a socket ──> server ── fork ──> the program
           <──────────────── on that socket: its pid, then its exit code ───────

The server lives as long as the pytest that it serves, and ends when its socket is closed.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from tests.depth import DEPTH

SRC = Path(__file__).resolve().parents[2] / "src"
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""A process with threads must not fork: libraries start none."""
MODULE = Path(__file__).parent / "module.py"
RANKS = Path(__file__).parent / "ranks.py"
LARGEST = 1 << 18
"""Bytes of a request: mostly the environment."""


class Server:
    """The process that forks, seen from pytest."""

    now: "Server | None" = None

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
        atexit.register(self.close)

    def close(self) -> None:
        """Ends it, once its programs have ended."""
        self.socket.close()
        self.process.wait()

    @classmethod
    def get(cls) -> "Server":
        if cls.now is None:
            cls.now = cls()
        return cls.now


class Program:
    """A program that was started; of subprocess.Popen it has what is needed here."""

    def __init__(self, args: Sequence[str], folder: Path, env: Mapping[str, str], out: int, err: int) -> None:
        self.args = args
        self.returncode: int | None = None
        request = json.dumps({"argv": args, "folder": str(folder), "env": {**env, "PYTHONPATH": str(SRC)}})
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(Server.get().socket, [request.encode()], [out, err, theirs.fileno()])
        self.pid = self._number(60)  # (the server may still be importing)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except TimeoutError:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; raises TimeoutError."""
        if self.returncode is None:
            self.returncode = self._number(timeout)
            self._asked.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self, timeout: float | None) -> int:
        self._asked.settimeout(timeout)
        try:
            said = self._asked.recv(64)
        except BlockingIOError:
            raise TimeoutError from None
        if not said:
            Server.now = None
            raise ConnectionError("the process that forks warm programs has ended; its output says why")
        return int(said)


class Piped(Program):
    """One whose output is read while it runs."""

    def __init__(self, args: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        ours, theirs = zip(os.pipe(), os.pipe(), strict=True)
        self.stdout: IO[str] = os.fdopen(ours[0])
        self.stderr: IO[str] = os.fdopen(ours[1])
        try:
            super().__init__(args, folder, env, *theirs)
        finally:
            for end in theirs:
                os.close(end)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for its end; what it has written and was not read yet. Once for a program."""
        with ThreadPoolExecutor(2) as readers, self.stdout, self.stderr:
            both = [readers.submit(end.read) for end in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except BaseException:
                os.killpg(self.pid, signal.SIGKILL)
                raise
            return both[0].result(), both[1].result()


def start(path: Path, args: Sequence[object], folder: Path, env: Mapping[str, str] | None = None) -> Piped:
    """Starts a program, in this environment. Its path is that of the server, whatever PYTHONPATH says."""
    return Piped([str(path), *map(str, args)], folder, ALONE | os.environ if env is None else env)


def run(
    path: Path,
    args: Sequence[object],
    folder: Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
    begun: Callable[[int], None] = lambda pid: None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end; `begun` is told its process number. At the time-out its session is killed."""
    words = [str(path), *map(str, args)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        program = Program(words, folder, ALONE | os.environ if env is None else env, out.fileno(), err.fileno())
        begun(program.pid)
        try:
            code = program.wait(timeout)
        except BaseException as error:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if not isinstance(error, TimeoutError):
                raise
            raise subprocess.TimeoutExpired(words, timeout, _text(out), _text(err)) from None
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def torchrun(
    ranks: int, path: Path, args: Sequence[object], folder: Path, timeout: float
) -> "subprocess.CompletedProcess[str]":
    """A program on several ranks of this machine; torchrun itself starts them under the full counts."""
    if DEPTH != "deep":
        return run(RANKS, [ranks, path, *args], folder, timeout)
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


def _text(file: "tempfile._TemporaryFileWrapper[str]") -> str:
    file.seek(0)
    return file.read()
