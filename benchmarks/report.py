"""The report: measurements to rows, rows to JSON and to a Markdown table, the table into a README.

A cell reads `median (lowest-highest)` over the rounds. A ratio is of the same round; a row is reached when its median
keeps the bound.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.case import Case, Target
from benchmarks.harness import Measurement, Stat, figures, ratios, stat

START = "<!-- bench:start -->"
END = "<!-- bench:end -->"


@dataclass(frozen=True, slots=True)
class Row:
    case: str
    target: Target
    subjects: dict[str, Stat | None]
    answer: Stat | None  # the ratio, or the figure of Headrace itself
    failures: int

    @property
    def reached(self) -> bool | None:
        return None if self.answer is None else self.target.keeps(self.answer.median)


def rows(cases: Sequence[Case], subjects: Sequence[str], measurements: Sequence[Measurement]) -> list[Row]:
    found: list[Row] = []
    for case in cases:
        mine = [m for m in measurements if m.case == case.name]
        failures = sum(m.figures is None for m in mine)
        for target in case.targets:
            values = {name: stat(list(figures(mine, case.name, name, target.figure).values())) for name in subjects}
            if target.ratio:
                answer = stat(ratios(mine, case.name, target.figure, target.ratio))
            else:
                answer = values.get("headrace")
            found.append(Row(case.name, target, values, answer, failures))
    return found


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
            "failures": row.failures,
        }
        for row in found
    ]


def table(found: Sequence[Row], subjects: Sequence[str]) -> str:
    head = ["case", "what", *subjects, "ratio", "target", "reached"]
    lines = [head, ["---"] * 2 + ["---:"] * (len(subjects) + 1) + ["---"] * 2]
    for row in found:
        ratio = cell(row.answer, "x") if row.target.ratio else "-"
        values = [cell(row.subjects[name], row.target.unit) for name in subjects]
        lines.append([row.case, row.target.label, *values, ratio, bound(row.target), verdict(row)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdict(row: Row) -> str:
    word = {True: "yes", False: "**no**", None: "-"}[row.reached]
    return f"{word} ({row.failures} failed)" if row.failures else word


def bound(target: Target) -> str:
    unit = "x" if target.ratio else f" {target.unit}"
    if target.at_least is not None:
        return f">= {number(target.at_least)}{unit}"
    if target.at_most is not None:
        return f"<= {number(target.at_most)}{unit}"
    return "-"


def cell(value: Stat | None, unit: str) -> str:
    if value is None:
        return "-"
    mark = unit if unit == "x" else f" {unit}"
    return f"{number(value.median)}{mark} ({number(value.low)}-{number(value.high)})"


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
