"""Runs all tests, a few groups of them side by side: most of them wait for processes that they start.

A group is a folder of tests, or several small ones: to start a pytest, and torch in it, costs more than their tests.
The doors are two groups, torch's and the others. With --deep, files that take very long are groups of their own. Each
runs in a pytest of its own and in a session of its own, so that
it knows which processes are its own. Whoever is free takes the next group, the longest first. A group that passes is
one line; what a group says that does not is shown whole.

Ctrl-C interrupts the tests that run at that moment, as it does under pytest, and what was counted until then is told.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType

TESTS = Path(__file__).resolve().parent.parent / "tests"
LANES = 5 * len(os.sched_getaffinity(0)) // 2
"""Five for two cores: a group waits for processes, locks and time-outs for some of the time."""
LONGEST = (
    "laws",
    "doors torch",
    "doors",
    "ops",
    "faults",
    "tables",
    "ranks",
    "docs",
    "workers",
    "cli",
    "tests",
    "parts",
    "programs",
    "sources",
)
TOGETHER = {
    "programs": ("examples", "launch", "seeds"),
    "parts": ("arch", "engine", "golden", "memory", "plan", "testing", "typing"),
    "tests": ("observe", "tests"),
}
"""Group -> its folders, where they are several; "tests" are the files beside the folders. (Tests of benchmarks import
headrace anew: they stay alone.)"""
LONG_WHEN_DEEP = (
    "tables/test_differential.py",
    "ops/test_pack_worlds.py",
    "doors/test_torch_interrupts.py",
    "laws/test_law3_interrupts.py",
    "laws/test_law3_trouble.py",
    "laws/test_law3_snapshots.py",
    "tables/test_cures.py",
    "faults/test_cycles.py",
)
"""Begun first."""
NOTHING_TO_RUN = 5
"""Exit code of pytest where every test of a group is deselected."""
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|deselected)")


def groups(deep: bool) -> dict[str, list[Path]]:
    """The files of each group, by its name, the longest group first."""
    found: dict[str, list[Path]] = defaultdict(list)
    group = {folder: name for name, folders in TOGETHER.items() for folder in folders}
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.relative_to(TESTS).parts[0] if path.parent != TESTS else "tests"
        if folder == "doors" and path.stem.startswith("test_torch_"):
            folder = "doors torch"
        alone = str(path.relative_to(TESTS))
        found[alone if deep and alone in LONG_WHEN_DEEP else group.get(folder, folder)].append(path)
    first = [*LONG_WHEN_DEEP, *LONGEST]
    return dict(sorted(found.items(), key=lambda item: first.index(item[0]) if item[0] in first else len(first)))


class Runs:
    """The groups that run now, and what those that have ended counted."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.running: set[subprocess.Popen[bytes]] = set()
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []
        self.left: list[str] = []
        """Groups that did not run to their end, because all was interrupted."""
        self.stopped_by = 0
        """The signal that ended the run before its end."""
        # An environment without bytecode would compile this package again in each of the many interpreters.
        self.environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def run(self, name: str, paths: list[Path]) -> None:
        if self.stopped():
            self.left.append(name)
            return
        started = time.monotonic()
        with tempfile.TemporaryFile("w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *self.options, *map(str, paths)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
            self.running.add(process)
            if self.stopped():  # (between the look above and now)
                process.send_signal(signal.SIGINT)
            code = process.wait()
            self.running.discard(process)
            output.seek(0)
            said = output.read().decode(errors="replace")
        last = next((line for line in reversed(said.splitlines()) if COUNTS.search(line)), "no summary")
        counts = {what.rstrip("s"): int(n) for n, what in COUNTS.findall(last)}
        self.counts.update(counts)
        wrong = counts.get("failed", 0) + counts.get("error", 0)
        if self.stopped():
            self.left.append(name)
        elif code not in (0, NOTHING_TO_RUN):
            wrong = wrong or 1
        if wrong:
            self.failed.append(name)
            print(said, flush=True)
        print(f"{name}: {last.strip('= ')} [{time.monotonic() - started:.0f} s]", flush=True)

    def stopped(self) -> bool:
        return self.stopped_by != 0

    def stop(self, number: int, _: FrameType | None) -> None:
        """Interrupts the groups that run: they clean up and tell what they counted. The second time it kills them."""
        again, self.stopped_by = self.stopped_by, number
        if not again:
            print("\ninterrupted; the tests at hand are ending (once more kills them)", flush=True)
        for process in list(self.running):
            if not again:
                process.send_signal(signal.SIGINT)
                continue
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def summary(self) -> str:
        wrong = self.counts["failed"] + self.counts["error"]
        return f"{self.counts['passed']} passed, {wrong} failed, {self.counts['skipped']} skipped"


def main(options: list[str]) -> int:
    runs = Runs(options)
    deep = os.environ.get("HEADRACE_TEST_DEPTH") == "deep"
    # The groups are sessions of their own and do not see the terminal's Ctrl-C. (Whoever runs this in the background
    # may have told it to ignore Ctrl-C; a handler also keeps the tests, which send it, from inheriting that.)
    signal.signal(signal.SIGINT, runs.stop)
    signal.signal(signal.SIGTERM, runs.stop)
    with ThreadPoolExecutor(LANES) as lanes:
        for done in [lanes.submit(runs.run, *group) for group in groups(deep).items()]:
            done.result()
    if runs.left:
        print(f"interrupted, not run to the end: {', '.join(runs.left)}")
    if runs.failed:
        print(f"did not pass: {', '.join(runs.failed)}")
    print(runs.summary(), flush=True)
    return 128 + runs.stopped_by if runs.stopped_by else int(bool(runs.failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
