"""However a program ends, nothing of its loader is left: no process, no memory, no file, no thread; and in silence.

Each program is real, in a session of its own, and leaves in the middle of an epoch while workers are busy. Its pipes
are read to their end, and workers hold them too: they have to be gone within ten seconds (one is allowed; the rest is
for slow machines), and what is in the pipes is all that anybody has said.
"""

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunScript
from tests.depth import depth

DEADLINE = 10.0
KINDS = {
    "inline": {},
    "thread": {"workers": 2, "kind": "thread"},
    "fork": {"workers": 2, "start_method": "fork"},
    "server": {"workers": 2, "start_method": "server"},
    "forkserver": {"workers": 2, "start_method": "forkserver"},
    "spawn": {"workers": 1, "start_method": "spawn"},
}
BUSY = """
    import atexit, gc, os, signal, sys, threading, time
    import numpy as np
    from headrace import Loader, Pipe

    def busy(i):
        time.sleep(0.005)
        return np.full(2000, i)

    def begin():
        loader = Loader(Pipe.of(list(range(4000))).shuffle().map(busy).batch(4).collate(), timeout=30, **KIND)
        batches = iter(loader)
        held.append(next(batches))  # a batch may outlive its loader
        next(batches)
        return loader, batches, loader.worker_pids()

    def left(name, pids):
        if alive := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
            print(name, "left processes:", alive)
        if threading.active_count() > 1:
            print(name, "left threads:", threading.enumerate())

    held = []
    loader, batches, pids = begin()
    print(time.monotonic(), flush=True)
"""

# What the program does then: code, exit status, how the last line of stderr begins.
ENDS: dict[str, tuple[str, int, str]] = {
    "the end of the program": ("pass", 0, ""),
    "Ctrl-C": ("os.killpg(0, signal.SIGINT); time.sleep(60)", -2, "KeyboardInterrupt"),
    "Ctrl-C inside the loop": (
        "threading.Timer(0.05, os.killpg, (0, signal.SIGINT)).start()\nfor batch in batches: pass",
        -2,
        "KeyboardInterrupt",
    ),
    "an interrupt of the consumer only": (
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
        -2,
        "KeyboardInterrupt",
    ),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -15, ""),
    "an exception in the training step": ("for batch in batches: batch.explode()", 1, "AttributeError"),
    "os._exit": ("os._exit(7)", 7, ""),
    "sys.exit in mid-epoch": ("for batch in batches: sys.exit(3)", 3, ""),
    "reading at exit": ("atexit.register(lambda: print(next(batches).shape))", 0, ""),
    "a reader in a daemon thread": (
        "threading.Thread(target=list, args=(batches,), daemon=True).start(); time.sleep(0.1)",
        0,
        "Exception in thread",
    ),
}
REDUCED = {
    "inline": ["Ctrl-C"],
    "thread": ["Ctrl-C"],
    "fork": list(ENDS),
    "server": ["Ctrl-C", "SIGTERM", "reading at exit"],
    "forkserver": ["the end of the program"],
    "spawn": ["Ctrl-C"],
}
CASES = [(kind, end) for kind in KINDS for end in depth(REDUCED[kind], list(ENDS))]


@pytest.fixture(autouse=True)
def orphans_come_here() -> Iterator[None]:
    """Process 1 of a container may take seconds to notice an orphan that has ended; who waits for it here does not."""
    set_child_subreaper = 36
    libc = ctypes.CDLL(None)
    libc.prctl(set_child_subreaper, 1)
    yield
    libc.prctl(set_child_subreaper, 0)


@pytest.mark.parametrize(("kind", "end"), CASES)
def test_nothing_is_left_however_a_program_ends(run_script: RunScript, tmp_path: Path, kind: str, end: str) -> None:
    code, status, last = ENDS[end]
    done = run_script(BUSY.replace("KIND", repr(KINDS[kind])) + indent(code), env={"TMPDIR": str(tmp_path)})
    ended = time.monotonic()
    assert done.returncode == status, done.stderr
    assert ended - float(done.stdout.splitlines()[0]) < DEADLINE
    if end != "a reader in a daemon thread":  # it is told, or not, as the interpreter goes down
        assert (done.stderr.splitlines() or [""])[-1].startswith(last), done.stderr
        assert done.stderr.count("Traceback") == (1 if last else 0), done.stderr
    assert "ignored" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["program0.py"]


def indent(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


LEAVES = {
    "del": "del loader, batches",
    "break": "for batch in batches: break\ndel loader, batches, batch",
    "close": "for batch in loader: break\nloader.close()",
    "with": "with loader: next(batches)",
    "a cycle": "knot = [batches]\nknot.append(knot)\ndel batches, loader, knot\ngc.collect()",
    "an error": "try:\n    for batch in batches: batch.explode()\nexcept AttributeError: del batches, loader",
}


@pytest.mark.parametrize("kind", depth(["inline", "thread", "fork", "server"], list(KINDS)))
def test_a_program_that_goes_on_has_nothing_left_of_a_loader_that_it_has_left(run_script: RunScript, kind: str) -> None:
    program = BUSY
    for name, code in LEAVES.items():
        program += indent(f"loader, batches, pids = begin()\n{code}\nleft({name!r}, pids)")
    done = run_script(program.replace("KIND", repr(KINDS[kind])))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines()[1:] if line] == []


@pytest.mark.parametrize("kind", ["thread", "fork", "server"])
def test_a_loader_started_in_a_thread_that_ends_goes_on_in_another(run_script: RunScript, kind: str) -> None:
    done = run_script(
        """
        import threading
        from headrace import Loader, Pipe
        loader = Loader(Pipe.of(list(range(400))).batch(4), timeout=30, **KIND)
        got = []
        def start():
            global batches
            batches = iter(loader)
            got.extend(next(batches) for _ in range(10))
        thread = threading.Thread(target=start)
        thread.start(), thread.join()
        pids = loader.worker_pids()
        got += batches
        assert [x for batch in got for x in batch] == list(range(400))
        assert loader.worker_pids() == pids and loader.stats().retries == 0
        """.replace("KIND", repr(KINDS[kind]))
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", depth(["fork", "server", "spawn"], ["fork", "server", "forkserver", "spawn"]))
def test_ctrl_c_at_any_moment_of_the_start_is_heard_by_the_consumer_alone(run_script: RunScript, kind: str) -> None:
    done = run_script(
        """
        import os, random, signal, threading
        from headrace import Loader, Pipe
        from headrace.engine.workers.process import fork_server
        chance = random.Random(5)
        def interrupt():
            os.killpg(0, signal.SIGINT)
        heard = 0
        for _ in range(COUNT):
            fork_server.COMMON.close()  # so that every round starts one
            timer = threading.Timer(chance.uniform(0, 0.3), interrupt)
            try:
                with Loader(Pipe.of(list(range(40_000))).batch(1), timeout=30, **KIND) as loader:
                    timer.start()
                    for _ in range(1000):
                        for batch in loader:
                            pass
            except KeyboardInterrupt:
                heard += 1
        with Loader(Pipe.of(list(range(40))).batch(4), timeout=30, **KIND) as loader:
            assert [x for batch in loader for x in batch] == list(range(40))
        print(heard)
        """.replace("COUNT", str(depth(3, 40))).replace("KIND", repr(KINDS[kind])),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{depth(3, 40)}\n"
    # The tracebacks of a server or a worker. (An interrupt may come inside a destructor of the consumer's.)
    assert '"<string>"' not in done.stderr
    assert "in serve" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("fork", "time.sleep"),
        ("fork", "ctypes.PyDLL(None).sleep"),  # with the interpreter held
        ("server", "time.sleep"),
        ("server", "ctypes.PyDLL(None).sleep"),
        ("forkserver", "time.sleep"),
        ("spawn", "ctypes.PyDLL(None).sleep"),
    ],
)
def test_a_worker_inside_a_long_sample_is_gone_soon_after_its_consumer_is_killed(
    run_script: RunScript, kind: str, how: str
) -> None:
    done = run_script(
        """
        import ctypes, os, signal, time
        from headrace import Loader, Pipe
        consumer = os.getpid()
        def long(i):
            if i == 13:
                print(time.monotonic(), flush=True)
                os.kill(consumer, signal.SIGKILL)
                HOW(600)
            return i
        list(Loader(Pipe.of(list(range(40))).map(long).batch(4), **KIND))
        """.replace("HOW", how).replace("KIND", repr(KINDS[kind])),
        timeout=60,
    )
    ended = time.monotonic()
    assert done.returncode == -9
    assert ended - float(done.stdout) < 2 * DEADLINE
    assert done.stderr == ""


@pytest.mark.parametrize("kind", ["fork", "server", "spawn"])
def test_a_consumer_that_dies_while_it_unpickles_leaves_nothing(run_script: RunScript, kind: str) -> None:
    done = run_script(
        """
        import os
        from headrace import Loader, Pipe
        class Deadly:
            def __reduce__(self): return os._exit, (6,)
        list(Loader(Pipe.of(list(range(40))).map(lambda i: Deadly() if i == 13 else i).batch(4), **KIND))
        """.replace("KIND", repr(KINDS[kind]))
    )
    assert (done.returncode, done.stdout, done.stderr) == (6, "", "")


@pytest.mark.parametrize("kind", ["thread", "fork", "server"])
def test_a_loader_that_another_thread_closes_wakes_its_reader_with_an_error(run_script: RunScript, kind: str) -> None:
    done = run_script(
        """
        import os, threading
        from headrace import Loader, Pipe
        from headrace.errors import Closed
        os.mkfifo("inside"), os.mkfifo("release")
        def long(i):
            open("inside", "wb").close()
            open("release", "rb").close()
            return i
        loader = Loader(Pipe.of([1]).map(long), **{**KIND, "workers": 1})
        def read():
            try:
                list(loader)
            except Closed as error:
                print(error)
        reader = threading.Thread(target=read)
        reader.start()
        open("inside", "rb").read()
        loader.close()
        reader.join()
        if "kind" in KIND:
            open("release", "wb").close()  # a thread cannot be ended from outside
        """.replace("KIND", repr(KINDS[kind])),
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "this loader was closed while it was being read\n"
