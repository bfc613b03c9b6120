"""Run benchmarks and print the table of what was reached.

    python -m benchmarks                              Headrace, its DataLoader and torch: the table of the README
    python -m benchmarks small 'images*'              these cases only; '*' is every case
    python -m benchmarks --report docs/benchmarks.md  every case, every subject, as a page; installs the peers
    python -m benchmarks 'growth_*' --scaling docs/scaling.md   how cost grows: a page with curves
    python -m benchmarks --of A.json B.json --picture OUT.svg   measure nothing, draw the bars of what was measured
    --quick                                           the same in minutes: shorter data, three rounds or fewer

Every figure goes to a JSON file in `benchmarks/results/` (or OUT), with a Markdown table beside it. The exit code is 1
when a measurement failed, and 0 when all came to figures, whether or not the targets are reached.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import cases, environments, format_table, harness, machine, pages, report, roster, scaling, subjects
from benchmarks.case import Effort
from benchmarks.harness import Measurement

QUICK = Effort(seconds=0.3, scale=0.25)
QUICK_ROUNDS, ROUNDS = 3, 5
QUICK_MINUTES = {"table": 6.0, "page": 24.0}
RESULTS = Path(__file__).parent / "results"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare Headrace with other loaders.")
    parser.add_argument("case", nargs="*", help=f"names or patterns of: {', '.join(cases.names())}")
    parser.add_argument("--subjects", help=f"`all`, or of: {', '.join(subjects.names())}")
    parser.add_argument("--rounds", type=int, help=f"how often each is measured ({ROUNDS}; quick: {QUICK_ROUNDS})")
    parser.add_argument("--minutes", type=float, help="begin no round that would end later; the first is always run")
    parser.add_argument("--quick", action="store_true", help="shorter measurements, and an end after minutes")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the results go (default: benchmarks/results/)")
    parser.add_argument("--readme", type=Path, help="put the table between the marks of this file")
    parser.add_argument("--report", type=Path, help="write the page that compares all subjects in all cases")
    parser.add_argument("--scaling", type=Path, help="write the page of how cost grows, out of the cases growth_*")
    parser.add_argument("--formats", type=Path, help="put the table of stored formats between the marks of this file")
    parser.add_argument("--picture", type=Path, help="draw the bars of the cases that look like training")
    parser.add_argument("--of", type=Path, nargs="+", metavar="RESULTS", help="measure nothing: draw these results")
    return parser


def _without_json(given: Sequence[str]) -> list[str]:
    """The arguments that say what was measured; where the results went is nobody else's business."""
    kept = list(given)
    if "--json" in kept:
        at = kept.index("--json")
        del kept[at : at + 2]
    return kept


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments()
    options = parser.parse_args(given)
    if options.of:
        return draw_stored(options)
    page: Path | None = options.report
    usual = "all" if page else ",".join(roster.TABLE)
    asked = options.subjects or usual
    names = subjects.names() if asked == "all" else asked.split(",")
    names.sort(key=lambda name: list(roster.ROSTER).index(name) if name in roster.ROSTER else len(roster.ROSTER))
    try:
        chosen = cases.select(options.case or (["*"] if page else list(cases.TABLE)))
        for name in names:
            subjects.check(name)
    except ValueError as error:
        parser.error(str(error))
    rounds = options.rounds if options.rounds is not None else QUICK_ROUNDS if options.quick else ROUNDS
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.readme and options.case:
        parser.error("--readme needs the whole table: leave out the case names")
    minutes = options.minutes or (QUICK_MINUTES["page" if page else "table"] if options.quick else float("inf"))

    effort = QUICK if options.quick else Effort()
    hardware, versions = machine.hardware(), machine.versions(harness.ROOT)
    when = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
    pythons, absent = environments.pythons(names, say)
    measure = harness.in_process(effort, pythons)
    found = harness.run(chosen, list(pythons), rounds, measure, progress, minutes)
    shown = [name for name in names if name in roster.TABLE] if page else names
    rows = report.rows(chosen, shown, found)
    text = report.document(rows, shown, found, hardware, versions)

    out: Path = options.json or RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    by_subject = {name: environments.versions(python) for name, python in pythons.items()} if page else {}
    results = {
        "version": 2,
        "when": when,
        "hardware": hardware,
        "versions": versions,
        "subjects": by_subject,
        "absent": absent,
        "rounds": rounds,
        "effort": asdict(effort),
        "rows": report.as_json(rows),
        "measurements": [asdict(measurement) for measurement in found],
    }
    out.write_text(json.dumps(results, indent=1) + "\n")
    out.with_suffix(".md").write_text(text)
    if options.readme:
        report.into_readme(options.readme, text)
    about = {
        "command": shlex.join(["scripts/bench", *_without_json(sys.argv[1:] if given is None else given)]),
        "hardware": hardware,
        "versions": by_subject,
        "python": versions["python"],
        "torch": environments.TORCH,
        "when": when,
        "commit": versions.get("commit", "unknown"),
    }
    if page:
        page.write_text(pages.page(chosen, names, found, absent, about))
    draw(options, found, about)
    print(text)
    for name, reason in absent.items():
        say(f"{name}: not installed: {reason}")
    for measurement in found:
        if measurement.error:
            say(f"{measurement.case} {measurement.subject}, round {measurement.round}: {measurement.error}")
    return int(any(measurement.figures is None for measurement in found))


def draw(options: argparse.Namespace, found: Sequence[Measurement], about: Mapping[str, Any]) -> None:
    if options.scaling:
        scaling.page(found, about, options.scaling)
    if options.formats:
        report.into_readme(options.formats, format_table.text(found, about))
    if options.picture:
        scaling.picture(found, about, options.picture)


def draw_stored(options: argparse.Namespace) -> int:
    """Pictures of results that were kept: the parts of one comparison may have been measured one after the other."""
    kept = [json.loads(path.read_text()) for path in options.of]
    found = [Measurement(**measurement) for results in kept for measurement in results["measurements"]]
    last = kept[-1]
    about = {
        "command": "scripts/bench 'growth_*' --scaling docs/scaling.md",
        "hardware": last["hardware"],
        "python": last["versions"]["python"],
        "when": last["when"],
        "commit": last["versions"].get("commit", "unknown"),
    }
    draw(options, found, about)
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def progress(done: int, total: int, last: Measurement) -> None:
    """One line: on a terminal it is written over, in a log there is one for each measurement."""
    figures = last.figures or {}
    found = ", ".join(f"{name} {report.number(value)}" for name, value in figures.items()) or "FAILED"
    line = f"[{done}/{total}] round {last.round} {last.case} {last.subject}: {found} ({last.seconds:.0f} s)"
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{line[:150]}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    else:
        say(line)


if __name__ == "__main__":
    sys.exit(main())
