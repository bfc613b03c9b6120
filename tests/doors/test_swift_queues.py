"""No argument of a SwiftLoader is accepted and ignored: each of its sizes, and its threads, can be seen at work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.doors.swift.loader import SwiftLoader
from tests.doors.swift_data import Gated, batches, noted, swift, wait_for

pytestmark = pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")

WIDE = {"data_queue_size": 50, "message_queue_size": 50, "max_buffer_size": 50}


@contextmanager
def held(tmp_path: Path, **options: Any) -> Iterator[tuple[SwiftLoader, Callable[[], int]]]:
    """A started loader, one of whose two workers is held at its first sample while somebody waits for it.

    The function says how many batches the other worker has begun.
    """
    file, gate = tmp_path / "read", tmp_path / "gate"
    kwargs = {"count": 200, "file": str(file), "gate": str(gate), "held": 0}
    with swift(Gated, kwargs, shuffle=False, batch_size=1, **{**WIDE, **options}) as loader:
        loader.start(0)
        waiting = threading.Thread(target=next, args=(loader,))
        waiting.start()
        try:
            yield loader, lambda: sum(1 for index in noted(file) if index % 2)
        finally:
            gate.touch()
            waiting.join()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"data_queue_size": 2}, 2),
        ({"data_queue_size": 9}, 9),
        ({"max_buffer_size": 1}, 2),
        ({"max_buffer_size": 8}, 9),
        ({"message_queue_size": 3}, 3),
        ({"message_queue_size": 7}, 7),
    ],
    ids=str,
)
def test_a_worker_runs_as_far_ahead_of_a_slow_one_as_the_sizes_say(
    tmp_path: Path, options: dict[str, int], expected: int
) -> None:
    with held(tmp_path, **options) as (loader, begun):
        assert wait_for(lambda: begun() >= expected)
        assert not wait_for(lambda: begun() > expected, 0.3)
        stats = loader.stats()
    assert stats.in_flight == options.get("message_queue_size", 50)
    assert stats.window == 2 * min(options.get("data_queue_size", 50), options.get("max_buffer_size", 50) + 1)


@pytest.mark.parametrize("sizes", [(1, 1, 0), (1, 5, 3), (5, 1, 0), (3, 2, 1)])
def test_the_smallest_sizes_work(sizes: tuple[int, int, int]) -> None:
    data, message, buffer = sizes
    with swift(data_queue_size=data, message_queue_size=message, max_buffer_size=buffer, shuffle=False) as loader:
        loader.start(0)
        assert batches(loader, 2)[1] == [[i, i + 1, i + 2][: 20 - i] for i in range(0, 20, 3)]


def test_with_threads_as_many_batches_are_decoded_at_once_as_there_are_workers() -> None:
    meeting = threading.Barrier(3)

    def decode(data: bytes) -> str:
        meeting.wait(20)  # passes only if three threads are here together
        return threading.current_thread().name

    options = {"collate_fn": bytes, "batch_encoder": bytes, "batch_decoder": decode, "worker_per_consumer": 3}
    with swift(kwargs=27, **options) as loader:
        loader.start(0)
        threads = set(loader)
        meeting.abort()  # of those who decode what nobody will ask for
        assert loader.stats().decode_threads == 3
    assert len(threads) == 3
    assert all(name.startswith("swift-decode-0") for name in threads)


def test_without_threads_batches_are_decoded_where_they_are_asked_for() -> None:
    options = {"collate_fn": bytes, "batch_encoder": bytes, "batch_decoder": _where, "multithread": False}
    with swift(**options) as loader:
        loader.start(0)
        assert set(loader) == {threading.current_thread().name}
        assert loader.stats().decode_threads == 0


def _where(data: bytes) -> str:
    return threading.current_thread().name


def test_nearby_shuffle_limits_how_far_a_sample_moves() -> None:
    def spread(window: int) -> int:
        with swift(kwargs=400, worker_per_consumer=1, batch_size=20, nearby_shuffle=window) as loader:
            loader.start(0)
            (first,) = batches(loader)
        inside = [max(batch) - min(batch) for batch in first]
        return sorted(inside)[len(inside) // 2]

    assert spread(1) == 19
    assert spread(40) < 40
    assert spread(0) > 200
