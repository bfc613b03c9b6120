"""A snapshot of a pipe is refused by a pipe with other arguments, and the refusal says what was there and what is."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import SnapshotRefused

pa: Any = pytest.importorskip("pyarrow")
pc: Any = pytest.importorskip("pyarrow.compute")
pandas: Any = pytest.importorskip("pandas")
polars: Any = pytest.importorskip("polars")

N = 40
FRAMES = {
    "dict": lambda columns: columns,
    "pandas": lambda columns: pandas.DataFrame(columns),
    "polars": lambda columns: polars.DataFrame(columns),
    "arrow": lambda columns: pa.table(columns),
}


def frame(kind: str) -> Any:
    return FRAMES[kind]({"id": np.arange(N), "x": np.linspace(0, 1, N), "town": np.arange(N) % 4})


def rows(pipe: Any) -> dict[str, Any]:
    """Pipes over the same rows that differ in one argument each."""
    return {
        "all": pipe,
        "first half": pipe.filter(pc.field("id") < N // 2),
        "second half": pipe.filter(pc.field("id") >= N // 2),
        "two columns": pipe.select("id", "x"),
        "other columns": pipe.select("id", "town"),
        "renamed": pipe.rename(x="y"),
        "many columns": pipe.map(wide, batched=True).select(*[f"c{i}" for i in range(20)]),
        "many others": pipe.map(wide, batched=True).select(*[f"c{i}" for i in range(1, 21)]),
    }


def wide(columns: Any) -> dict[str, Any]:
    return {f"c{i}": np.asarray(columns["id"]) + i for i in range(21)}


def check_all_differ(make: Callable[[], dict[str, Any]]) -> None:
    prints = {name: tuple(pipe.fingerprint()) for name, pipe in make().items()}
    assert len(set(prints.values())) == len(prints), "two pipes are taken for the same"
    assert {name: tuple(pipe.fingerprint()) for name, pipe in make().items()} == prints


@pytest.mark.parametrize("kind", FRAMES)
def test_every_argument_of_a_frame_pipe_is_compared(kind: str) -> None:
    check_all_differ(lambda: rows(Pipe.of(frame(kind))))


def test_every_argument_of_a_pipe_over_files_is_compared(tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    pq.write_table(frame("arrow"), tmp_path / "a.parquet")

    def make() -> dict[str, Any]:
        pipe = Pipe.parquet(tmp_path / "a.parquet")
        # As many rows of each row group are left by both.
        close = {f"x >= {low}": pipe.filter(pc.field("x") >= low) for low in (0.001, 0.002)}
        return {**rows(pipe), **close}

    check_all_differ(make)


def test_a_snapshot_is_refused_under_the_opposite_filter() -> None:
    halves = [Pipe.of(frame("pandas")).filter(e).batch(4) for e in (pc.field("id") < 20, pc.field("id") >= 20)]
    with Loader(halves[0]) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with Loader(halves[1]) as other, pytest.raises(SnapshotRefused, match=r"here frame\(20 of 40 rows"):
        other.load_state_dict(state)


def test_the_refusal_says_what_was_there_and_what_is() -> None:
    def packed(**options: Any) -> Any:
        texts = Pipe.of([np.arange(5)] * 50)
        return texts.pack(8, **options)

    with Loader(packed(overlap=1, drop_tail=True)) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for other, now in (({"overlap": 2, "drop_tail": True}, "overlap=2"), ({"separator": 3}, "separator=3")):
        with pytest.raises(SnapshotRefused) as refused, Loader(packed(**other)) as loader:
            loader.load_state_dict(state)
        then = r"\(then pack\(8, .*overlap=1, drop_tail=True"
        assert now in str(refused.value)
        refused.match(then)


def test_words_about_ops_stay_within_their_bytes() -> None:
    pipe: Any = Pipe.of(range(10))
    for count in range(1, 40):
        pipe = pipe.map(a_function_with_quite_a_long_name_so_that_it_is_cut_behind_its_hundredth_letter)
        with Loader(pipe) as loader:
            state = loader.state_dict()
        words = state.pop("ops", [])
        assert len(json.dumps(words)) <= 330
        assert len(words) in (0, count + 1)
    assert not words


def a_function_with_quite_a_long_name_so_that_it_is_cut_behind_its_hundredth_letter(x: int) -> int:
    return x
