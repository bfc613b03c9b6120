"""The table of docs/formats.md: each stored format beside the reader that it comes with, out of measurements alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import cases, roster
from benchmarks.harness import Measurement, figures, ratios, stat
from benchmarks.report import OURS, cell, markdown, number

PREFIX = "formats_"
HEAD = [
    "format",
    "order",
    "first batch from the middle",
    "index a sample",
    "headrace",
    "beside",
    "samples a second",
    "headrace is",
]


def text(found: Sequence[Measurement], about: Mapping[str, Any]) -> str:
    lines = [HEAD, ["---"] * 2 + ["---:"] * 3 + ["---", "---:", "---:"]]
    for case in cases.select([f"{PREFIX}*"]):
        ours = {name: stat(list(figures(found, case.name, OURS, name).values())) for name in FIGURES}
        if ours["samples/s"] is None:
            continue
        later, index = ours["resume ms"], ours["index bytes"]
        said = [
            f"`{case.name.removeprefix(PREFIX)}`",
            "any permutation",
            "-" if later is None else f"{later.median:+.0f} ms",
            "-" if index is None else f"{number(index.median)} bytes" if index.median else "none",
            cell(ours["samples/s"]),
        ]
        for target in case.targets:
            if target.ratio is None:
                continue
            other = target.ratio[1]
            theirs = stat(list(figures(found, case.name, other, "samples/s").values()))
            by = stat(ratios(found, case.name, "samples/s", target.ratio))
            lines.append([*said, roster.title(other), cell(theirs), cell(by, "x")])
            said = [""] * len(said)
    place = about["hardware"]
    where = f"{place['processor']}, {place['cores']} cores, {about['when'][:10]}, commit {about['commit'][:7]}"
    return f"{markdown(lines)}\n\n{NOTE.format(rounds=max((m.round for m in found), default=0), where=where)}"


FIGURES = ("samples/s", "resume ms", "index bytes")
NOTE = """Samples a second with 2 workers in batches of 32, shuffled, files in the page cache; median (lowest-highest)
of {rounds} rounds, each measurement in a fresh process, loaders take turns, ratios within a round. "From the middle":
how much longer the first batch takes with a snapshot of the middle of an epoch than without. The format's own reader
stands behind torch's DataLoader, and reads a batch in one call where it can; tar is read in order by all three.
{where}."""
