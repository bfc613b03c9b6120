"""Why a test that passes with the original does not pass with ours: `losses.toml`, one entry a reason.

    [[loss]]
    suite = "torchdata"
    class = "private name"          or "documented difference", with a link
    reason = "tests the random engine of the original"
    link = "datapipes.md#what-is-different-on-purpose"
    tests = ["test_seed_generator.py::TestPhilox::test_philox_engine", "test_x.py::TestY*"]

A loss that no entry names is a defect. An entry that names nothing that was lost is out of date, and is reported.
"""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

FILE = Path(__file__).with_name("losses.toml")
PRIVATE, DOCUMENTED, DEFECT = "private name", "documented difference", "defect"


@dataclass(frozen=True, slots=True)
class Entry:
    suite: str
    kind: str
    reason: str
    link: str
    tests: tuple[str, ...]

    def names(self, test: str) -> bool:
        # Brackets are a test's parameters, not a pattern.
        return any(fnmatchcase(test, pattern.replace("[", "[[]")) for pattern in self.tests)


def read(file: Path = FILE) -> list[Entry]:
    entries = []
    for row in tomllib.loads(file.read_text()).get("loss", []):
        entry = Entry(row["suite"], row["class"], row["reason"], row.get("link", ""), tuple(row["tests"]))
        if entry.kind not in (PRIVATE, DOCUMENTED):
            raise ValueError(f"{file.name}: class {entry.kind!r} is neither {PRIVATE!r} nor {DOCUMENTED!r}")
        if entry.kind == DOCUMENTED and not entry.link:
            raise ValueError(f"{file.name}: a documented difference needs a link: {entry.reason}")
        entries.append(entry)
    return entries


def classify(suite: str, test: str, entries: list[Entry]) -> Entry:
    for entry in entries:
        if entry.suite == suite and entry.names(test):
            return entry
    return Entry(suite, DEFECT, "", "", (test,))


def stale(suite: str, lost: list[str], entries: list[Entry]) -> list[str]:
    """Patterns of this suite that name no lost test."""
    return [
        pattern
        for entry in entries
        if entry.suite == suite
        for pattern in entry.tests
        if not any(Entry("", "", "", "", (pattern,)).names(test) for test in lost)
    ]
