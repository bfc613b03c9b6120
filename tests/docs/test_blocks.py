"""Every block of the README and of the docs runs, in the order in which a reader meets them.

Blocks of Python run here, those of one page in one process. Commands (`console`, `bash`) are run by the tests named
below; those of the README that install something, by scripts/newcomer (tests/docs/test_ci.py). What is neither
(`text`, or no word at all) is a drawing, an output, or a program of another library.
"""

import re
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {
    "README.md": "tests/docs/test_readme.py",
    "docs/cli.md": "tests/cli/test_docs.py",
    "docs/replicas.md": "tests/docs/test_blocks.py",
}
"""Page -> the test that runs its commands."""


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language in languages]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


VERBS = ROOT / "docs" / "reference" / "verbs.md"
"""Its blocks are the examples that tests/docs/test_reference.py runs, in a folder with files."""
WITH_BLOCKS = [page for page in PAGES if blocks(page, "python") and page != VERBS]
NEEDS = {"docs/jax.md": "jax"}
"""Page -> the library that its blocks are for, and that only the environment for integrations has."""
RUN = [
    pytest.param(page, id=name(page), marks=pytest.mark.integrations if name(page) in NEEDS else ())
    for page in WITH_BLOCKS
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, run_script: RunScript) -> None:
    code = "\n\n".join(blocks(page, "python"))
    done = run_script(code, timeout=150, warm="torch" in code)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_readme_has_blocks() -> None:
    assert ROOT / "README.md" in WITH_BLOCKS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_block_is_overlooked(page: Path) -> None:
    assert {language for language, _ in BLOCK.findall(page.read_text())} <= {"python", "console", "bash", "text", ""}
    assert page.read_text().count("\n```") == 2 * len(BLOCK.findall(page.read_text())), "a block has no end"
    if blocks(page, "console", "bash"):
        assert (ROOT / COMMANDS[name(page)]).exists()


TRAIN = """
from headrace.replicas import DataLoader, LaunchedOptions

options = LaunchedOptions()
loader = DataLoader(options, range(50_000), batch_size=32)
print(len(loader), loader.combinedBatchSize, options.replication_factor)
"""


@pytest.mark.timeout(120)
def test_the_job_on_the_page_about_replicas_has_the_steps_that_the_page_says(tmp_path: Path) -> None:
    (command,) = blocks(ROOT / "docs" / "replicas.md", "bash")
    program, *arguments = command.split()
    assert program == "headrace"
    (tmp_path / "train.py").write_text(TRAIN)
    arguments[arguments.index("python")] = sys.executable
    done = warm.run(warm.MODULE, ["headrace.cli", *arguments], tmp_path, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"[1,{process}]<stdout>:195 64 2" for process in range(4)]
