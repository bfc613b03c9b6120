"""A pytest plugin that says over a pipe which test begins and how it ended, as lines of JSON.

The pipe outlives the test process, so that a test which hangs or kills its process has an outcome too.
"""

import json
import os
from pathlib import Path
from typing import Any


class Record:
    def __init__(self, pipe: int, done: set[str]) -> None:
        self.pipe, self.done = pipe, done
        self.outcome, self.error = "passed", ""
        # Programs that the tests start have no use for it.
        os.set_inheritable(pipe, False)

    def say(self, **line: str) -> None:
        os.write(self.pipe, (json.dumps(line) + "\n").encode())

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.say(broken=report.nodeid, error=last_line(report.longreprtext))

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.done]
        for item in items:
            self.say(found=item.nodeid)

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.outcome, self.error = "passed", ""
        self.say(began=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.outcome, self.error = "failed", last_line(report.longreprtext)
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self.say(ended=nodeid, outcome=self.outcome, error=self.error)


def last_line(text: str) -> str:
    """What the exception said: the last line that pytest marks as an error, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[0 if errors else -1][:300]


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--compat-pipe", type=int)
    parser.addoption("--compat-done")


def pytest_configure(config: Any) -> None:
    pipe = config.getoption("--compat-pipe")
    if pipe is not None:
        done = set(json.loads(Path(config.getoption("--compat-done")).read_text()))
        config.pluginmanager.register(Record(pipe, done), "compat-record")
