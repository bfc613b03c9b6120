"""Frozen memory in several processes: one copy for all, opened by whoever may, freed with its last view."""

import copy
import gc
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace.errors import Closed, NotPicklable
from headrace.memory import arena, segment
from headrace.memory.share import share
from tests.depth import depth
from tests.leaks import descriptors

ROOT = Path(__file__).parents[2]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name reaches new processes on Linux only")


class Point(NamedTuple):
    x: float
    tags: list[str]


def records(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"img_{i}.jpg", "label": i % 10} for i in range(count)]


def _write_and_read(shared: Any) -> Any:
    shared[0].add_(1)
    return shared[0].tolist(), shared[1].tolist()


def _thaw(shared: Any) -> Any:
    return copy.deepcopy(shared)


def _identity(shared: Any) -> int:
    """The inode of the memory: the same number is the same memory."""
    return os.fstat(shared._column.segment.fd).st_ino


def _run(connection: Connection, function: Any, shared: Any) -> None:
    connection.send(function(shared))


def _in_new_process(method: str, function: Any, shared: Any) -> Any:
    context = multiprocessing.get_context(method)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(there, function, shared))  # type: ignore[attr-defined]
    process.start()
    there.close()
    try:
        return here.recv()
    finally:
        here.close()
        process.join(20)
        assert process.exitcode == 0


@LINUX
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_reads_the_very_same_memory(method: str) -> None:
    original: Any = {"rows": records(100), "named": Point(1.5, ["a"]), "keys": {1: "a", None: "b"}}
    shared = share(original)
    thawed = _in_new_process(method, _thaw, shared)
    assert thawed == original
    assert type(thawed["named"]) is Point
    assert _in_new_process(method, _thaw, shared["rows"][10:20]) == original["rows"][10:20]
    assert _in_new_process(method, _identity, shared["rows"]) == _identity(shared)


@LINUX
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_arrays_and_tensors_reach_other_processes_and_a_write_to_a_tensor_stays_at_home(method: str) -> None:
    torch = pytest.importorskip("torch")
    shared = share([torch.ones(3), np.arange(3)])
    assert _in_new_process(method, _write_and_read, shared) == ([2.0, 2.0, 2.0], [0, 1, 2])
    assert shared[0].tolist() == [1.0, 1.0, 1.0]


def _answer_with_a_view(connection: Connection, shared: Any) -> None:
    connection.recv()
    connection.send(shared[1])
    connection.recv()


@LINUX
def test_a_view_made_by_a_worker_opens_after_the_maker_has_let_go() -> None:
    before = descriptors()["memfd"]
    shared = share(records(3))
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    worker = context.Process(target=_answer_with_a_view, args=(there, shared))
    worker.start()
    del shared
    assert descriptors()["memfd"] == before
    here.send("now")
    assert here.recv() == records(3)[1]
    here.send("done")
    worker.join(20)
    assert worker.exitcode == 0
    here.close()
    there.close()


MAKER = """
import pickle, sys
from headrace.memory.share import share
shared = share({"rows": [1, 2, 3], "other": [{"a": 1}]})
print(pickle.dumps(shared).hex(), flush=True)
sys.stdin.read()
"""


@LINUX
def test_an_open_view_outlives_its_maker_and_a_late_opener_is_told_why() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as maker:
        assert maker.stdout is not None
        ticket = bytes.fromhex(maker.stdout.readline())
        shared = pickle.loads(ticket)
        assert maker.communicate(timeout=20) is not None
    assert shared == {"rows": [1, 2, 3], "other": [{"a": 1}]}
    assert pickle.loads(ticket)["rows"] == [1, 2, 3]
    del shared
    with pytest.raises(Closed, match=f"process {maker.pid} has ended, .* Keep the object"):
        pickle.loads(ticket)


@LINUX
def test_a_ticket_is_not_fooled_by_another_segment_under_the_same_number() -> None:
    shared = share([1, 2, 3])
    number, ticket = shared._column.segment.fd, pickle.dumps(shared)  # type: ignore[attr-defined]
    del shared
    other = share([4, 5, 6])
    assert other._column.segment.fd == number  # type: ignore[attr-defined]
    with pytest.raises(Closed):
        pickle.loads(ticket)
    del other
    pipe, end = os.pipe()
    try:
        with pytest.raises(Closed):
            pickle.loads(ticket)
    finally:
        os.close(pipe)
        os.close(end)


# Lifetime -------------------------------------------------------------------------------------------------------


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count(segment.NAME)


@LINUX
def test_memory_is_freed_when_the_last_view_dies_and_not_before() -> None:
    before = descriptors(), mappings()
    gc.disable()  # by reference, not by the next collection
    try:
        shared: Any = share({"rows": records(10), "arrays": [np.arange(5), np.arange(3)]})
        again = pickle.loads(pickle.dumps(shared))
        assert mappings() == before[1] + 1
        row = shared["rows"][3]
        del shared, again
        assert row["name"] == "img_3.jpg"
        del row
        assert (descriptors(), mappings()) == before

        part = share([np.arange(5)])[0][1:3]
        assert part.tolist() == [1, 2]
        del part
        assert (descriptors(), mappings()) == before
    finally:
        gc.enable()


@LINUX
def test_the_memory_is_sealed_for_good() -> None:
    shared = share([b"x" * 10_000])
    path = f"/proc/self/fd/{shared._column.segment.fd}"  # type: ignore[attr-defined]
    writable = os.open(path, os.O_RDWR)
    try:
        for attempt in (lambda: os.ftruncate(writable, 0), lambda: os.pwrite(writable, b"y", 0)):
            with pytest.raises(PermissionError):
                attempt()
    finally:
        os.close(writable)


def test_where_there_is_no_memfd_a_file_without_a_name_serves_forks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(segment, "LINUX", False)
    monkeypatch.setattr(arena, "LINUX", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = share(records(10))
    assert list(tmp_path.iterdir()) == []
    assert shared == records(10)
    assert _in_new_process("fork", _thaw, shared) == records(10)
    with pytest.raises(NotPicklable, match="by fork only"):
        pickle.dumps(shared)


# The lab --------------------------------------------------------------------------------------------------------


@pytest.mark.deep
@LINUX
@pytest.mark.timeout(depth(60, 600))
def test_workers_that_read_all_of_a_shared_list_do_not_grow() -> None:
    pytest.importorskip("torch")
    lab = [sys.executable, "-W", "ignore", str(ROOT / "examples/labs/memory_growth.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    items = str(depth(200_000, 2_000_000))
    done = subprocess.run(
        [*lab, "--items", items], env=environment, capture_output=True, text=True, timeout=depth(50, 500)
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(plain list|shared) +(\d) .* (-?[\d.]+)%$", done.stdout, re.MULTILINE)
    assert [(name, int(worker)) for name, worker, _ in rows] == [
        *(("plain list", worker) for worker in range(4)),
        *(("shared", worker) for worker in range(4)),
    ]
    for name, worker, growth in rows:
        # Percent of the list's size, between the first and the last sample.
        if name == "shared":
            assert float(growth) < 10, f"worker {worker}:\n{done.stdout}"
        else:
            assert float(growth) > 25, f"the lab shows nothing:\n{done.stdout}"
