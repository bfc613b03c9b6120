"""One side of one suite: every test gets an outcome, whatever hangs, dies or kills its process.

                       began, ended (a pipe)
    pytest process  ------------------------->  this process: a time limit for each test
        | hangs or dies
        '-> its whole group is killed; the test under way is `timeout` or `crashed`;
            a new process runs the tests that are left

What did not pass is run once more, apart from the rest: on a busy machine a test can fail for no fault of the loader's.
What passes then has passed, and the results name it. What is known to fail is not repeated.
"""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from compat.environments import variables

STARTING = 180.0
"""Seconds from the start of a process to its first test: it imports torch and collects."""
ENDING = 60.0
"""Seconds from the last test to the end of its process."""


@dataclass(slots=True)
class Outcomes:
    """By test: passed, failed, skipped, timeout, crashed; and what the ones that did not pass said."""

    outcome: dict[str, str] = field(default_factory=dict)
    error: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """Files that could not be imported."""
    repeated: list[str] = field(default_factory=list)
    """Tests that passed only when they were repeated."""
    seconds: float = 0

    def add(self, other: "Outcomes") -> None:
        """Those of other tests of the same suite."""
        self.outcome |= other.outcome
        self.error |= other.error
        self.broken |= other.broken
        self.repeated += other.repeated
        self.seconds += other.seconds

    def passed(self) -> set[str]:
        return {test for test, outcome in self.outcome.items() if outcome == "passed"}

    def counts(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for outcome in self.outcome.values():
            counted[outcome] = counted.get(outcome, 0) + 1
        return dict(sorted(counted.items()))


@dataclass(frozen=True, slots=True)
class Side:
    """An interpreter, the folder that holds its copy of the tests, and how long one test may take."""

    python: Path
    folder: Path
    log: Path
    seconds: float

    def command(self, *arguments: str) -> list[str]:
        plugins = ("-p", "no:cacheprovider", "-p", "compat_record")
        options = ("-q", "-c", "/dev/null", "--rootdir", ".", "--continue-on-collection-errors")
        return [str(self.python), "-m", "pytest", *plugins, *options, *arguments]

    def run(self, tests: list[str], known: Callable[[str], bool] = lambda test: False) -> Outcomes:
        outcomes, again = Outcomes(), Outcomes()
        begun = time.monotonic()
        while self._process(tests, outcomes):
            pass
        bad = [test for test, outcome in outcomes.outcome.items() if outcome not in ("passed", "skipped")]
        failed = [test for test in bad if not known(test)]
        while failed and self._process(failed, again):
            pass
        outcomes.repeated = sorted(again.passed())
        outcomes.outcome.update(dict.fromkeys(outcomes.repeated, "passed"))
        outcomes.seconds = round(time.monotonic() - begun, 1)
        return outcomes

    def _process(self, tests: list[str], outcomes: Outcomes) -> bool:
        """Run what has no outcome yet in one process; True when it ended before all had one."""
        ours, theirs = os.pipe()
        with tempfile.NamedTemporaryFile("w", suffix=".json") as done, open(self.log, "ab") as log:
            json.dump(list(outcomes.outcome), done)
            done.flush()
            process = subprocess.Popen(
                self.command(f"--compat-pipe={theirs}", f"--compat-done={done.name}", *tests),
                cwd=self.folder,
                env=variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs],
                start_new_session=True,
            )
            os.close(theirs)
            try:
                return Watch(process, ours, self.seconds, outcomes).until_it_ends()
            finally:
                os.close(ours)
                kill_group(process)


class Watch:
    """Reads what one test process says, until it ends or a test takes too long."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: int, seconds: float, outcomes: Outcomes) -> None:
        self.process, self.pipe, self.seconds, self.outcomes = process, pipe, seconds, outcomes
        self.text = b""
        self.found: set[str] = set()
        self.under_way: str | None = None
        self.progress = False
        self.deadline = time.monotonic() + STARTING

    def until_it_ends(self) -> bool:
        os.set_blocking(self.pipe, False)
        ended = os.pidfd_open(self.process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            try:
                while True:
                    ready = {key.fd for key, _ in selector.select(max(0.0, self.deadline - time.monotonic()))}
                    if self.pipe in ready and not self._read():
                        selector.unregister(self.pipe)
                    elif ended in ready:
                        return self._over("crashed")
                    elif not ready:
                        return self._over("timeout")
            finally:
                os.close(ended)

    def _read(self) -> bool:
        data = os.read(self.pipe, 1 << 16)
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return bool(data)

    def _take(self, line: dict[str, str]) -> None:
        if test := line.get("found"):
            self.found.add(test)
        elif test := line.get("broken"):
            self.outcomes.broken[test] = line["error"]
        elif test := line.get("began"):
            self.under_way = test
            self.deadline = time.monotonic() + self.seconds
        elif test := line.get("ended"):
            self.under_way, self.progress = None, True
            self.deadline = time.monotonic() + max(ENDING, self.seconds)
            self.outcomes.outcome[test] = line["outcome"]
            if line["error"]:
                self.outcomes.error[test] = line["error"]

    def _over(self, how: str) -> bool:
        if self.under_way is not None:
            self.outcomes.outcome[self.under_way] = how
            self.outcomes.error[self.under_way] = f"{how} (limit {self.seconds:.0f} s)"
            return True
        # Between two tests there is nobody to blame; a process that got nowhere is not started again.
        return self.progress and bool(self.found - set(self.outcomes.outcome))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Whatever the tests left running goes with them."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
