"""The page about the design names what exists: every folder, every word, every step of a sample."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "design.md").read_text()
MOST_WORDS = 26
MOST_FILES = 14
"""That a sample passes in steady state."""


def part(name: str) -> list[str]:
    found = re.search(rf"<!-- {name}:start -->\n(.*?)<!-- {name}:end -->", PAGE, re.DOTALL)
    assert found is not None, name
    return [line for line in found.group(1).splitlines() if line and not line.startswith("```")]


def defined(path: Path) -> set[str]:
    """Functions and classes of a file, and `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found |= {node.name} | {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return found


def test_the_tree_names_every_folder_and_no_other() -> None:
    folders = {str(path.parent.relative_to(SRC)) for path in SRC.rglob("*.py")} - {"."}
    assert {line.split()[0] for line in part("tree")} == folders


def test_words_stand_where_the_glossary_says_and_are_few() -> None:
    rows = [re.match(r"\| (\w+) \| .* \| `(.*)` \|", line) for line in part("glossary")[2:]]
    words = {row.group(1): row.group(2) for row in rows if row is not None}
    assert len(words) == len(rows) <= MOST_WORDS
    wrong = [word for word, room in words.items() if word not in defined(SRC / room)]
    assert not wrong


def test_a_sample_goes_the_way_that_the_page_shows_through_few_files() -> None:
    steps = [line.split()[:2] for line in part("walk")]
    wrong = [(room, function) for room, function in steps if function not in defined(SRC / room)]
    assert not wrong
    assert len({room for room, _ in steps}) <= MOST_FILES
