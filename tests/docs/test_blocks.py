"""Every Python block of the README and of the docs runs, in the order in which a reader meets them."""

import re
from pathlib import Path

import pytest

from tests.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=[str(p.relative_to(ROOT)) for p in WITH_BLOCKS])
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, run_script: RunScript) -> None:
    blocks = BLOCK.findall(page.read_text())
    done = run_script("\n\n".join(blocks), timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_readme_has_blocks() -> None:
    assert ROOT / "README.md" in WITH_BLOCKS
