"""Nothing is left for the garbage collector to close, no socket and no process: under `python -W error` it says so."""

import errno
import os
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process import fork_server, start
from tests.conftest import RunScript
from tests.depth import depth

PROGRAM = """
import os, signal, sys
import headrace
from headrace import Loader, Pipe

method, door = sys.argv[1:]

def raises(x):
    if x == 21:
        raise KeyError(x)
    return x

def dies_once(x):
    if x == 21 and os.getpid() != consumer and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return x

class Samples:
    def __init__(self, function):
        self.function = function
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return self.function(index)

def loader(function=abs):
    if door == "Loader":
        return Loader(Pipe.of(range(40)).map(function).batch(4), workers=2, start_method=method)
    return headrace.DataLoader(Samples(function), batch_size=4, num_workers=2, multiprocessing_context=method)

consumer = os.getpid()
if __name__ == "__main__":
    assert len(list(loader())) == 10
    next(iter(loader()))
    assert len(list(loader(dies_once))) == 10 and os.path.exists("died")
    try:
        list(loader(raises))
    except KeyError:
        pass
    batches = iter(loader())
    next(batches)
    if os.fork() == 0:
        sys.exit()
    os.wait()
    assert len(list(batches)) == 9
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    assert len(list(loader())) == 10
    held = iter(loader())
    next(held)
    sys.exit("left in the middle")
"""


LOADER = [("Loader", method) for method in ("fork", "server", "spawn", "forkserver")]
TORCHS = [("DataLoader", method) for method in ("fork", "spawn", "forkserver")]


@pytest.mark.parametrize(("door", "method"), depth([*LOADER[:3], TORCHS[0]], [*LOADER, *TORCHS]))
def test_a_program_leaves_nothing_open_whatever_happens_in_it(door: str, method: str, run_script: RunScript) -> None:
    if door == "DataLoader":
        pytest.importorskip("torch", reason="torch's DataLoader")
    done = run_script(PROGRAM, method, door, env={"PYTHONWARNINGS": "error::ResourceWarning"})
    assert (done.returncode, "left in the middle" in done.stderr) == (1, True), done.stderr
    assert "ResourceWarning" not in done.stderr, done.stderr


STEPS = {"fork": ("memfd", "pidfd_open"), "server": ("memfd", "interpreter"), "spawn": ("memfd", "interpreter")}


@pytest.mark.parametrize(("method", "step"), [(method, step) for method in STEPS for step in STEPS[method]])
def test_a_start_that_fails_leaves_nothing_open(
    method: str, step: str, monkeypatch: pytest.MonkeyPatch, no_new_fds: None
) -> None:
    def refused(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    fork_server.COMMON.close()
    with monkeypatch.context() as patch:
        for module in (os, start, fork_server):
            if hasattr(module, step):
                patch.setattr(module, step, refused)
        with pytest.raises(OSError, match="Too many open files"):
            list(Loader(Pipe.of(range(4)), workers=1, start_method=method))  # type: ignore[arg-type]
    fork_server.COMMON.close()
