"""The short form of scripts/chaos: kills at random moments leave the stream as it was, and nothing behind."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.depth import depth

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "chaos_program.py"


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chaos_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chaos_program"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(1200)
@pytest.mark.may_leave("processes", reason="the clean server lives as long as this process")
def test_kills_at_random_moments_change_nothing_and_leave_nothing() -> None:
    kills, runs = depth((40, 8), (1000, 50))
    figures = program().chaos(kills, runs, seed=5, say=lambda line: None)
    assert figures.violations == []
    assert figures.leaks == []
    assert figures.kills >= kills
    assert figures.recoveries
