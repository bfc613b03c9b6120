"""The crash table: whatever a sample does to its worker ends in the right error, or in the right data.

An exception of the user's code costs its own batch: those before it and after it arrive. A death that comes twice at
the same sample is an error that names the sample. Every loader here has a time-out, so that a hang is an error of its
own.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe, dump
from headrace.errors import PoisonSample, WorkerDied, WorkerStuck
from tests.depth import depth
from tests.faults import deadly
from tests.faults.deadly import BAD, SIZE, Numbers

# One worker is enough where interpreters start from nothing: a death costs a second there.
METHODS = {"fork": 2, "server": 2, "spawn": 1}
TIMEOUTS = {"fork": 1.0, "server": 1.0, "spawn": 2.5}
"""For samples that hang: longer than it takes to start a worker."""
BATCHES = [list(range(i, i + 4)) for i in range(0, SIZE, 4)]
WITHOUT = [[x for x in batch if x != BAD] for batch in BATCHES]

# (New interpreters run the same code, a second each: in the reduced run test_crashes_spawned.py stands for them.)
pytestmark = pytest.mark.parametrize("method", depth(["fork", "server"], list(METHODS)))


def load(method: str, bad: Any = None, size: int = 4, **options: Any) -> Loader[Any]:
    how: dict[str, Any] = {"workers": METHODS[method], "start_method": method, "timeout": 30, **options}
    return Loader(Pipe.of(Numbers(bad)).batch(size), **how)


def read_to_the_bad_one(batches: Any) -> None:
    assert [next(batches) for _ in range(3)] == BATCHES[:3]


def read_what_there_is(batches: Any) -> None:
    """Batches up to an error; those before the bad one may be lost with their worker, but none is wrong."""
    for batch, want in zip(batches, BATCHES[:3], strict=False):
        assert batch == want
    next(batches)


@pytest.mark.parametrize(
    ("bad", "options", "kind", "place"),
    [
        (deadly.raises, {}, KeyError, r"in of\(.*at position 13, in worker"),
        (deadly.NotPickled, {}, ValueError, "while its results were being packed, in worker"),
        (deadly.takes_all_memory, {"worker_init": deadly.little_memory}, MemoryError, "at position 13, in worker"),
        (
            deadly.leaves_no_room_for_its_result,
            {"worker_init": deadly.little_memory},
            (MemoryError, OSError),
            "while its results were being packed",
        ),
    ],
)
def test_an_exception_costs_its_own_batch_and_says_where_it_was(
    method: str, bad: Any, options: Any, kind: Any, place: str
) -> None:
    with load(method, bad, **options) as loader:
        batches = iter(loader)
        read_to_the_bad_one(batches)
        with pytest.raises(kind) as caught:
            next(batches)
        assert re.search(place, caught.value.__notes__[0])
        assert list(batches) == BATCHES[4:]
        assert loader.stats().retries == 0


def test_an_exception_while_the_consumer_unpickles_costs_its_own_batch(method: str) -> None:
    with load(method, deadly.NotUnpickled) as loader:
        batches = iter(loader)
        read_to_the_bad_one(batches)
        with pytest.raises(ValueError, match="not to be opened"):
            next(batches)
        assert list(batches) == BATCHES[4:]


@pytest.mark.parametrize(
    ("bad", "how"),
    [
        (deadly.segfault, "was killed by SIGSEGV"),
        (deadly.abort, "was killed by SIGABRT"),
        (deadly.exits_with_0, "exited with code 0"),
        (deadly.exits_with_3, "exited with code 3"),
    ],
)
def test_a_death_inside_a_sample_names_the_sample_and_how(
    method: str, bad: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with load(method, bad) as loader:
        batches = iter(loader)
        with pytest.raises(PoisonSample, match=f"position 13 ended its worker twice: it {how}"):
            read_what_there_is(batches)
        assert loader.stats().retries == 1
    if method != "spawn" or bad is deadly.segfault:
        with load(method, bad, on_poison="skip") as loader:
            assert list(loader) == WITHOUT
            assert loader.stats().retries == 2
        assert f"the sample at position 13 is left out: its worker {how}, twice" in caplog.text


@pytest.mark.parametrize("on_poison", ["raise", "skip"])
def test_a_death_inside_an_op_on_a_batch_is_held_against_the_batch(
    method: str, on_poison: str, caplog: pytest.LogCaptureFixture
) -> None:
    for pipe in (Pipe.of(Numbers()).batch(4), Pipe.of(Numbers()).filter(deadly.is_number).batch(4)):
        how: Any = {"workers": METHODS[method], "start_method": method, "timeout": 30, "on_poison": on_poison}
        with Loader(pipe.map(deadly.ends_with_the_bad_one), **how) as loader:
            if on_poison == "skip":
                assert list(loader) == [*BATCHES[:3], *BATCHES[4:]]
                assert "a batch whose op ended its worker twice is left out" in caplog.text
            else:
                with pytest.raises(PoisonSample, match="whole batch ended its worker twice: it exited with code 3"):
                    read_what_there_is(iter(loader))


@pytest.mark.parametrize("on_poison", ["raise", "skip"])
def test_a_death_while_a_result_is_pickled_is_not_blamed_on_another_sample(method: str, on_poison: str) -> None:
    with load(method, deadly.DeadlyToPickle, on_poison=on_poison) as loader:
        batches = iter(loader)
        with pytest.raises(PoisonSample, match=r"exited with code 3, twice, while it was packing.*\(ticket 3 of"):
            read_what_there_is(batches)


@pytest.mark.parametrize(
    ("init", "kind", "text"),
    [
        (deadly.init_raises, KeyError, "a bad worker_init"),
        (deadly.init_exits, WorkerDied, r"end while they start \(exited with code 4\)"),
        (deadly.init_calls_sys_exit, RuntimeError, r"sys\.exit\(4\) in a worker does not end the program"),
    ],
)
def test_a_crash_of_worker_init_is_the_error(method: str, init: Any, kind: Any, text: str) -> None:
    with load(method, worker_init=init) as loader, pytest.raises(kind, match=text) as caught:
        list(loader)
    if kind is not WorkerDied:
        assert re.fullmatch(r"headrace: while worker \d was starting", caught.value.__notes__[0])


def test_a_worker_that_closes_its_socket_counts_as_dead(method: str) -> None:
    with load(method, deadly.closes_its_socket, restarts=2) as loader:
        batches = iter(loader)
        with pytest.raises(WorkerDied, match=r"exited with code 1;.*2 restarts are allowed"):
            read_what_there_is(batches)


def test_a_sample_that_hangs_is_an_error_with_the_stack_of_its_worker(method: str) -> None:
    with load(method, deadly.hangs_for_ever, timeout=TIMEOUTS[method]) as loader:
        batches = iter(loader)
        with pytest.raises(WorkerStuck) as caught:
            read_what_there_is(batches)
    assert re.search(r"worker \d \(process \d+\), at position 13, ticket 3 of stage 0 in epoch 0", str(caught.value))
    assert re.search(r"deadly\.py\W+ line \d+ in hangs_for_ever\n.* in __getitem__\n", str(caught.value))


def test_a_worker_that_hangs_once_is_replaced_and_nothing_is_lost(method: str, tmp_path: Path) -> None:
    bad = deadly.HangsOnce(str(tmp_path / "hung"))
    with load(method, bad, timeout=TIMEOUTS[method], on_stuck="replace") as loader:
        assert list(loader) == BATCHES
        assert loader.stats().retries >= 1


def test_a_sample_that_always_hangs_is_left_out_or_named(method: str) -> None:
    if method == "spawn":
        pytest.skip("the same code as for the others, and slow")
    policy = {"fork": "raise", "server": "skip"}[method]
    bad = deadly.hangs_for_ever
    with load(method, bad, timeout=TIMEOUTS[method], on_stuck="replace", on_poison=policy) as loader:
        if policy == "skip":
            assert list(loader) == WITHOUT
        else:
            with pytest.raises(PoisonSample, match=r"position 13 .* within 1.0 seconds and was killed by on_stuck"):
                list(loader)


def test_dump_shows_what_every_worker_is_doing(method: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "inside")
    with load(method, deadly.TellsAndHangs(str(tmp_path / "inside")), size=SIZE) as loader:
        batches = iter(loader)
        batches.start()
        assert (tmp_path / "inside").read_bytes() == b"yes"
        told = dump()
    assert repr(loader) in told
    assert re.search(r"worker \d \(process \d+\), at position 13, .*of\(<Numbers>\), batch of 24", told)
    assert "in tells_and_hangs" in told
