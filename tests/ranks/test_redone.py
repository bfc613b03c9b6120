"""After a crash the loader says how many steps are done again."""

import json
import logging
from pathlib import Path

import pytest

from headrace import Loader, Pipe, World
from tests.laws.pipes import Numbers

PIPE = Pipe.of(Numbers(100)).shuffle().batch(4)


def test_steps_after_the_last_snapshot_are_counted_in_place_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "place.json"
    expected = [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2), (6, 0), (6, 1)]
    with Loader(PIPE, autosave=path, every=3) as loader:
        for counts, _ in zip(expected, loader, strict=False):
            text = path.read_text()
            assert (json.loads(text)["steps"], json.loads(text)["since"]) == counts
    caplog.set_level(logging.INFO)
    with Loader(PIPE, autosave=path, every=3) as loader:
        assert caplog.messages == [
            f"{path}: epoch 0 goes on after step 6; 1 steps that were delivered after it are done again"
        ]
        assert caplog.records[0].levelno == logging.WARNING
        assert len(list(loader)) == 25 - 6
    saved = json.loads(path.read_text())
    assert (saved["epoch"], saved["steps"]) == (1, 0)
    caplog.clear()
    Loader(PIPE, autosave=path, world=World(rank=1, ranks=2))
    assert not caplog.messages


def test_nothing_is_warned_about_where_nothing_is_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "place.json"
    for _ in range(2):
        with Loader(PIPE, autosave=path, every=1) as loader:
            next(iter(loader))
    assert not caplog.messages
