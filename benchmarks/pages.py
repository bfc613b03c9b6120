"""The page of results: who is first in which case, by how much, and why somebody has no figure.

A case becomes a table with a row for each subject, best first. "headrace is" compares within a round, so that more
than 1x means that Headrace is the faster, or the smaller, one. Nothing is left out in silence: a failure shows its
reason, and so does a subject that has no part in a case.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import roster
from benchmarks.case import Case, Target
from benchmarks.harness import Measurement, Stat, figures, ratios, stat
from benchmarks.report import OURS, cell, markdown, rows, table

HEAD = """# Benchmarks

Made by `{command}`; not written by hand. Every measurement runs in a fresh process, the subjects of a case take turns,
and a figure is `median (lowest-highest)` over the rounds ({rounds} here). A loader that loses, repeats or (where it
promises an order) reorders samples gets no figure. "headrace is" is taken within a round: 2x means that Headrace
(`headrace.Loader` with worker processes) is twice as fast, or needs half. What the cases do exactly is in
`benchmarks/cases/`, how each loader is set up in `benchmarks/subjects/`.
"""


def page(
    cases: Sequence[Case],
    subjects: Sequence[str],
    found: Sequence[Measurement],
    absent: Mapping[str, str],
    about: Mapping[str, Any],
) -> str:
    """`absent`: why a subject is not installed. `about`: command, hardware, versions by subject, when."""
    rounds = max((m.round for m in found), default=0)
    shown = [name for name in roster.TABLE if name in subjects]
    parts = [
        HEAD.format(command=about["command"], rounds=rounds),
        "## Who is first\n",
        summary(cases, subjects, found),
        "\n## Targets\n",
        table(rows([case for case in cases if not roster.reason(case, OURS)], shown, found), shown),
        "\n## Case by case\n",
        *(section(case, subjects, found, absent) for case in cases),
        "## Who was measured, and where\n",
        *whereabouts(subjects, found, absent, about),
    ]
    return "\n".join(parts)


def summary(cases: Sequence[Case], subjects: Sequence[str], found: Sequence[Measurement]) -> str:
    lines = [["case", "figure", "first", "best of Headrace", "best of the others", "Headrace is"]]
    lines.append(["---"] * 4 + ["---", "---:"])
    for case in cases:
        for target in measured(case):
            ranks = ranking(case, target, subjects, found)
            ours = next(((name, value) for name, value in ranks if name in roster.OURS), None)
            theirs = next(((name, value) for name, value in ranks if name not in roster.OURS), None)
            if not ours or not theirs:
                continue
            by = times(found, case, target, ours[0], theirs[0])
            lines.append(
                [
                    case.name,
                    f"{target.figure} ({target.unit})" if target.unit != target.figure else target.unit,
                    roster.title(ranks[0][0]) if ranks[0][0] in roster.OURS else f"**{roster.title(ranks[0][0])}**",
                    f"{roster.title(ours[0])} {cell(ours[1])}",
                    f"{roster.title(theirs[0])} {cell(theirs[1])}",
                    cell(by, "x"),
                ]
            )
    return markdown(lines) if len(lines) > 2 else "(nobody to compare with)"


def section(case: Case, subjects: Sequence[str], found: Sequence[Measurement], absent: Mapping[str, str]) -> str:
    targets = measured(case, ranked=False)
    lead = targets[0]
    ranks = ranking(case, lead, subjects, found)
    heads = [f"{t.figure} ({t.unit})" if t.unit != t.figure else t.unit for t in targets]
    lines = [["", *heads, "headrace is"], ["---", *["---:"] * (len(targets) + 1)]]
    for name, _ in ranks:
        cells = [cell(of(case, target, name, found)) for target in targets]
        by = "1" if name == OURS else cell(times(found, case, lead, OURS, name), "x")
        lines.append([roster.title(name), *cells, by])
    text = [f"### {case.name}\n", case.question + "\n"]
    if ranks:
        text.append(markdown(lines) + "\n")
    if (first := beaten(case, lead, ranks, found)) is not None:
        text.append(first + "\n")
    text += [f"* {line}" for line in gaps(case, subjects, found, absent)]
    return "\n".join(text) + "\n"


def beaten(case: Case, target: Target, ranks: Sequence[tuple[str, Stat]], found: Sequence[Measurement]) -> str | None:
    """A sentence where somebody else is first."""
    ours = next((name for name, _ in ranks if name in roster.OURS), None)
    if ours is None or ranks[0][0] in roster.OURS:
        return None
    first = ranks[0][0]
    by = times(found, case, target, first, ours)
    close = " The spreads overlap." if by is not None and by.low <= 1 <= by.high else ""
    reason = case.why.get(first, case.why.get("*"))
    why = f" {reason}" if reason else ""
    return f"**{roster.title(first)} is first here**: {cell(by, 'x')} of {roster.title(ours)}.{close}{why}"


def gaps(case: Case, subjects: Sequence[str], found: Sequence[Measurement], absent: Mapping[str, str]) -> list[str]:
    """Why a subject has no figure, or fewer than there were rounds."""
    reasons: dict[str, list[str]] = {}
    for name in subjects:
        reason = roster.reason(case, name)
        if reason is None and name in absent:
            reason = f"not installed: {absent[name]}"
        if reason == roster.ELSEWHERE:
            continue
        failed = [m for m in found if m.case == case.name and m.subject == name and m.error]
        if failed:
            what = "failed" if failed[-1].figures is None else "has figures, but did not end"
            reason = f"{what} in {len(failed)} round(s): {last_words(failed[-1].error or '')}"
        if reason is not None:
            reasons.setdefault(reason, []).append(roster.title(name))
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def last_words(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    first = lines[0] if lines else "no output"
    return first if len(lines) < 2 else f"{first}; `{lines[-1][:200].replace('`', '')}`"


def measured(case: Case, ranked: bool = True) -> list[Target]:
    """One target for each figure: the first that names it."""
    by_figure: dict[str, Target] = {}
    for target in case.targets:
        if target.ranked or not ranked:
            by_figure.setdefault(target.figure, target)
    return list(by_figure.values())


def of(case: Case, target: Target, subject: str, found: Sequence[Measurement]) -> Stat | None:
    return stat(list(figures(found, case.name, subject, target.figure).values()))


def ranking(
    case: Case, target: Target, subjects: Sequence[str], found: Sequence[Measurement]
) -> list[tuple[str, Stat]]:
    values = [(name, of(case, target, name, found)) for name in subjects]
    known = [(name, value) for name, value in values if value is not None]
    return sorted(known, key=lambda pair: pair[1].median, reverse=not target.less)


def times(found: Sequence[Measurement], case: Case, target: Target, better: str, other: str) -> Stat | None:
    """How many times as good one subject is as the other."""
    pair = (other, better) if target.less else (better, other)
    return stat(ratios(found, case.name, target.figure, pair))


def whereabouts(
    subjects: Sequence[str], found: Sequence[Measurement], absent: Mapping[str, str], about: Mapping[str, Any]
) -> list[str]:
    lines = [["subject", "package", "installed with"], ["---", "---", "---"]]
    for name in subjects:
        entry = roster.ROSTER.get(name)
        if entry is None:
            continue
        version = about["versions"].get(name, {}).get(entry.package, "")
        package = f"not installed: {absent[name]}" if name in absent else f"{entry.package} {version}".strip()
        lines.append([entry.title, package, ", ".join(f"`{need}`" for need in entry.requires) or "this repository"])
    others = stat([m.others for m in found])
    hardware = about["hardware"]
    text = [markdown(lines), ""]
    text.append(
        f"{hardware['processor']}, {hardware['cores']} cores, {hardware['memory GB']} GB, {hardware['system']}; "
        f"Python {about['python']}, {about['torch']} everywhere; {about['when']}, commit {about['commit']}."
    )
    if others is not None:
        text.append(
            f"Other processes kept {others.median:.2f} cores busy meanwhile (most {others.high:.2f}): "
            "figures are worth quoting when that is near 0."
        )
    text += ["", "Again, on your machine:", "", "```", about["command"], "```", ""]
    return text
