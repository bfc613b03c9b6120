"""Autosave: a run that was cut anywhere goes on where the last snapshot was written."""

import json
from pathlib import Path

import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, SnapshotRefused
from tests.laws.pipes import Numbers, drawn

PIPE = Pipe.of(Numbers(50)).shuffle().map(drawn).batch(4)


def test_a_new_loader_goes_on_where_the_last_snapshot_was_written(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    whole = [repr(b) for b in Loader(PIPE, seed=1)]
    with Loader(PIPE, seed=1, autosave=path, every=3, workers=2) as loader:
        batches = iter(loader)
        got = [repr(next(batches)) for _ in range(8)]
    with Loader(PIPE, seed=1, autosave=path, every=3) as loader:
        rest = [repr(b) for b in loader]
    assert got[:6] + rest == whole
    assert list(tmp_path.iterdir()) == [path]


def test_only_rank_zero_writes(tmp_path: Path) -> None:
    with Loader(PIPE, autosave=tmp_path / "a.json", every=1, world=World(rank=1, ranks=2)) as loader:
        list(loader)
    assert not list(tmp_path.iterdir())


def test_a_broken_file_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    path.write_text(json.dumps({"version": 1})[:-3])
    with pytest.raises(SnapshotRefused, match=r"place\.json"):
        Loader(PIPE, autosave=path)


def test_a_missing_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="make it first"):
        Loader(PIPE, autosave=tmp_path / "no" / "place.json")
