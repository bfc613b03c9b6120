"""The page about the design names what exists: every folder, every word, every step of a sample."""

import ast
import json
import re
from pathlib import Path

from tests.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "design.md").read_text()
MOST_WORDS = 26
MOST_FILES = 13
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


TRACED = """
import json, sys
from pathlib import Path
import numpy as np
import headrace
from headrace import Loader, Pipe

HOUSE = f"{Path(headrace.__file__).parent}/"
met = {}

def note(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(HOUSE):
        met.setdefault(file.removeprefix(HOUSE), []).append(frame.f_code.co_qualname)

def stop(where):
    sys.setprofile(None)
    with open(where, "w") as file:
        json.dump(met, file)

class Data:
    def __len__(self):
        return 400
    def __getitem__(self, i):
        if i == 200:
            sys.setprofile(note)
        if i == 320:
            stop("worker.json")
        return {"x": np.full(100, i)}

with Loader(Pipe.of(Data()).batch(8).collate(), workers=1, start_method="fork") as loader:
    for number, batch in enumerate(loader):
        if number == 20:
            sys.setprofile(note)
        if number == 40:
            stop("consumer.json")
"""
USERS = ("op.py", "ops/", "sources/")
"""Where the user's own ops and sources would stand."""


def test_in_the_middle_of_an_epoch_a_sample_goes_that_way_and_no_other(run_script: RunScript, tmp_path: Path) -> None:
    done = run_script(TRACED)
    assert done.returncode == 0, done.stderr
    met: dict[str, set[str]] = {}
    for side in ("worker", "consumer"):
        for room, functions in json.loads((tmp_path / f"{side}.json").read_text()).items():
            met.setdefault(room, set()).update(functions)
    steps = {(room, function) for room, function, *_ in map(str.split, part("walk"))}
    assert not {(room, function) for room, function in steps if function not in met.get(room, ())}
    named = {room for room, _ in steps} | {line.split()[0] for line in part("beside")}
    assert {room for room in met if not room.startswith(USERS)} == named, (
        "docs/design.md, 'The way of one sample': name what is called for each ticket, there or in the list behind it"
    )
