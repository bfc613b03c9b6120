"""What goes wrong with a shared pool: errors, closing, strangers, and what is left behind."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace import Loader, Pipe, SharedPool
from headrace.errors import BadOption, Closed, PoisonSample, WorkerDied, WorkerStuck
from tests.conftest import SRC, RunScript
from tests.laws.pipes import Numbers
from tests.workers.shared_consumer import PIPES


def test_another_pipe_is_refused() -> None:
    with SharedPool(workers=1) as pool, Loader(PIPES["indexed"], pool=pool) as loader:
        next(iter(loader))
        with pytest.raises(ValueError, match="another pipe"), Loader(PIPES["images"], pool=pool) as other:
            next(iter(other))
        with pytest.raises(ValueError, match="another seed"), Loader(PIPES["indexed"], seed=1, pool=pool) as other:
            next(iter(other))


def test_an_error_keeps_its_type_and_the_rest_of_the_stream_comes() -> None:
    def fails(x: int) -> int:
        if x == 7:
            raise KeyError("seven")
        return x

    with SharedPool(workers=2) as pool, Loader(Pipe.of(Numbers(20)).map(fails).batch(5), pool=pool) as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1, 2, 3, 4]
        with pytest.raises(KeyError, match="seven") as caught:
            next(batches)
        assert caught.traceback[-1].name == "fails"
        assert next(batches) == [10, 11, 12, 13, 14]


def test_workers_that_cannot_start_are_an_error_of_their_own_kind() -> None:
    def refuse(number: int) -> None:
        raise LookupError("no licence")

    pipe = Pipe.of(Numbers(20))
    with SharedPool(workers=1) as pool:
        for _ in range(2):
            with pytest.raises(LookupError, match="no licence"), Loader(pipe, pool=pool, worker_init=refuse) as loader:
                next(iter(loader))
        with Loader(pipe, pool=pool) as loader:
            assert list(loader) == list(range(20))


def deadly(x: int) -> int:
    if x == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_deadly_sample_is_told_to_everybody_and_the_pool_works_again() -> None:
    pipe = Pipe.of(Numbers(20)).map(deadly).batch(4)
    with SharedPool(workers=1) as pool:
        with Loader(pipe, pool=pool) as one, Loader(pipe, pool=pool) as two:
            for loader in (one, two):
                with pytest.raises(PoisonSample, match="position 13"):
                    list(loader)
        with Loader(pipe, pool=pool, on_poison="skip") as loader:
            assert [x for batch in loader for x in batch] == [x for x in range(20) if x != 13]


def wait_for_ever(x: int) -> int:
    if x == 5:
        signal.pause()
    return x


def test_a_stuck_worker_is_named_with_its_stack() -> None:
    pipe = Pipe.of(Numbers(8)).map(wait_for_ever).batch(2)
    with SharedPool(workers=1) as pool, Loader(pipe, pool=pool, timeout=0.5) as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1]
        assert loader.worker_pids() == pool.stats()["pids"]
        with pytest.raises(WorkerStuck, match="in wait_for_ever"):
            list(batches)


def test_a_loader_that_is_closed_while_it_waits_is_told() -> None:
    pipe = Pipe.of(Numbers(8)).map(wait_for_ever).batch(2)
    with SharedPool(workers=1) as pool:
        loader = Loader(pipe, pool=pool)
        batches = iter(loader)
        assert next(batches) == [0, 1]
        threading.Timer(0.2, loader.close).start()
        with pytest.raises(Closed):
            list(batches)


def test_a_pool_that_has_ended_is_an_error_and_not_a_hang() -> None:
    with SharedPool(workers=1) as pool:
        loader = Loader(PIPES["endless"], pool=pool)
        batches = iter(loader)
        next(batches)
    with pytest.raises(WorkerDied, match="the shared pool has ended"):
        list(batches)
    loader.close()
    with pytest.raises(BadOption, match="no shared pool"):
        Loader(PIPES["endless"], pool=str(pool))


@pytest.mark.parametrize("whom", ["os.getpid()", "0"], ids=["the starter", "the whole group"])
def test_the_pool_ends_with_whoever_started_it_and_leaves_nothing(tmp_path: Path, whom: str) -> None:
    program = """if True:
        import os, signal
        from headrace import Loader, Pipe, SharedPool
        pool = SharedPool(workers=2)
        batches = iter(Loader(Pipe.of(list(range(100))).batch(4), pool=pool))
        next(batches)
        print(pool, *pool.stats()["pids"], flush=True)
        os.kill(WHOM, signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", program.replace("WHOM", whom)],
        env={**os.environ, "PYTHONPATH": str(SRC), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    address, *pids = done.stdout.split()
    workers = [psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))]
    assert not psutil.wait_procs(workers, timeout=5)[1]
    while f"@{address}\n" in Path("/proc/net/unix").read_text():  # bounded by the test's deadline
        pass
    assert not list(tmp_path.iterdir())


def test_classes_of_the_main_program_come_back_as_they_are(run_script: RunScript) -> None:
    done = run_script(
        """
        from headrace import Loader, Pipe, SharedPool

        class Sample:
            def __init__(self, number):
                self.number = number

        with SharedPool(workers=1) as pool, Loader(Pipe.of(range(8)).map(Sample).batch(4), pool=pool) as loader:
            assert [type(sample) is Sample for batch in loader for sample in batch] == [True] * 8
        """
    )
    assert done.returncode == 0, done.stderr


# --- strangers --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_let_in() -> None:
    with SharedPool(workers=1) as pool:
        code = f"""if True:
            import marshal, os, socket
            os.setuid(65534)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect({chr(0) + str(pool)!r})
            try:
                sock.send(marshal.dumps((5,)))
                print(len(sock.recv(1000)))
            except (BrokenPipeError, ConnectionResetError):
                print(0)
        """
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=20)
        assert done.stdout.strip() == "0"
        assert pool.stats()["consumers"] == 0


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{"workers": 0}, {"workers": 1, "consumers": 0}, {"workers": 1, "skew": -1}, {"workers": True}]
)
def test_wrong_numbers_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(BadOption, match="whole number >= 1"):
        SharedPool(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pool": 7}, "SharedPool or its address, not int"),
        ({"pool": "/nowhere"}, "not the address of a shared pool"),
    ],
)
def test_something_else_than_a_pool_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        Loader(Pipe.of([1]), **given)


def test_options_that_the_pool_has_settled_are_refused() -> None:
    with SharedPool(workers=1) as pool:
        for given in ({"workers": 2}, {"kind": "thread"}, {"start_method": "fork"}):
            with pytest.raises(BadOption, match="belongs to the pool"):
                Loader(Pipe.of([1]), pool=pool, **given)  # type: ignore[arg-type]


def test_a_pool_travels_to_another_process_as_its_address() -> None:
    import pickle

    with SharedPool(workers=1, same=True) as pool:
        copy = pickle.loads(pickle.dumps(pool))
        assert (str(copy), copy.workers, copy.same) == (str(pool), 1, True)
        with Loader(Pipe.of([1, 2]), pool=copy) as loader:
            assert list(loader) == [1, 2]
    with pytest.raises(WorkerDied, match="no shared pool"):
        copy.stats()
