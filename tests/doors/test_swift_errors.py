"""Every way in which SwiftLoader once hung now ends, within five seconds, in an error or in the right data."""

import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.errors import Closed, NotPicklable, PoisonSample, RanksDisagree
from tests.conftest import RunScript
from tests.doors.swift_data import (
    Changing,
    Failing,
    Gated,
    Killing,
    Numbers,
    Pairs,
    Sized,
    Unbuildable,
    batches,
    flat,
    noted,
    swift,
    wait_for,
)

# Far more than any of them needs. Programs of their own, which also start an interpreter, have their own limit.
pytestmark = [
    pytest.mark.timeout(5, func_only=True),
    pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning"),
]

THREADS = pytest.mark.parametrize("multithread", [True, False])


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


@THREADS
def test_an_error_in_the_middle_of_an_epoch_keeps_its_type_and_the_rest_still_comes(multithread: bool) -> None:
    with swift(Failing, {"count": 40, "bad": 33}, shuffle=False, multithread=multithread) as loader:
        loader.start(0)
        seen = []
        with pytest.raises(ValueError, match="sample 33 is bad") as caught:
            seen += [batch.tolist() for batch in loader]
        assert "stage 'getitem', sample 33" in notes(caught.value)
        assert "__getitem__" in [call.name for call in caught.traceback]
        assert flat([batch.tolist() for batch in loader]) == [36, 37, 38, 39]
        assert loader.epoch == 1


def test_an_error_in_the_first_batch_comes_from_the_first_batch() -> None:
    with swift(Failing, {"count": 10, "bad": 0}, shuffle=False) as loader:
        loader.start(0)
        assert len(loader) == 4
        with pytest.raises(ValueError, match="sample 0 is bad"):
            next(loader)


def test_batches_before_an_error_are_delivered_first() -> None:
    with swift(Failing, {"count": 12, "bad": 6}, shuffle=False, max_nb_batch_on_device=3) as loader:
        loader.start(0, device="here", to_device=lambda batch, device: batch)
        assert next(loader).tolist() == [0, 1, 2]
        assert next(loader).tolist() == [3, 4, 5]
        with pytest.raises(ValueError, match="sample 6"):
            next(loader)
        assert next(loader).tolist() == [9, 10, 11]
        with pytest.raises(StopIteration):
            next(loader)


def test_a_stop_iteration_of_the_dataset_does_not_end_the_epoch() -> None:
    with swift(Failing, {"count": 12, "bad": 4, "error": StopIteration}, shuffle=False) as loader:
        loader.start(0)
        next(loader)
        with pytest.raises(RuntimeError, match="StopIteration was raised at stage 'getitem', sample 4"):
            next(loader)


def test_a_stop_iteration_on_the_way_to_the_device_does_not_end_the_epoch() -> None:
    def stop(batch: Any, device: Any) -> Any:
        raise StopIteration

    with swift() as loader:
        loader.start(0, device="here", to_device=stop)
        with pytest.raises(RuntimeError, match="StopIteration"):
            next(loader)


def test_a_dataset_that_cannot_be_built_is_the_error_of_start() -> None:
    with swift(Unbuildable, 3) as loader:
        with pytest.raises(OSError, match="there is no such data") as caught:
            loader.start(0)
        assert "stage 'construct'" in notes(caught.value)


def in_its_own_words(message: str) -> bool:
    """A SwiftLoader has no `workers=0` and no `on_poison`: what to do is said with what it has."""
    return "dataset_class" in message and not re.search(r"\bworkers=|on_poison|worker_init|start_method", message)


def test_a_dataset_that_ends_its_worker_is_an_error_of_start() -> None:
    with swift(Unbuildable, {"count": 3, "how": "exit"}) as loader:
        with pytest.raises(PoisonSample) as caught:
            loader.start(0)
        assert in_its_own_words(str(caught.value))


@THREADS
def test_a_worker_that_is_killed_once_loses_nothing(tmp_path: Path, multithread: bool) -> None:
    kwargs = {"count": 40, "bad": 20, "mark": str(tmp_path / "died")}
    with swift(Killing, kwargs, shuffle=False, multithread=multithread) as loader:
        loader.start(0)
        assert [flat(epoch) for epoch in batches(loader, 2)] == [list(range(40))] * 2


def test_a_sample_that_kills_each_worker_is_an_error_that_ends_the_loader() -> None:
    with swift(Killing, {"count": 400, "bad": 300}, shuffle=False) as loader:  # out of reach before batches are taken
        loader.start(0)
        with pytest.raises(PoisonSample) as caught:
            batches(loader)
        assert "134 an epoch, after 2 for the start" in notes(caught.value)
        assert in_its_own_words(str(caught.value))
        with pytest.raises(Closed):
            next(loader)


def test_all_workers_killed_at_once_lose_nothing() -> None:
    with swift(Pairs, 60, shuffle=False) as loader:
        loader.start(0)
        seen: list[int] = []
        for indices, _ in loader:
            seen += indices.tolist()
            if len(seen) == 12:
                for worker in _workers():
                    worker.kill()
        assert seen == list(range(60))


@pytest.mark.parametrize("ahead", [0, 2])
def test_an_interrupt_of_the_user_costs_no_batch(ahead: int) -> None:
    calls: list[int] = []

    def interrupted(batch: Any, device: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return batch

    with swift(kwargs=12, shuffle=False, max_nb_batch_on_device=ahead) as loader:
        loader.start(0, device=0, to_device=interrupted)
        seen: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            seen.extend(i for batch in loader for i in batch.tolist())
        seen += flat([batch.tolist() for batch in loader])
        assert seen == list(range(12))
        assert batches(loader) == [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]]


@THREADS
def test_a_decoder_that_raises_is_the_error_of_its_batch(multithread: bool) -> None:
    with swift(
        shuffle=False, batch_encoder=_plain, batch_decoder=_odd, collate_fn=list, multithread=multithread
    ) as loader:
        loader.start(0)
        assert next(loader) == b"\x00\x01\x02"
        with pytest.raises(ArithmeticError) as caught:
            next(loader)
        assert "stage 'decode'" in notes(caught.value)
        assert next(loader) == b"\x06\x07\x08"


def _plain(batch: list[int]) -> bytes:
    return bytes(batch)


def _odd(data: bytes) -> bytes:
    if data[0] % 2:
        raise ArithmeticError("odd")
    return data


def test_a_batch_larger_than_everything_before_arrives() -> None:
    with swift(Sized, {"sizes": [10] * 9 + [50_000_000]}, batch_size=1, shuffle=False) as loader:
        loader.start(0)
        assert [batch.size for batch in loader][-1] == 50_000_000


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_workers_with_one_sample_two_or_none_go_on_over_epochs(count: int) -> None:
    with swift(kwargs=count, worker_per_consumer=2, nearby_shuffle=2) as loader:
        loader.start(0)
        assert [sorted(flat(epoch)) for epoch in batches(loader, 4)] == [list(range(count))] * 4


def test_leaving_a_loop_after_one_worker_has_ended_and_going_on_delivers_the_rest() -> None:
    with swift(kwargs=9, shuffle=False, batch_size=3) as loader:
        loader.start(0)
        for batch in loader:
            if batch[0] == 3:
                break
        assert batches(loader, 3) == [[[6, 7, 8]], [[0, 1, 2], [3, 4, 5], [6, 7, 8]], [[0, 1, 2], [3, 4, 5], [6, 7, 8]]]


def test_closing_does_not_wait_for_a_worker_that_is_stuck(tmp_path: Path) -> None:
    file, gate = tmp_path / "read", tmp_path / "gate"
    with swift(Gated, {"count": 10, "file": str(file), "gate": str(gate), "held": 0}, shuffle=False) as loader:
        loader.start(0)
        assert wait_for(lambda: 0 in noted(file))
        workers = _workers()
    assert workers
    assert wait_for(lambda: not any(process.is_running() for process in workers), 5)


def _workers() -> list[psutil.Process]:
    """Children of the server that forks them, which is a child of this process."""
    return [p for child in psutil.Process().children() for p in child.children()]


def test_workers_that_build_different_datasets_are_an_error() -> None:
    with swift(Changing, {}) as loader, pytest.raises(RanksDisagree, match="samples in one worker"):
        loader.start(0)


def test_arguments_that_cannot_travel_are_named_at_the_start() -> None:
    with swift(Numbers, {"count": threading.Lock()}) as loader, pytest.raises(NotPicklable) as caught:
        loader.start(0)
    assert "dataset_kwargs['count'] (lock) in SwiftLoader(Numbers) cannot be sent" in str(caught.value)
    assert str(caught.value).endswith("; build it inside the dataset, which is made in the worker")


PROGRAMS = pytest.mark.timeout(40)
PROGRAM = """
    import os, sys, time
    from headrace.doors.swift.loader import SwiftLoader

    class Numbers:
        def __len__(self): return 40
        def __getitem__(self, index): return index

    if __name__ == "__main__":
        loader = SwiftLoader(Numbers, {}, 4, 1, 2, seed=1, logger=sys.argv[1])
        loader.start(0)
        print(len(list(loader)), flush=True)
"""


@PROGRAMS
def test_a_program_that_forgets_to_close_ends_by_itself(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script(PROGRAM, tmp_path / "log", timeout=20)
    assert (done.stdout, done.returncode) == ("10\n", 0), done.stderr


@PROGRAMS
def test_a_program_that_fails_ends_by_itself(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script(PROGRAM + "\n        raise SystemExit(3)\n", tmp_path / "log", timeout=20)
    assert done.returncode == 3, done.stderr


@PROGRAMS
def test_the_workers_of_a_killed_program_end_and_nothing_is_left(run_script: RunScript, tmp_path: Path) -> None:
    code = PROGRAM + "\n        import signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    # It also sees to it that no process outlives the program; and no test may leave shared memory.
    done = run_script(code, tmp_path / "log", timeout=20)
    assert done.returncode == -signal.SIGKILL
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "log_Dataloader-0.json",
        "log_Worker-0-child.json",
        "log_Worker-0-parent.json",
        "log_Worker-1-child.json",
        "log_Worker-1-parent.json",
        "log_WorkerManager-0.json",
        "program0.py",
    ]


def test_an_idle_loader_costs_no_processor_time() -> None:
    with swift(kwargs=500) as loader:
        loader.start(0)
        batches(loader)
        assert wait_for(lambda: _settled())
        family = [psutil.Process(), *_workers()]
        before, started = sum(sum(p.cpu_times()[:2]) for p in family), time.monotonic()
        threading.Event().wait(1.0)
        spent = sum(sum(p.cpu_times()[:2]) for p in family) - before
        assert spent < 0.05 * (time.monotonic() - started) + 0.02  # the clock of processes ticks every 10 ms


def _settled() -> bool:
    """Workers are asleep."""
    return all(process.status() == psutil.STATUS_SLEEPING for process in _workers())
