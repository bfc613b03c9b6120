"""The table of targets: measurements to rows, rows to JSON and to Markdown, the Markdown into a README.

A cell reads `median (lowest-highest)` over the rounds. A ratio is of the same round; a row is reached when its median
keeps the bound. Cases for the door ask the same of `headrace.DataLoader`, where that was measured too.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import roster
from benchmarks.case import Case, Target
from benchmarks.harness import Measurement, Stat, figures, ratios, stat

OURS, DOOR, THEIRS = roster.TABLE
START = "<!-- bench:start -->"
END = "<!-- bench:end -->"


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    target: Target
    subjects: dict[str, Stat | None]
    answer: Stat | None  # the ratio, or the figure of Headrace itself
    failures: int
    door: Stat | None = None  # the same through `headrace.DataLoader`

    @property
    def reached(self) -> bool | None:
        return self._keeps(self.answer)

    @property
    def door_reached(self) -> bool | None:
        return self._keeps(self.door)

    def _keeps(self, value: Stat | None) -> bool | None:
        return None if value is None else self.target.keeps(value.median)


def rows(cases: Sequence[Case], subjects: Sequence[str], measurements: Sequence[Measurement]) -> list[Row]:
    found: list[Row] = []
    for case in cases:
        mine = [m for m in measurements if m.case == case.name]
        for target in case.targets:
            asked = {*subjects, *(target.ratio or ())}
            failures = sum(m.figures is None and m.subject in asked for m in mine)
            values = {name: stat(list(figures(mine, case.name, name, target.figure).values())) for name in subjects}
            if target.ratio:
                answer, door = (stat(ratios(mine, case.name, target.figure, pair)) for pair in pairs(target.ratio))
            else:
                answer, door = values.get(OURS), values.get(DOOR)
            if not case.door:
                door = None
            found.append(Row(case.name, target, values, answer, failures, door))
    return found


def pairs(ratio: tuple[str, str]) -> tuple[tuple[str, str], tuple[str, str]]:
    """Whom a ratio compares; and the same with the door in our place, or nobody where torch is not the other."""
    if set(ratio) != {OURS, THEIRS}:
        return ratio, ("", "")
    above, below = (DOOR if name == OURS else name for name in ratio)
    return ratio, (above, below)


def as_json(found: Sequence[Row]) -> list[dict[str, Any]]:
    def plain(value: Stat | None) -> dict[str, float] | None:
        return None if value is None else {**asdict(value), "spread": value.spread}

    return [
        {
            "case": row.case,
            "label": row.target.label,
            "unit": row.target.unit,
            "bound": bound(row.target),
            "subjects": {name: plain(value) for name, value in row.subjects.items()},
            "answer": plain(row.answer),
            "reached": row.reached,
            "door": plain(row.door),
            "door reached": row.door_reached,
            "failures": row.failures,
        }
        for row in found
    ]


def table(found: Sequence[Row], subjects: Sequence[str]) -> str:
    door = DOOR in subjects
    head = ["case", "what", *map(roster.title, subjects), "ratio", *(["ratio, DataLoader"] if door else [])]
    lines = [[*head, "target", "reached"]]
    lines.append(["---"] * 2 + ["---:"] * (len(head) - 2) + ["---"] * 2)
    for row in found:
        ratio = [
            cell(value, "x") if row.target.ratio else "-"
            for value in ([row.answer, row.door] if door else [row.answer])
        ]
        values = [cell(row.subjects[name]) for name in subjects]
        what = row.target.label if row.target.unit == "x" else f"{row.target.label} ({row.target.unit})"
        lines.append([row.case, what, *values, *ratio, bound(row.target), verdict(row)])
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def verdict(row: Row) -> str:
    words = {True: "yes", False: "**no**", None: "-"}
    word = words[row.reached]
    if row.door_reached is not None and row.door_reached is not row.reached:
        word += f", DataLoader {words[row.door_reached]}"
    return f"{word} ({row.failures} failed)" if row.failures else word


def bound(target: Target) -> str:
    unit = "x" if target.ratio else f" {target.unit}"
    if target.at_least is not None:
        return f">= {number(target.at_least)}{unit}"
    if target.at_most is not None:
        return f"<= {number(target.at_most)}{unit}"
    return "-"


def cell(value: Stat | None, mark: str = "") -> str:
    if value is None:
        return "-"
    ends = f" ({number(value.low)}-{number(value.high)})" if value.count > 1 else ""
    return f"{number(value.median)}{mark}{ends}"


def number(value: float) -> str:
    """Three figures that count, and no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def document(
    found: Sequence[Row],
    subjects: Sequence[str],
    measurements: Sequence[Measurement],
    hardware: dict[str, Any],
    versions: dict[str, str],
) -> str:
    place = f"{hardware['processor']}, {hardware['cores']} cores, {hardware['memory GB']} GB, {hardware['system']}"
    software = ", ".join(f"{name} {value}" for name, value in versions.items())
    rounds = max((m.round for m in measurements), default=0)
    others = stat([m.others for m in measurements])
    noise = f" Other processes took {others.median:.2f} cores meanwhile (most {others.high:.2f})." if others else ""
    return (
        f"{table(found, subjects)}\n\n"
        f"Median (lowest-highest) over {rounds} round(s), each measurement in a fresh process, ratios within a round. "
        f"{place}; {software}.{noise}\n"
    )


def into_readme(readme: Path, text: str) -> None:
    """Put the text between the two marks of a README, in place of what was there."""
    old = readme.read_text()
    if old.count(START) != 1 or old.count(END) != 1 or old.index(START) > old.index(END):
        raise ValueError(
            f"{readme} needs one line {START} and, below it, one line {END}; add them where the table goes"
        )
    before, _, rest = old.partition(START)
    readme.write_text(f"{before}{START}\n{text.strip()}\n{END}{rest.partition(END)[2]}")
