"""What a loader says about its own past: lineage of any step, and a quarantine of what it left out."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.engine.policy import Budget
from headrace.errors import BadOption, TooManyErrors
from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.observe.quarantine import read
from headrace.op import rng
from headrace.pipe.graph import Pipe
from headrace.plan.world import World
from tests.depth import depth


def augmented(x: int) -> Any:
    return np.array([x, random.random(), rng().random()])


BAD = {1000 * k + 7 for k in range(4)}


def fragile(x: int) -> int:
    if x in BAD:
        raise ValueError(f"sample {x} is broken")
    return x


def test_fifty_random_past_batches_are_made_again_bit_by_bit() -> None:
    pipe = Pipe.of(range(5000)).shuffle().map(augmented).batch(16).collate()
    with Loader(pipe, workers=2, seed=3) as loader:
        past = [[digest(batch) for batch in loader] for _ in range(2)]
        for number in range(depth(50, 300)):
            epoch, step = number % 2, number * 37 % len(past[0])
            lineage = loader.lineage(step, epoch)
            assert digest(lineage.batch()) == past[epoch][step]
            assert lineage.positions == tuple(range(16 * step, min(5000, 16 * step + 16)))
            origins = {origin.position for places in lineage.origins() for origin in places}
            assert origins == set(np.asarray(lineage.batch())[:, 0].astype(int))


def test_without_an_epoch_the_one_begun_last_is_meant_from_where_it_went_on() -> None:
    pipe = Pipe.of(range(64)).shuffle().batch(4)
    with Loader(pipe, seed=3) as first:
        epoch = iter(first)
        front = [next(epoch) for _ in range(5)]
        state = first.state_dict()
        assert first.lineage(2).batch() == front[2]
    with Loader(pipe, seed=3) as second:
        second.load_state_dict(state)
        rest = list(second)
        assert [second.lineage(step).batch() for step in range(len(rest))] == rest
        later = list(second)
        assert second.lineage(1).batch() == later[1]
        assert second.lineage(1, epoch=0).batch() == front[1], "another epoch is counted from its start"


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 2, "kind": "thread"}])
def test_a_thousandth_of_bad_samples_is_left_out_listed_and_left_out_again(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "bad.jsonl"
    pipe = Pipe.of(range(4000)).shuffle().map(fragile).batch(16)

    def loader(**more: Any) -> Loader[Any]:
        return Loader(pipe, seed=3, on_error=Budget(fraction=0.01), **options, **more)

    with loader(quarantine=path) as first:
        batches = list(first)
        assert [first.lineage(step).batch() for step in (0, 100, 249)] == [batches[0], batches[100], batches[249]]
    ((about, entries),) = read(path).items()
    assert (about.seed, about.pipe) == (3, tuple(pipe.fingerprint()))
    assert {entry.error for entry in entries} == {f"ValueError: sample {x} is broken" for x in BAD}
    assert [entry.position for entry in entries] == sorted(entry.position for entry in entries), "in the epoch's order"
    with loader(quarantine=path) as second:
        assert list(second) == batches
    assert read(path) == {about: entries}


def test_a_budget_that_is_spent_has_its_samples_in_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    pipe = Pipe.of(range(4000)).map(fragile).batch(16)
    with Loader(pipe, on_error=Budget(count=2), quarantine=path) as loader, pytest.raises(TooManyErrors):
        list(loader)
    (entries,) = read(path).values()
    assert [entry.position for entry in entries] == [7, 1007, 2007]


def test_each_rank_writes_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    for rank in range(3):
        world = World(rank=rank, ranks=3)
        list(Loader(Pipe.of(range(4000)).map(fragile).batch(16), on_error="skip", world=world, quarantine=path))
    files = [read(tmp_path / name) for name in ("bad.jsonl", "bad.1.jsonl", "bad.2.jsonl")]
    found = [{entry.position for entries in file.values() for entry in entries} for file in files]
    assert set.union(*found) == BAD
    assert sum(map(len, found)) == len(BAD)


def test_no_failure_leaves_no_file(tmp_path: Path) -> None:
    list(Loader(Pipe.of(range(40)).batch(4), on_error="skip", quarantine=tmp_path / "bad.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_a_quarantine_needs_samples_to_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="on_error='skip'"):
        Loader(Pipe.of(range(4)), quarantine=tmp_path / "bad.jsonl")
