"""The table of what it costs to resume, which the site shows in docs/snapshots.md, is made from the ops themselves."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headrace.engine.explain import resume_cost
from headrace.pipe.graph import Pipe

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_every_op_in_the_row_that_explain_gives_it(site: ModuleType) -> None:
    page = site.on_page_markdown((ROOT / "docs" / "snapshots.md").read_text(), page=None)
    rows = dict(line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|") and "` |" in line)
    assert "`filter`" in rows["the input sample at hand"]
    assert "`map`" in rows["nothing of its own"]
    assert "`shuffle`" in rows["about ten buffers"]
    assert "`sequence`" in rows["at most 1000 samples"]
    for pipe in (
        Pipe.of(range(3)),
        Pipe.of(iter).map(str),
        Pipe.of(iter).filter(str),
        Pipe.of(iter).mux(Pipe.of(iter)),
    ):
        assert f"`{pipe.op.name()}`" in rows[resume_cost(pipe)]
