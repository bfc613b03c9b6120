"""What a first batch does not wait for: inherited objects are left to the parent, and workers may start early."""

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

import headrace
from headrace import Loader, Pipe
from headrace.engine.workers.process import fork_server
from headrace.errors import BadOption

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


def frozen(_: int) -> int:
    return gc.get_freeze_count()


def told(x: int) -> tuple[int, int]:
    return x, os.getpid()


@pytest.mark.parametrize("method", ["fork", None])
def test_the_collector_of_a_forked_worker_leaves_alone_what_it_inherited(method: Any) -> None:
    gc.unfreeze()  # (what tests/conftest.py has frozen, it would inherit frozen)
    before = gc.get_freeze_count()
    with Loader(Pipe.of([1]).map(frozen), workers=1, start_method=method) as loader:
        assert next(iter(loader)) > 10_000
    assert gc.get_freeze_count() == before  # the user's own process is his
    gc.freeze()


@pytest.mark.timeout(60)
def test_loaders_take_workers_that_were_started_before_and_start_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    headrace.warm(2)
    headrace.warm(2)  # no more than two wait
    server = fork_server.COMMON.now
    assert server is not None
    assert len(server._asked) + len(server._idle) == 2
    monkeypatch.setenv("HEADRACE_TEST_NEW", "new")
    with Loader(Pipe.of(["HEADRACE_TEST_NEW"]).map(os.environ.get), workers=1) as loader:
        assert list(loader) == ["new"]  # it was started before that was set
        early = {started.pid for started in server._idle}
        assert len(early) == 1
        with Loader(Pipe.of(np.arange(64)).map(told).batch(1), workers=2) as beside:
            assert [x for batch in beside for x, _ in batch] == list(range(64))
            assert early < {*beside.worker_pids()}
            assert not server._idle
    assert fork_server.COMMON.now is server  # the second and the third loader reuse it


def test_idle_workers_end_when_nobody_needs_them() -> None:
    server = fork_server.ForkServer()
    try:
        server.warm(1, [])
        assert server.status(0) is None  # (an answer behind those about workers)
        (idle,) = server._idle
        pid, pidfd = idle.pid, os.dup(idle.pidfd)
        server._end_idle()
        assert server.status(pid) == 0
        os.close(pidfd)
    finally:
        server.close()


def test_a_worker_that_was_killed_while_it_waited_is_replaced() -> None:
    headrace.warm(1)
    server = fork_server.COMMON.now
    assert server is not None
    server.status(0)
    server._idle[0].kill()
    with Loader(Pipe.of(range(10)), workers=1) as loader:
        assert list(loader) == list(range(10))


@pytest.mark.parametrize("workers", [-1, 1.5, True, "2"])
def test_a_wrong_number_of_workers_is_refused(workers: Any) -> None:
    with pytest.raises(BadOption, match="whole number"):
        headrace.warm(workers)
