"""Runs all tests, a few groups of them side by side: most of them wait for processes that they start.

A group is a folder of tests, or, in the folder of doors, the tests of one door. Each runs in a pytest of its own and in
a session of its own, so that it knows which processes are its own. Whoever is free takes the next group, the longest
first. A group that passes is one line; what a group says that does not is shown whole.
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
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
LANES = max(2, len(os.sched_getaffinity(0)))
LONGEST = (
    "ranks",
    "doors torch",
    "laws",
    "faults",
    "workers",
    "doors dataloader2",
    "cli",
    "tables",
    "observe",
    "doors swift",
)
NOTHING_TO_RUN = 5
"""Exit code of pytest where every test of a group is deselected."""
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|deselected)")


def groups() -> dict[str, list[Path]]:
    """The files of each group, by its name, the longest group first."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.relative_to(TESTS).parts[0] if path.parent != TESTS else "tests"
        found[f"doors {path.stem.split('_')[1]}" if folder == "doors" else folder].append(path)
    return dict(sorted(found.items(), key=lambda item: LONGEST.index(item[0]) if item[0] in LONGEST else len(LONGEST)))


class Runs:
    """The groups that run now, and what those that have ended counted."""

    def __init__(self, options: list[str]) -> None:
        self.options = options
        self.running: set[subprocess.Popen[bytes]] = set()
        self.counts: Counter[str] = Counter()
        self.failed: list[str] = []
        self.stopped = False

    def run(self, name: str, paths: list[Path]) -> None:
        if self.stopped:
            return
        started = time.monotonic()
        with tempfile.TemporaryFile("w+b") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *self.options, *map(str, paths)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.running.add(process)
            code = process.wait()
            self.running.discard(process)
            output.seek(0)
            said = output.read().decode(errors="replace")
        last = next((line for line in reversed(said.splitlines()) if COUNTS.search(line)), "no summary")
        self.counts.update({what.rstrip("s"): int(n) for n, what in COUNTS.findall(last)})
        if code not in (0, NOTHING_TO_RUN):
            self.failed.append(name)
            print(said, flush=True)
        print(f"{name}: {last.strip('= ')} [{time.monotonic() - started:.0f} s]", flush=True)

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.running):
            os.killpg(process.pid, signal.SIGTERM)

    def summary(self) -> str:
        wrong = self.counts["failed"] + self.counts["error"]
        return f"{self.counts['passed']} passed, {wrong} failed, {self.counts['skipped']} skipped"


def main(options: list[str]) -> int:
    # Whoever runs this in the background may have told it to ignore Ctrl-C; tests that send it must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the groups, which are sessions, end too
    runs = Runs(options)
    with ThreadPoolExecutor(LANES) as lanes:
        try:
            for done in [lanes.submit(runs.run, *group) for group in groups().items()]:
                done.result()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            runs.failed.append("interrupted")
        finally:
            runs.stop()
    if runs.failed:
        print(f"did not pass: {', '.join(runs.failed)}")
    print(runs.summary(), flush=True)
    return 1 if runs.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
