"""Snapshots that were kept load for ever, and mean the same samples; those of version 1 are refused."""

import json
from typing import Any

import pytest

from headrace import Loader
from headrace.errors import SnapshotRefused
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


def test_a_snapshot_of_headrace_0_1_is_refused_with_that_reason() -> None:
    old = {"version": 1, "pipe": PIPES["indexed"].fingerprint(), "seed": SEED, "epoch": 2, "at": [["p", 8], 0, 0]}
    with pytest.raises(SnapshotRefused, match=r"version 1 is not known: it was taken by headrace 0\.1"):
        Loader(PIPES["indexed"], seed=SEED).load_state_dict(old)
