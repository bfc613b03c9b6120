"""Pages that are made from the code say what the code says, and every verb has an example that runs."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from headrace.engine.explain import resume_cost
from headrace.pipe.graph import Pipe

ROOT = Path(__file__).resolve().parents[2]


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


REFERENCE = module(ROOT / "scripts" / "reference.py")
EXAMPLES = module(ROOT / "docs" / "reference" / "examples.py")
SHOWN: dict[str, Callable[[], None]] = {n[5:]: f for n, f in vars(EXAMPLES).items() if n.startswith("verb_")}


def test_pages_that_are_made_from_the_code_are_up_to_date() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        assert REFERENCE.filled(text) == text, f"{page.name} is old: run scripts/docs --reference"


def test_every_verb_of_a_pipe_has_an_example_and_every_example_a_verb() -> None:
    verbs = {name for _, names in REFERENCE.sections() for name in names}
    assert verbs == SHOWN.keys()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EXAMPLES.make_files(tmp_path)
    for name, example in SHOWN.items():
        try:
            example()
        except Exception as error:
            raise AssertionError(f"the example of {name}() does not run") from error


def test_the_table_of_costs_has_every_op_in_the_row_that_explain_gives_it() -> None:
    page = REFERENCE.resume_table()
    rows = dict(line.strip("| ").split(" | ") for line in page.splitlines() if "` |" in line)
    assert "`shuffle(buffer_size=)`" in rows["about ten buffers"]
    for pipe in (
        Pipe.of(range(3)),
        Pipe.of(iter),
        Pipe.of(iter).map(str),
        Pipe.of(iter).filter(str),
        Pipe.of(iter).mux(Pipe.of(iter)),
    ):
        written = REFERENCE.WRITTEN.get(pipe.op.name(), pipe.op.name())
        assert f"`{written}`" in rows[resume_cost(pipe)]
