"""A cache in shared memory: made once for all, whole or not there, and safe against any death."""

import os
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from headrace.memory.cache import UnitCache
from tests.conftest import RunScript


def maker(unit: int) -> Callable[[memoryview], None]:
    def make(memory: memoryview) -> None:
        np.frombuffer(memory, np.int64)[:] = unit

    return make


def check(unit: int) -> Callable[[memoryview], None]:
    def use(memory: memoryview) -> None:
        assert (np.frombuffer(memory, np.int64) == unit).all()

    return use


def forbidden(memory: memoryview) -> None:
    raise AssertionError("this unit is there already")


def work(slots: UnitCache, seed: int, reads: int = 400) -> None:
    for unit in np.random.default_rng(seed).integers(0, 9, reads).tolist():
        slots.read(unit, check(unit), maker(unit))


def forked(task: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            task()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return pid


def test_a_unit_is_made_once_and_the_one_used_longest_ago_goes_first() -> None:
    slots = UnitCache(2, 100)
    for unit in (1, 2, 1, 3):
        slots.read(unit, check(unit), maker(unit))
    slots.read(1, check(1), forbidden)
    slots.read(3, check(3), forbidden)
    assert slots.made == 3
    slots.touch([1])
    slots.read(4, check(4), maker(4))
    slots.read(1, check(1), forbidden)


def test_processes_and_threads_read_whole_units_only() -> None:
    slots = UnitCache(4, 4096)

    def two_threads() -> None:
        failed: list[BaseException] = []

        def run(seed: int) -> None:
            try:
                work(slots, seed)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed

    pids = [forked(two_threads), forked(lambda: work(slots, 3)), forked(lambda: work(slots, 4))]
    work(slots, 5)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]


def test_what_one_process_made_another_does_not_make_again() -> None:
    slots = UnitCache(4, 4096)
    assert os.waitpid(forked(lambda: slots.read(7, check(7), maker(7))), 0)[1] == 0
    slots.read(7, check(7), forbidden)


def test_a_process_killed_while_it_makes_a_unit_leaves_nothing_half_made() -> None:
    slots = UnitCache(1, 4096)
    ready, done = os.pipe()

    def die(memory: memoryview) -> None:
        memory[:8] = b"\xff" * 8
        os.write(done, b"x")
        signal.pause()

    pid = forked(lambda: slots.read(7, check(7), die))
    os.read(ready, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    slots.read(7, check(7), maker(7))
    os.close(ready)
    os.close(done)


def test_nothing_is_put_out_while_there_is_a_slot_for_each_unit_though_makers_are_killed() -> None:
    slots = UnitCache(4, 4096)
    for unit in (0, 1):
        slots.read(unit, check(unit), maker(unit), 1, 1)  # read to its end: it would go first

    def die(memory: memoryview) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    for unit in (2, 3):
        os.waitpid(forked(partial(slots.read, unit, check(unit), die)), 0)
    slots._used[slots._units < 0] = slots._clock[0] + 1  # whenever they were last used
    for unit in (2, 3):
        slots.read(unit, check(unit), maker(unit))
    for unit in range(4):
        slots.read(unit, check(unit), forbidden)


def test_an_error_while_a_unit_is_made_goes_to_who_asked_and_the_slot_stays_usable() -> None:
    slots = UnitCache(1, 4096)
    with pytest.raises(AssertionError, match=r"there already"):
        slots.read(3, check(3), forbidden)
    slots.read(3, check(3), maker(3))


def test_a_ticket_opens_the_same_slots_in_a_new_interpreter(run_script: RunScript, tmp_path: Any) -> None:
    slots = UnitCache(2, 4096)
    slots.read(5, check(5), maker(5))
    (tmp_path / "ticket").write_bytes(pickle.dumps(slots))
    done = run_script(
        """
        import pickle, sys
        slots = pickle.load(open(sys.argv[1], "rb"))
        def refuse(memory): raise SystemExit("made again")
        slots.read(5, lambda memory: print(memory[0]), refuse)
        """,
        tmp_path / "ticket",
    )
    assert done.stdout == "5\n", done.stderr


def test_slots_that_cannot_be_reached_are_replaced_by_new_ones() -> None:
    count, size, token = UnitCache(2, 4096).__reduce__()[1][:3]
    from headrace.memory.cache import _reopened

    found = _reopened(count, size, token, 2**22 - 1, 3)
    found.read(1, check(1), maker(1))
    assert found.made == 1


def test_descriptors_are_given_back(no_new_fds: Callable[[], None]) -> None:
    slots = UnitCache(2, 4096)
    slots.read(1, check(1), maker(1))
    del slots
