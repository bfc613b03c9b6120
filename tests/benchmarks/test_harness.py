"""The harness: what is measured when, what becomes of it, and what a failure leaves."""

import json
import os
import select
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import cases, environments, formats, report, roster, subjects
from benchmarks.case import FASTER, TIMES_LESS, Case, Effort, Target
from benchmarks.harness import Measurement, in_process, launch, ratios, run, schedule, stat
from benchmarks.timing import timed

PLAIN = "tests.benchmarks.plain_loop"
TINY = Effort(seconds=0.01, scale=0.01)
RATE = Case("rate", "?", (Target("rate", "n/s", "n/s", FASTER, at_least=2),), door=True)
ALONE = Case("alone", "?", (Target("time", "s", "s", at_most=1.0),), subjects=("headrace",))


def found(number: int, case: str, subject: str, **figures: float) -> Measurement:
    return Measurement(number, case, subject, 0.0, figures or None, None if figures else "failed")


def test_subjects_of_a_case_follow_one_another_and_take_turns_to_go_first() -> None:
    plan = [
        (case.name, subject)
        for number in (1, 2)
        for case, subject in schedule([RATE, ALONE], ["headrace", "torch"], number)
    ]
    assert plan == [
        ("rate", "headrace"),
        ("rate", "torch"),
        ("alone", "headrace"),
        ("rate", "torch"),
        ("rate", "headrace"),
        ("alone", "headrace"),
    ]


def test_a_case_without_any_chosen_subject_is_left_out() -> None:
    assert list(schedule([ALONE], ["torch"], 3)) == []


@pytest.mark.parametrize(("minutes", "rounds"), [(0, 1), (2.5, 2), (3, 3), (60, 4)])
def test_no_round_is_begun_that_would_end_too_late_but_the_first(minutes: float, rounds: int) -> None:
    now = 0.0

    def measure(case: Case, subject: str, number: int) -> Measurement:
        nonlocal now
        now += 60
        return found(number, case.name, subject, x=1.0)

    done = run([RATE], ["headrace"], 4, measure, lambda *_: None, minutes, clock=lambda: now)
    assert [measurement.round for measurement in done] == list(range(1, rounds + 1))


def test_every_measurement_is_reported_as_it_is_made() -> None:
    seen: list[tuple[int, int, str]] = []
    run(
        [RATE],
        ["headrace", "torch"],
        1,
        lambda case, subject, number: found(number, case.name, subject, x=1.0),
        lambda done, total, last: seen.append((done, total, last.subject)),
    )
    assert seen == [(1, 2, "headrace"), (2, 2, "torch")]


def test_a_ratio_is_taken_within_a_round_before_the_median() -> None:
    # The machine is ten times slower in round 2: the medians of the sides, 20 and 10, would make it 2.
    rounds = [(1, 40.0, 10.0), (2, 4.0, 1.0), (3, 20.0, 10.0)]
    all_found = [
        found(number, "rate", name, **{"n/s": value})
        for number, ours, theirs in rounds
        for name, value in (("headrace", ours), ("torch", theirs))
    ]
    assert ratios(all_found, "rate", "n/s", FASTER) == [4.0, 4.0, 2.0]
    (row,) = report.rows([RATE], ["headrace", "torch"], all_found)
    assert row.answer is not None
    assert row.answer.median == 4.0
    assert ratios(all_found, "rate", "n/s", TIMES_LESS) == [0.25, 0.25, 0.5]


def test_the_door_is_asked_for_the_same_ratio() -> None:
    all_found = [
        found(1, "rate", name, **{"n/s": value})
        for name, value in (("headrace", 9.0), ("torch_door", 3.0), ("torch", 2.0))
    ]
    (row,) = report.rows([RATE], list(roster.TABLE), all_found)
    assert row.door is not None
    assert (row.door.median, row.reached, row.door_reached) == (1.5, True, False)
    assert report.table([row], list(roster.TABLE)).endswith("| 4.5x | 1.5x | >= 2x | yes, DataLoader **no** |")


def test_a_measurement_that_found_figures_but_did_not_end_keeps_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def found_and_hung(command: list[str], deadline: float) -> str:
        Path(command[5]).write_text('{"n/s": 7.0}')
        return f"passed its deadline of {deadline:g} s"

    monkeypatch.setattr("benchmarks.harness.launch", found_and_hung)
    measurement = in_process(TINY)(RATE, "headrace", 1)
    assert (measurement.figures, measurement.error) == ({"n/s": 7.0}, "passed its deadline of 120 s")


def test_a_subject_is_measured_by_its_own_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr("benchmarks.harness.launch", lambda command, deadline: used.append(command[0]) or "failed")
    measure = in_process(TINY, {"torch": "/elsewhere/python"})
    for name in ("headrace", "torch"):
        measure(RATE, name, 1)
    assert used == [sys.executable, "/elsewhere/python"]


def test_a_round_with_a_failure_gives_no_ratio_and_is_counted() -> None:
    all_found = [
        found(1, "rate", "headrace", **{"n/s": 9.0}),
        found(1, "rate", "torch"),
        found(2, "rate", "headrace", **{"n/s": 6.0}),
        found(2, "rate", "torch", **{"n/s": 2.0}),
    ]
    (row,) = report.rows([RATE], ["headrace", "torch"], all_found)
    assert row.answer is not None
    assert (row.answer.median, row.answer.count, row.failures) == (3.0, 1, 1)
    assert "yes (1 failed)" in report.table([row], ["headrace", "torch"])


def test_a_stat_holds_median_ends_and_spread() -> None:
    value = stat([1.0, 2.0, 4.0])
    assert value is not None
    assert (value.median, value.low, value.high, value.spread) == (2.0, 1.0, 4.0, 1.5)
    assert stat([]) is None


@pytest.mark.parametrize(("ours", "word"), [(5.0, "yes"), (3.0, "**no**")])
def test_the_table_says_whether_the_target_is_reached(ours: float, word: str) -> None:
    all_found = [found(1, "rate", "headrace", **{"n/s": ours}), found(1, "rate", "torch", **{"n/s": 2.0})]
    text = report.table(report.rows([RATE], ["headrace", "torch"], all_found), ["headrace", "torch"])
    assert text.splitlines()[-1].endswith(f"| >= 2x | {word} |")


def test_a_target_without_a_ratio_is_kept_by_headrace_itself() -> None:
    all_found = [found(1, "alone", "headrace", s=0.5)]
    (row,) = report.rows([ALONE], ["headrace", "torch"], all_found)
    assert row.reached is True
    assert "| <= 1 s | yes |" in report.table([row], ["headrace", "torch"])


def test_only_what_stands_between_the_marks_of_a_readme_changes(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"above\n{report.START}\nold\n{report.END}\nbelow\n")
    report.into_readme(readme, "new\n")
    report.into_readme(readme, "newer\n")
    assert readme.read_text() == f"above\n{report.START}\nnewer\n{report.END}\nbelow\n"


@pytest.mark.parametrize("text", ["no marks", f"{report.END}\n{report.START}", f"{report.START}\n"])
def test_a_readme_without_its_marks_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(ValueError, match="bench:start"):
        report.into_readme(readme, "table")
    assert readme.read_text() == text


def test_a_failed_process_is_an_error_with_its_last_words() -> None:
    error = launch([sys.executable, "-c", "raise SystemExit('no such data')"], deadline=30)
    assert error is not None
    assert "ended with code 1" in error
    assert "no such data" in error


def test_a_process_past_its_deadline_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        "import pathlib, subprocess, sys, threading\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "threading.Event().wait()\n"
    )
    error = launch([sys.executable, "-c", script], deadline=3)
    assert error is not None
    assert "deadline of 3 s" in error
    assert ends(int(note.read_text()))


def ends(pid: int) -> bool:
    """Waits for a killed orphan: it may still be on its way out, or wait for its new parent to collect it."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


def test_a_loader_that_loses_a_batch_gives_no_figure() -> None:
    with pytest.raises(AssertionError, match="3 batches instead of 4"):
        timed([1, 2, 3], id, batches=4, effort=TINY)


def test_timed_epochs_leave_the_warm_epoch_out() -> None:
    class Counted:
        epochs = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            self.epochs += 1
            return iter("abc")

    loader = Counted()
    took = timed(loader, id, batches=3, effort=TINY)
    assert (took.epochs, took.batches) == (loader.epochs - 1, 3 * (loader.epochs - 1))
    assert took.seconds >= TINY.seconds


@pytest.mark.parametrize(
    "name",
    [
        # Ray starts a cluster first; a case has a deadline of its own.
        pytest.param(name, marks=[pytest.mark.integrations, pytest.mark.timeout(900)])
        # Formats are written by their own packages, some of which have environments of their own.
        if name == "ray_jpeg" or name.startswith("formats_")
        # Media need all of their packages, curves start many processes, and some take seconds even when they are tiny.
        else pytest.param(name, marks=[pytest.mark.deep, pytest.mark.timeout(240)])
        if name.startswith(("photos", "sound", "clip", "growth_", "text_", "swift_", "spawn_", "tabular_", "parquet"))
        else name
        for name in cases.names()
    ],
)
def test_every_case_measures_what_its_targets_name(name: str) -> None:
    if name == "jpeg":
        pytest.importorskip("PIL")
    if name == "spawn_first_batch_torch":
        pytest.importorskip("torch")
    needed = {"parquet": ["pyarrow"], "tabular_limit": ["pandas", "polars", "pyarrow"]}
    for package in needed.get(name, ["tokenizers"] if name.startswith("text_") else []):
        pytest.importorskip(package)
    if (writer := formats.WRITTEN_BY.get(name.removeprefix("formats_"))) is not None:
        environments.pythons([writer], print)  # made first: it takes longer than a measurement may
    case = cases.load(name).CASE
    measurement = in_process(TINY)(case, PLAIN, 1)
    if name == "killed":
        assert measurement.error is not None
        assert "there is nobody to kill" in measurement.error
        return
    assert measurement.error is None
    assert case.name == name
    assert measurement.figures is not None
    # (A format may need no index, and a snapshot in the middle may be as fast as the start.)
    free = ("resume ms", "index bytes")
    assert all(value > 0 for key, value in measurement.figures.items() if key not in free)


def test_the_command_writes_results_report_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out.json"
    code = command.main(["arr*", "epochs", "--subjects", PLAIN, "--rounds", "1", "--quick", "--json", str(out)])
    results = json.loads(out.read_text())
    assert code == 0
    assert [found["case"] for found in results["measurements"]] == ["arrays", "epochs"]
    assert results["hardware"]["cores"] == len(os.sched_getaffinity(0))
    assert results["versions"]["numpy"]
    printed = capsys.readouterr()
    assert out.with_suffix(".md").read_text().strip() == printed.out.strip()
    assert "[2/2] round 1 epochs" in printed.err


def test_a_failed_measurement_makes_the_command_fail_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    code = command.main(["small", "--subjects", "no.such.loader", "--rounds", "1", "--json", str(out)])
    assert code == 1
    assert "No module named 'no'" in capsys.readouterr().err
    assert "No module named 'no'" in json.loads(out.read_text())["measurements"][0]["error"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["smal"], "no case 'smal'"),
        (["--subjects", "torhc"], "no subject 'torhc'"),
        (["--rounds", "0"], "at least 1"),
        (["small", "--readme", "README.md"], "needs the whole table"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs(
    given: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(given)
    assert reason in capsys.readouterr().err


def test_the_subjects_are_found_by_name() -> None:
    assert set(roster.ROSTER) <= set(subjects.names())


def test_a_subject_that_is_not_listed_takes_the_cases_that_name_it() -> None:
    named = Case("named", "?", (), subjects=("swift", "headrace"))
    assert roster.reason(named, "swift") is None
    assert roster.reason(RATE, "swift") == roster.ELSEWHERE
    assert roster.reason(RATE, "my.loader") is None


@pytest.mark.parametrize("name", [name for name, entry in roster.ROSTER.items() if not entry.environment])
def test_a_subject_has_the_methods_that_the_roster_promises(name: str) -> None:
    pytest.importorskip("torch")
    subject = subjects.find(name)
    assert [method for method in roster.ROSTER[name].takes if not callable(getattr(subject, method, None))] == []
