"""A release can be built and proven from this tree, and nothing is published by looking."""

import subprocess
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    assert f'version = "{headrace.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"version: {headrace.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {headrace.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.integrations
@pytest.mark.timeout(900)
def test_a_dry_run_builds_checks_and_runs_what_would_be_published() -> None:
    done = subprocess.run(["scripts/release", "--dry-run"], cwd=ROOT, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was" in done.stdout.splitlines()[-1]
