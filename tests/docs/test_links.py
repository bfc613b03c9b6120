"""Every link of the README and of the docs that stays inside the repository leads somewhere, headings included."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The headings of a page as code hosts and the site name them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub(lambda code: code[0].strip("`"), page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: {target.name} has no such heading"


def test_every_promise_names_the_test_that_proves_it() -> None:
    (table,) = re.findall(r"^\| \| headrace \|.*?(?=\n\n)", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    head, _, *rows = table.splitlines()
    assert len(rows) >= 6
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == len(head.strip("|").split("|"))
        (proof,) = re.findall(r"\[yes\]\((tests/[\w/]+\.py)\)", cells[1])
        assert "def test_" in (ROOT / proof).read_text()
        for said in cells[2:]:
            assert said == "-" or re.fullmatch(r"\[(yes|no|part)\]\((https://|docs/promises\.md#)\S+\)", said), said


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
