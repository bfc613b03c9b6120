"""Snapshots of every released version load for ever, and mean the same samples."""

import json
from typing import Any

import pytest

from headrace import Loader
from tests.golden.make import FOLDER, SEED, digest
from tests.golden.pipes import PIPES

GOLDEN = [
    (p.stem, name, case) for p in sorted(FOLDER.glob("*.json")) for name, case in json.loads(p.read_text()).items()
]


def test_there_are_golden_snapshots() -> None:
    assert GOLDEN


@pytest.mark.parametrize(("version", "name", "case"), GOLDEN, ids=[f"{v} {n}" for v, n, _ in GOLDEN])
def test_a_kept_snapshot_gives_the_rest_it_gave_then(version: str, name: str, case: dict[str, Any]) -> None:
    with Loader(PIPES[case["pipe"]], seed=SEED) as loader:
        loader.load_state_dict(case["state"])
        assert digest(loader) == case["rest"]
