"""`it._workers`, as people use it: process numbers while they run, and their ends."""

import os
import signal

import pytest

from headrace.doors.torch.loader import DataLoader


def test_workers_can_be_looked_at_and_waited_for() -> None:
    it = iter(DataLoader(range(8), 2, num_workers=2))
    workers = it._workers
    assert [w.pid for w in workers] == [w.ident for w in it._workers]
    assert all(w.is_alive() and w.exitcode is None for w in workers)
    assert len(list(it)) == 4
    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()
        assert worker.exitcode == 0
    assert it._workers == []


@pytest.mark.filterwarnings("ignore:a worker of this DataLoader:RuntimeWarning")
def test_a_killed_worker_says_so_and_another_is_in_its_place() -> None:
    it = iter(DataLoader(range(40), 2, num_workers=1))
    (first,) = it._workers
    next(it)
    os.kill(first.pid, signal.SIGKILL)
    assert len(list(it)) == 19
    assert first.exitcode == -signal.SIGKILL
    assert not first.is_alive()


def test_without_workers_there_are_none() -> None:
    assert iter(DataLoader(range(3)))._workers == []
