"""Inline and thread workers need nothing that only Linux has: the example runs where none of it is there.

This is Linux all the same; what other systems lack is taken away before headrace is imported.
"""

from pathlib import Path

import pytest

from tests.conftest import RunScript

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "threads.py"

MACOS = """
import fcntl, os, select, sys
sys.platform = "darwin"
for module, names in {
    os: ("memfd_create", "pidfd_open", "eventfd", "sched_getaffinity"),
    select: ("epoll",),
    fcntl: ("F_OFD_SETLK", "F_OFD_SETLKW"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
WINDOWS = (
    MACOS
    + """
import signal, socket, tempfile  # (later it would need modules that only Windows has)
sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios", "_posixshmem"):
    sys.modules[name] = None
for module, names in {
    os: ("fork", "getuid", "geteuid", "killpg", "register_at_fork", "setsid", "waitpid"),
    signal: ("SIGKILL", "SIGALRM", "pthread_sigmask", "setitimer"),
    socket: ("AF_UNIX", "send_fds", "recv_fds"),
}.items():
    for name in names:
        delattr(module, name)
"""
)
RUN = f"""
import runpy
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
import numpy as np
from headrace import Loader, Pipe, share
with Loader(Pipe.of({{"x": np.arange(100)}}).shuffle().batch(30), workers=2, kind="thread") as loader:
    assert sum(len(batch["x"]) for batch in loader) == 100
assert list(share([1, 2, 3])) == [1, 2, 3]
"""


@pytest.mark.parametrize("system", [MACOS, WINDOWS], ids=["macOS", "Windows"])
def test_threads_need_nothing_of_linux(system: str, run_script: RunScript) -> None:
    done = run_script(system + RUN)
    assert done.returncode == 0, done.stderr


def test_worker_processes_are_refused_with_what_to_do(run_script: RunScript) -> None:
    program = "from headrace import Loader, Pipe\nLoader(Pipe.of(range(4)), workers=2)"
    done = run_script(MACOS + program)
    assert done.returncode == 1
    assert "BadOption: worker processes need Linux" in done.stderr
    assert "kind='thread'" in done.stderr
