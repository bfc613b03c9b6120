"""Quarantine: a file of the samples that failed and were left out.

JSON lines. One line says which run the samples are of that follow, each other line names a sample:

    {"headrace": "quarantine", "version": 1, "pipe": ["3f2a...", ...], "seed": 7, "ranks": 1, "rank": 0}
    {"epoch": 0, "stage": 0, "position": 1234, "op": "map(decode)", "error": "OSError: truncated", "index": 77}

`position` is the sample's place in the epoch, `index` its number in the dataset (null where that is not known).

Lines are written in the epoch's order, and before the training loop receives the batch. A later run adds to the file.
Samples that fail again (it went on from a snapshot, or is the same run once more) are listed once.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import BadOption

VERSION = 1


@dataclass(frozen=True, slots=True)
class About:
    """The run that samples belong to."""

    pipe: tuple[str, ...]
    """The fingerprint of its pipe."""
    seed: int
    ranks: int = 1
    rank: int = 0

    def line(self) -> str:
        return json.dumps({"headrace": "quarantine", "version": VERSION, **asdict(self)}) + "\n"


@dataclass(frozen=True, slots=True)
class QuarantinedSample:
    """One sample that failed."""

    epoch: int
    stage: int
    position: int
    """Of the sample; for an op on whole batches, the number of the batch among those of all ranks."""
    op: str
    error: str
    index: int | None = None
    """Which sample of the dataset it is, where that is known."""


class Quarantine:
    """Writes a quarantine file. The file is made when the first sample fails, and is open while lines are added."""

    def __init__(self, path: Path, about: About) -> None:
        self.path = path
        self._about = about
        self._begun = False
        self._listed = set(_read(path).get(about, ())) if path.exists() else set()

    @classmethod
    def of_rank(cls, path: str | os.PathLike[str], about: About, skips: bool) -> "Quarantine":
        """The file of this rank, if its loader leaves out samples that fail (`skips`); else an error."""
        if not skips:
            raise BadOption("quarantine= is for samples that are left out: set on_error='skip' or a Budget")
        return cls(path_of_rank(Path(path), about.ranks, about.rank), about)

    def write(self, epoch: int, stage: int, skipped: Iterable[tuple[int, str, str, int | None, bool]]) -> None:
        """Samples of one ticket: (position, op, error, index)."""
        failed = (QuarantinedSample(epoch, stage, *sample[:4]) for sample in skipped)
        new = [sample for sample in failed if sample not in self._listed]
        if not new:
            return
        if not self._begun:
            self._begin()
            self._begun = True
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(sample)) + "\n" for sample in new)
        self._listed.update(new)

    def _begin(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                file.truncate(len(whole.encode()))  # a run that was killed has left half a line
            file.write(self._about.line())


def path_of_rank(path: Path, ranks: int, rank: int) -> Path:
    """Each rank writes a file of its own: bad.jsonl, bad.1.jsonl, bad.2.jsonl, ..."""
    return path if ranks == 1 or rank == 0 else path.with_name(f"{path.stem}.{rank}{path.suffix}")


def read(path: Path) -> dict[About, list[QuarantinedSample]]:
    """For each run, its samples: each once, in the order of the file."""
    found = _read(path)
    if not found:
        raise BadOption(f"quarantine {path}: it is empty")
    return found


def _read(path: Path) -> dict[About, list[QuarantinedSample]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadOption(f"quarantine {path}: {error.strerror}") from None
    found: dict[About, dict[QuarantinedSample, None]] = {}
    about: About | None = None
    # What follows the last end of line was left by a run that was killed while it wrote.
    for number, line in enumerate(text.split("\n")[:-1], 1):
        where = f"quarantine {path}, line {number}"
        value = _object(where, line)
        if "headrace" in value:
            about = _about(where, value)
            found.setdefault(about, {})
        elif about is None:
            raise BadOption(f"{where}: it does not say whose samples follow; is it a quarantine file?")
        else:
            found[about][_entry(where, value)] = None
    return {about: list(entries) for about, entries in found.items()}


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadOption(f"{where}: not a JSON object; is it a quarantine file?")
    return value


def _about(where: str, head: dict[str, Any]) -> About:
    if head["headrace"] != "quarantine" or head.get("version") != VERSION:
        raise BadOption(f"{where}: this is not the line of a quarantine file of version {VERSION}")
    try:
        return About(tuple(head["pipe"]), head["seed"], head["ranks"], head["rank"])
    except (KeyError, TypeError) as error:
        raise BadOption(f"{where}: {error} is missing or wrong") from None


def _entry(where: str, line: dict[str, Any]) -> QuarantinedSample:
    try:
        known = {name: line[name] for name in ("epoch", "stage", "position", "op", "error")}
    except KeyError as error:
        raise BadOption(f"{where}: {error} is missing") from None
    if not all(isinstance(known[name], int) for name in ("epoch", "stage", "position")):
        raise BadOption(f"{where}: epoch, stage and position are whole numbers")
    return QuarantinedSample(**known, index=line.get("index"))
