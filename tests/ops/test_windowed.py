import json
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.ops.shape import windowed
from headrace.ops.shape.windowed import SlidingWindow
from headrace.pipe.graph import Pipe
from headrace.testing import check_op

EXAMPLES = {"SlidingWindow": lambda of, at: of(list(range(13))).windowed(4, 2)}


def windows(samples: list[Any], size: int, step: int) -> list[list[Any]]:
    """What they are, by slices."""
    return [samples[i : i + size] for i in range(0, len(samples) - size + 1, step)]


def numbers(count: int) -> Any:
    return Pipe.of(lambda: iter(range(count)))


def test_windows_are_slices_for_every_small_length_size_and_step() -> None:
    for count in range(8):
        for size in range(1, 6):
            for step in range(1, 6):
                want = windows(list(range(count)), size, step)
                listed = Pipe.of(list(range(count))).windowed(size, step)
                assert list(listed) == list(Loader(listed)) == list(numbers(count).windowed(size, step)) == want
                assert len(listed) == len(want)


@pytest.mark.parametrize(("size", "step"), [(3, 1), (1, 1), (2, 3), (3, 3), (9, 4)])
def test_it_keeps_the_contract(size: int, step: int) -> None:
    check_op(SlidingWindow(size, step), range(11))


@pytest.mark.parametrize("apart", [1, 5, 1000])
@pytest.mark.parametrize(("size", "step"), [(4, 1), (4, 3), (3, 5), (5, 5)])
def test_it_resumes_after_every_window(size: int, step: int, apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed, "APART", apart)
    pipe = numbers(40).windowed(size, step)
    whole = windows(list(range(40)), size, step)
    for at in range(len(whole) + 1):
        cursor: Any = iter(pipe)
        front = [next(cursor) for _ in range(at)]
        state = json.loads(json.dumps(cursor.state()))
        assert front + list(cursor._opening.open(pipe, state)) == whole


def test_going_on_far_into_a_stream_reads_little_again() -> None:
    pipe = numbers(10_000).windowed(8, 2)
    cursor: Any = iter(pipe)
    for _ in range(4000):
        next(cursor)
    (emitted, skip, note, _, _) = cursor.state()
    assert note >= 8000 - 1000
    assert emitted + skip == 4000
    assert skip <= 500 + 4
    assert "1000 samples and a window" in pipe.explain()


def test_workers_change_nothing() -> None:
    pipe = numbers(50).windowed(5, 2).batch(3)
    with Loader(pipe, workers=2, kind="thread") as loader:
        assert list(loader) == list(pipe)


def test_overlapping_windows_do_not_share_what_can_be_changed() -> None:
    pipe = Pipe.of(lambda: iter([[i] for i in range(5)])).windowed(2)
    for window in pipe:
        assert window[0][0] + 1 == window[1][0]
        window[1][0] += 10


@pytest.mark.parametrize(("size", "step"), [(0, 1), (-1, 1), (2, 0), (True, 1), (1.5, 1)])
def test_sizes_and_steps_are_positive_whole_numbers(size: Any, step: Any) -> None:
    with pytest.raises(BadOption, match="positive whole number"):
        Pipe.of([1]).windowed(size, step)
