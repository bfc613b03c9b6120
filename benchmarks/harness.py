"""Rounds of measurements, each in a fresh process, and the figures that they come to.

    round 1: small/headrace small/torch   arrays/headrace arrays/torch   ...
    round 2: small/torch small/headrace   arrays/torch arrays/headrace   ...

The subjects of a case follow one another within a round and take turns to go first, so that a machine that slows down
slows all of them. A ratio is taken within one round, and then the median over the rounds. A measurement that fails or
passes its deadline is recorded with its reason and leaves no process of its group behind; it never becomes a figure.
A round is begun only while it can be expected to end in time; the first one always is.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, roster
from benchmarks.case import Case, Effort, Figures

ROOT = Path(__file__).resolve().parent.parent
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one process found: figures, or the reason why there are none; both, if it found them but did not end."""

    round: int
    case: str
    subject: str
    seconds: float
    figures: Figures | None
    error: str | None = None
    others: float = 0.0  # cores that other processes kept busy meanwhile


@dataclass(frozen=True, slots=True)
class Stat:
    """Repeated figures in short; `spread` is the distance of the ends as a part of the median."""

    median: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        return (self.high - self.low) / self.median if self.median else 0.0


Measure = Callable[[Case, str, int], Measurement]
Progress = Callable[[int, int, Measurement], None]


def run(
    cases: Sequence[Case],
    subjects: Sequence[str],
    rounds: int,
    measure: Measure,
    progress: Progress,
    minutes: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> list[Measurement]:
    plan = [list(schedule(cases, subjects, number)) for number in range(1, rounds + 1)]
    total = sum(map(len, plan))
    done: list[Measurement] = []
    began = clock()
    for number, turn in enumerate(plan):
        spent = clock() - began
        if number and spent * (number + 1) / number > 60 * minutes:
            break
        for case, subject in turn:
            done.append(measure(case, subject, number + 1))
            progress(len(done), total, done[-1])
    return done


def schedule(cases: Sequence[Case], subjects: Sequence[str], number: int) -> Iterable[tuple[Case, str]]:
    """Who is measured in a round, in which order."""
    for case in cases:
        turn = [subject for subject in subjects if roster.reason(case, subject) is None]
        first = (number - 1) % len(turn) if turn else 0
        for subject in turn[first:] + turn[:first]:
            yield case, subject


def in_process(effort: Effort, pythons: Mapping[str, str] | None = None) -> Measure:
    """Measure in a process of its own, by the subject's own interpreter, with nothing left of the one before."""

    def measure(case: Case, subject: str, number: int) -> Measurement:
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            out = Path(folder) / "figures.json"
            python = (pythons or {}).get(subject, sys.executable)
            command = [python, "-m", "benchmarks.measure", case.name, subject, str(out)]
            began, others = time.perf_counter(), machine.Others()
            error = launch([*command, str(effort.seconds), str(effort.scale)], case.deadline)
            seconds = time.perf_counter() - began
            figures = json.loads(out.read_text()) if out.exists() else None  # some find, and then cannot end
        return Measurement(number, case.name, subject, seconds, figures, error, others.cores())

    return measure


def launch(command: Sequence[str], deadline: float) -> str | None:
    """Run a command in a group of its own; the answer is None, or why it failed."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    # Installed packages have bytecode. Without this, ours alone would be compiled anew in every start that is measured.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with (
        tempfile.TemporaryFile() as output
    ):  # a file and not a pipe: a worker that outlives the process cannot hold us up
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            code: int | None = process.wait(deadline)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
        if code == 0:
            return None
        output.seek(0)
        said = output.read().decode(errors="replace").replace(f"{ROOT}/", "")  # results are kept: no paths of a machine
        tail = "\n".join(said.splitlines()[-LAST_LINES:])
    reason = f"passed its deadline of {deadline:g} s" if code is None else f"ended with code {code}"
    return f"{reason}\n{tail}".strip()


def end_group(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # everything in it has ended, as it should
    process.wait()


def stat(values: Sequence[float]) -> Stat | None:
    return Stat(statistics.median(values), min(values), max(values), len(values)) if values else None


def figures(measurements: Iterable[Measurement], case: str, subject: str, name: str) -> dict[int, float]:
    """One figure of a case and subject, by round."""
    return {
        found.round: found.figures[name]
        for found in measurements
        if found.case == case and found.subject == subject and found.figures is not None and name in found.figures
    }


def ratios(measurements: Sequence[Measurement], case: str, name: str, pair: tuple[str, str]) -> list[float]:
    """The ratio of two subjects in every round in which both have the figure."""
    above, below = (figures(measurements, case, subject, name) for subject in pair)
    return [above[number] / below[number] for number in above if below.get(number)]
