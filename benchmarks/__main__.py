"""Run benchmarks and print the table of what was reached.

    python -m benchmarks [case ...] [--subjects headrace,torch] [--rounds N] [--json OUT] [--readme README.md]

Every figure goes to a JSON file in `benchmarks/results/` (or OUT), with a Markdown report beside it. The exit code is 1
when a measurement failed, and 0 when all came to figures, whether or not the targets are reached.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import cases, harness, machine, report, subjects
from benchmarks.case import Effort
from benchmarks.harness import Measurement

QUICK = Effort(seconds=0.3, scale=0.1)
RESULTS = Path(__file__).parent / "results"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare Headrace with other loaders.")
    parser.add_argument("case", nargs="*", help=f"names or patterns of: {', '.join(cases.names())} (default: all)")
    parser.add_argument("--subjects", default="headrace,torch", help=f"of: {', '.join(subjects.names())}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: does it run? No figure to quote")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the results go (default: benchmarks/results/)")
    parser.add_argument("--readme", type=Path, help="put the table between the marks of this file; needs every case")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    parser = arguments()
    options = parser.parse_args(given)
    names = options.subjects.split(",")
    try:
        chosen = cases.select(options.case)
        for name in names:
            subjects.check(name)
    except ValueError as error:
        parser.error(str(error))
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.readme and (options.case or options.quick):
        parser.error("--readme needs a full run: leave out the case names and --quick")

    effort = QUICK if options.quick else Effort()
    hardware, versions = machine.hardware(), machine.versions(harness.ROOT)
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    found = harness.run(chosen, names, options.rounds, harness.in_process(effort), progress)
    rows = report.rows(chosen, names, found)
    text = report.document(rows, names, found, hardware, versions)

    out: Path = options.json or RESULTS / f"{when}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    results = {
        "version": 1,
        "when": when,
        "hardware": hardware,
        "versions": versions,
        "rounds": options.rounds,
        "effort": asdict(effort),
        "rows": report.as_json(rows),
        "measurements": [asdict(measurement) for measurement in found],
    }
    out.write_text(json.dumps(results, indent=1) + "\n")
    out.with_suffix(".md").write_text(text)
    if options.readme:
        report.into_readme(options.readme, text)
    print(text)
    failed = [measurement for measurement in found if measurement.error]
    for measurement in failed:
        print(
            f"{measurement.case} {measurement.subject}, round {measurement.round}: {measurement.error}", file=sys.stderr
        )
    return 1 if failed else 0


def progress(done: int, total: int, last: Measurement) -> None:
    """One line: on a terminal it is written over, in a log there is one for each measurement."""
    figures = last.figures or {}
    found = ", ".join(f"{name} {report.number(value)}" for name, value in figures.items()) or "FAILED"
    line = f"[{done}/{total}] round {last.round} {last.case} {last.subject}: {found} ({last.seconds:.0f} s)"
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{line[:150]}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
