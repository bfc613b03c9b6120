"""A worker finds what its consumer has now - folder, environment, modules - however long ago its server was started."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process import fork_server, start
from headrace.engine.workers.process.start import signals_held
from tests.conftest import RunScript

METHODS = ("fork", "server", "forkserver", "spawn")


def read(name: str) -> str:
    return Path(name).read_text()


def variable(name: str) -> str | None:
    return os.environ.get(name)


def warm() -> None:
    with Loader(Pipe.of([1, 2]), workers=1) as loader:
        assert list(loader) == [1, 2]


@pytest.mark.parametrize("method", METHODS)
def test_relative_files_are_those_of_the_consumers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    warm()
    (tmp_path / "here").write_text("found")
    monkeypatch.chdir(tmp_path)
    with Loader(Pipe.of(["here"]).map(read), workers=1, start_method=method) as loader:  # type: ignore[arg-type]
        assert list(loader) == ["found"]


GONE = """
import os, sys
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
assert sys.path[0] == "", "modules are looked for in the working folder"
from headrace import Loader, Pipe

def double(x):
    return 2 * x

with Loader(Pipe.of(range(6)).map(double).batch(2), workers=2, start_method=sys.argv[1]) as loader:
    print(list(loader))
"""


@pytest.mark.skipif(
    (3, 13, 0) <= sys.version_info < (3, 13, 3), reason="there, importing socket fails in a deleted folder (gh-130932)"
)
@pytest.mark.parametrize("method", METHODS)
def test_a_program_from_standard_input_in_a_deleted_folder_gets_its_batches(method: str, run_script: RunScript) -> None:
    done = run_script(GONE, method, piped=True)
    assert (done.stdout, done.stderr) == ("[[0, 2], [4, 6], [8, 10]]\n", "")


ANOTHER_SOCKET = """
import os, sys
os.mkdir("work")
os.chdir("work")
with open("socket.py", "w") as file:
    file.write("raise ImportError('this is not the socket of Python')")
from headrace import Loader, Pipe

if __name__ == "__main__":
    with Loader(Pipe.of(range(4)).map(abs), workers=1, start_method=sys.argv[1]) as loader:
        print(list(loader))
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_takes_no_module_from_a_folder_in_which_the_consumer_looks_for_none(
    method: str, run_script: RunScript
) -> None:
    done = run_script(ANOTHER_SOCKET, method)
    assert (done.stdout, done.stderr) == ("[0, 1, 2, 3]\n", "")


@pytest.mark.parametrize("method", METHODS)
def test_the_environment_is_the_consumers(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setenv("HEADRACE_TEST_OLD", "old")
    warm()
    monkeypatch.delenv("HEADRACE_TEST_OLD")
    monkeypatch.setenv("HEADRACE_TEST_NEW", "new")
    names = ["HEADRACE_TEST_OLD", "HEADRACE_TEST_NEW"]
    with Loader(Pipe.of(names).map(variable), workers=1, start_method=method) as loader:  # type: ignore[arg-type]
        assert list(loader) == [None, "new"]


THREADED = """
import sys, threading
if "HEADRACE_TEST_CONSUMER" not in sys.modules:
    threading.Thread(target=threading.Event().wait, daemon=True).start()

def same(x):
    return x
"""


@pytest.fixture
def threaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that starts a thread when anybody but this process imports it."""
    name = f"headrace_threaded_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(THREADED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "HEADRACE_TEST_CONSUMER", sys)
    return name


def test_a_server_whose_imports_have_started_threads_gives_way_to_a_new_one(threaded: str) -> None:
    warm()
    before = fork_server.COMMON.now
    same = __import__(threaded).same
    with Loader(Pipe.of([1, 2]).map(same), workers=1) as loader:
        assert list(loader) == [1, 2]  # as a new interpreter: no server can fork here
    warm()
    assert fork_server.COMMON.now is not before
    assert fork_server.COMMON.now is not None
    assert fork_server.COMMON.now.alive()


def test_a_signal_that_another_thread_takes_does_not_break_into_a_start() -> None:
    # In the middle of a fork the handler would leave the locks locked that Python holds around it.
    broke_in: list[bool] = []
    inside = False
    former = signal.signal(signal.SIGINT, lambda *_: broke_in.append(inside))
    go = threading.Event()
    taker = threading.Thread(target=lambda: (go.wait(), signal.raise_signal(signal.SIGINT)))
    taker.start()  # before: it would inherit that the signal waits
    try:
        with signals_held():
            inside = True
            go.set()
            taker.join()
            for _ in range(1000):
                pass  # bytecode, between which handlers run
            inside = False
        assert broke_in == [False]
    finally:
        signal.signal(signal.SIGINT, former)
    assert "owner=0" in repr(logging._lock)  # type: ignore[attr-defined]


def test_an_interrupt_while_handlers_are_put_away_leaves_them_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    real, former = signal.signal, signal.getsignal(signal.SIGINT)
    interrupts = [True]

    def interrupted(*args: Any) -> Any:
        if interrupts and interrupts.pop():
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(KeyboardInterrupt), signals_held():
        pass
    assert not start._handlers
    assert signal.getsignal(signal.SIGINT) is former


@pytest.mark.parametrize("moment", range(6))
def test_an_interrupt_while_handlers_change_leaves_all_as_they_were(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three handlers are put away and come back; the interrupt comes behind one of these six changes."""
    real, changes = signal.signal, [0]
    numbers = (signal.SIGINT, signal.SIGUSR1, signal.SIGALRM)
    former = {number: real(number, lambda *_: None) for number in numbers}
    mine = {number: signal.getsignal(number) for number in numbers}

    def interrupted(*args: Any) -> Any:
        result = real(*args)
        if args[0] in numbers:
            changes[0] += 1
            if changes[0] == moment + 1:
                raise KeyboardInterrupt
        return result

    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", interrupted)
            with pytest.raises(KeyboardInterrupt), signals_held():
                pass
        assert not start._handlers
        assert {number: signal.getsignal(number) for number in numbers} == mine
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*numbers}
    finally:
        for number, handler in former.items():
            real(number, handler)
