"""`scripts/compat`: run a suite of others against headrace, or write the page of what was found."""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from compat import environments, page, parts, results
from compat.environments import ROOT, say
from compat.losses import DEFECT, classify, read, stale
from compat.proof import prove
from compat.running import Outcomes, Side, kill_group
from compat.suites import SUITES, Suite


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/compat",
        description="Runs a suite of others with the original, then with headrace in its place, and lists every test "
        "that passes with the first and not with the second.",
        epilog="suites: " + "; ".join(f"{suite.name} ({suite.title})" for suite in SUITES.values()),
    )
    parser.add_argument("suite", nargs="?", choices=SUITES, metavar="SUITE")
    parser.add_argument("checkout", nargs="?", type=Path, metavar="CHECKOUT", help="a checkout of the suite's project")
    parser.add_argument(
        "--ours",
        action="store_true",
        help="do not run the original again: its outcomes are kept from the last run on this machine",
    )
    parser.add_argument("--part", type=part, metavar="K/N", help="only every N-th test, only with headrace: "
                        "what is found is kept on this machine until all N parts of this commit are there")  # fmt: skip
    parser.add_argument("--try", dest="attempt", metavar="EXPRESSION", help="only tests that match (as pytest's -k), "
                        "only with headrace, with their output; nothing is stored")  # fmt: skip
    parser.add_argument("--original", action="store_true", help="with --try: with the original instead")
    parser.add_argument("--page", action="store_true", help="write docs/compatibility.md from the stored results")
    parser.add_argument("--from", dest="below", type=Path, default=Path(), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.checkout is not None:
        asked.checkout = (asked.below / asked.checkout).resolve()
    if asked.page == (asked.suite is not None) or (asked.suite and asked.checkout is None):
        parser.error("say SUITE and CHECKOUT, or --page")
    return asked


def part(text: str) -> tuple[int, int]:
    """`2/6`, as (2, 6)."""
    number, _, many = text.partition("/")
    if not (number.isdigit() and many.isdigit() and 1 <= int(number) <= int(many)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N, such as 2/6")
    return int(number), int(many)


def tests_of(suite: Suite, checkout: Path, place: Path) -> Path:
    """A copy of the tests alone: beside them in the checkout stands the original, which would be imported."""
    source = checkout / suite.folder
    if not all((source / test).exists() for test in suite.tests):
        raise SystemExit(
            f"compat: {source} has no {', '.join(suite.tests)}; is {checkout} a checkout for {suite.name}?"
        )
    skipped = shutil.ignore_patterns("__pycache__", *suite.without)
    if suite.tests == (".",):
        shutil.copytree(source, place, ignore=skipped)
    else:
        place.mkdir()
        for test in suite.tests:
            shutil.copy(source / test, place)
    return place


def versions(python: Path, suite: Suite, checkout: Path) -> dict[str, str]:
    program = (
        "import sys, torch, json; print(json.dumps({'Python': sys.version.split()[0], 'torch': torch.__version__}))"
    )
    found: dict[str, str] = json.loads(subprocess.run([python, "-c", program], capture_output=True, check=True).stdout)
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
    )
    mine = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    found["original"] = suite.original or found["torch"]
    found["checkout"] = commit.stdout.strip() or "not a git checkout"
    found["headrace"] = mine.stdout.strip()
    return found


def main() -> int:
    asked = arguments()
    if asked.page:
        say(f"wrote {page.write()}")
        return 0
    suite = SUITES[asked.suite]
    # Ended by a signal it leaves no test process behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="compat-") as temporary:
        work = Path(temporary)
        if asked.attempt:
            return attempt(suite, asked.checkout, work, asked.attempt, asked.original)
        return compare(suite, asked.checkout, work, asked.ours, asked.part)


def side(suite: Suite, checkout: Path, work: Path, python: Path, name: str) -> Side:
    return Side(python, tests_of(suite, checkout, work / f"tests-{name}"), work / f"{name}.log", suite.seconds)


def compare(suite: Suite, checkout: Path, work: Path, only_ours: bool, part: tuple[int, int] | None) -> int:
    witness = work / "witness"
    witness.mkdir()
    python = environments.for_ours(suite, work, witness)
    kept = environments.home() / f"original-{suite.name}.json"
    if only_ours or part is not None:
        if not kept.exists():
            raise SystemExit(f"compat: {suite.name} has not been run with the original here; leave --ours out once")
        original = Outcomes(**json.loads(kept.read_text()))
    else:
        theirs = environments.for_original(suite, checkout, work)
        original = side(suite, checkout, work, theirs, "original").run(list(suite.tests))
        # Kept at once: it takes long, and a run that is broken off later need not do it again.
        kept.write_text(json.dumps(asdict(original)))
        say(f"original: {original.counts()} in {original.seconds} s")
    tests = list(suite.tests) if part is None else sorted(original.outcome)[part[0] - 1 :: part[1]]
    entries = read()
    ours = side(suite, checkout, work, python, "ours").run(
        tests, known=lambda test: classify(suite.name, test, entries).kind != DEFECT
    )
    proof = prove(witness, suite.replaced)
    say(f"ours: {ours.counts()} in {ours.seconds} s; {proof.plain()}")
    found = versions(python, suite, checkout)
    if part is not None:
        whole = parts.kept(environments.home(), f"{suite.name}-{found['headrace']}", part, ours, proof)
        if whole is None:
            return 0
        ours, proof = whole
    result = results.compare(suite, found, original, ours, proof)
    code = report(suite, result)
    if proof.wrong:
        say("this run proves nothing, and is not stored: " + "; ".join(dict.fromkeys(proof.wrong)))
        return 2
    print(f"stored in {results.write(result)}; `scripts/compat --page` writes the page")
    return code


def report(suite: Suite, result: dict[str, object]) -> int:
    losses = result["losses"]
    assert isinstance(losses, list)
    for loss in losses:
        print(f"{loss['class']}: {loss['test']}: {loss['outcome']}: {loss['error']}")
    for pattern in stale(suite.name, [loss["test"] for loss in losses], read()):
        print(f"no longer lost: {pattern}")
    defects = sum(loss["class"] == DEFECT for loss in losses)
    print(
        f"{suite.name}: kept {result['kept']} of {result['comparable']}; {len(losses)} lost, {defects} of them defects"
    )
    return 1 if defects else 0


def attempt(suite: Suite, checkout: Path, work: Path, expression: str, original: bool) -> int:
    """Run some tests and show what they print."""
    witness = work / "witness"
    witness.mkdir()
    make = environments.for_original(suite, checkout, work) if original else environments.for_ours(suite, work, witness)
    running = side(suite, checkout, work, make, "original" if original else "ours")
    command = running.command("-k", expression, *suite.tests)
    process = subprocess.Popen(command, cwd=running.folder, env=environments.variables(), start_new_session=True)
    try:
        code = process.wait()
    finally:
        kill_group(process)
    if not original and (wrong := prove(witness, suite.replaced).wrong):
        say("this run proves nothing: " + "; ".join(dict.fromkeys(wrong)))
    return code


if __name__ == "__main__":
    sys.exit(main())
