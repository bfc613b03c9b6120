"""Laws 1 to 4 over columnar pipes."""

import json
import os
import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from tests.depth import depth
from tests.laws.pipes import CHEAP, KINDS, read, shown
from tests.tables.frames import columnar, frame, numbers


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [8, 61, 64, 100])
@pytest.mark.parametrize("ends", ["short", "drop", "pad", "repeat"])
def test_shares_of_columns_are_disjoint_and_complete(rows: int, ranks: int, ends: Any) -> None:
    pipe = Pipe.of(numbers(rows)).shuffle().batch(4)
    whole = np.concatenate([b["k"] for b in Loader(pipe, seed=3)])
    assert sorted(whole.tolist()) == list(range(rows))
    shares = [list(Loader(pipe, seed=3, world=World(r, ranks), ends=ends)) for r in range(ranks)]
    assert len({len(s) for s in shares}) == 1
    got = [k for s in shares for b in s for k in b["k"].tolist()]
    if ends == "short":
        assert sorted(got) == list(range(rows))
    elif ends == "drop":
        assert len(set(got)) == len(got) == rows // (4 * ranks) * 4 * ranks
    else:
        assert set(got) == set(range(rows))


@settings(max_examples=depth(15, 600))
@given(columnar(), st.sampled_from(CHEAP))
def test_the_stream_of_columns_is_the_same_on_every_kind_of_worker(pipe: Pipe[Any], kind: str) -> None:
    assert read(pipe, 2, **KINDS[kind]) == read(pipe, 2)


@settings(max_examples=depth(60, 600))
@given(columnar(ends=(0, 1, 4, 5)))
def test_a_batched_pipe_iterated_by_itself_gives_what_a_loader_gives(pipe: Pipe[Any]) -> None:
    assert [shown(sample) for sample in pipe] == read(pipe, seed=0)


@settings(max_examples=depth(15, 1000))
@given(columnar(), st.integers(0, 30), st.sampled_from(["inline", "fork2"]), st.sampled_from(["inline", "fork5"]))
def test_delivered_and_rest_are_everything_once_in_order(pipe: Pipe[Any], at: int, first: str, then: str) -> None:
    whole = read(pipe)
    at = min(at, len(whole))
    with Loader(pipe, seed=3, **KINDS[first]) as loader:
        samples = iter(loader)
        got = [shown(next(samples)) for _ in range(at)]
        text = json.dumps(loader.state_dict())
    with Loader(pipe, seed=3, **KINDS[then]) as loader:
        loader.load_state_dict(json.loads(text))
        assert got + [shown(s) for s in loader] == whole


def test_a_snapshot_is_small_and_loads_at_another_rank_and_worker_count_and_batch_size() -> None:
    data = {f"column with a long name {i}": np.arange(1000) for i in range(200)}
    name = "column with a long name 7"
    pipe = Pipe.of(data).shuffle()
    order = np.concatenate([b[name] for b in Loader(pipe.batch(8), seed=3)])
    with Loader(pipe.batch(8), seed=3, workers=2, start_method="fork") as loader:
        samples = iter(loader)
        got = np.concatenate([next(samples)[name] for _ in range(11)])
        text = json.dumps(loader.state_dict())
    assert len(text) <= 1024
    rest = []
    for rank in range(2):
        with Loader(pipe.batch(4), seed=3, workers=1, start_method="fork", world=World(rank, 2)) as loader:
            loader.load_state_dict(json.loads(text))
            rest.append([b[name].tolist() for b in loader])
    dealt = [k for step in zip(*rest, strict=True) for batch in step for k in batch]
    assert got.tolist() + dealt == order.tolist()


def test_a_frame_with_another_number_of_rows_refuses_the_snapshot() -> None:
    state = Loader(Pipe.of(numbers(100)).shuffle().batch(4)).state_dict()
    with pytest.raises(ValueError, match=r"frame"):
        Loader(Pipe.of(numbers(99)).shuffle().batch(4)).load_state_dict(state)


KILLED = [("dict", "server"), ("arrow", "fork")]


@pytest.mark.parametrize(("kind", "method"), [*KILLED, *depth([], [("dict", "fork"), ("arrow", "server")])])
def test_killed_workers_do_not_change_the_stream_of_columns(kind: str, method: Any) -> None:
    pipe = (
        Pipe.of(frame(kind, 400))
        .shuffle()
        .map(lambda c: {**c, "r": np.random.rand(len(c["k"]))}, batched=True)
        .batch(4)
    )
    want = read(pipe)
    got = []
    with Loader(pipe, seed=3, workers=2, start_method=method) as loader:
        for i, batch in enumerate(loader):
            got.append(shown(batch))
            if i % depth(20, 9) == 2:
                workers = [w for group in loader._pool.all() for w in group._workers]
                os.kill(workers[i % 2].started.pid, signal.SIGKILL)
        assert loader.stats().retries > 3
    assert got == want


@pytest.mark.parametrize("kind", ["thread3", "fork2", "server3"])
def test_a_column_stays_valid_as_long_as_it_lives(kind: str) -> None:
    data = {f"c{i}": np.arange(20_000, dtype=np.float64) + i for i in range(10)}
    pipe = Pipe.of(data).batch(500)
    with Loader(pipe, **KINDS[kind]) as loader:
        kept = [batch["c3"] for batch in loader]  # one column of each block
        for _ in loader:
            pass
    for number, column in enumerate(kept):
        np.testing.assert_array_equal(column, np.arange(500) + 500 * number + 3)
