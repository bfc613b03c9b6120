"""The page of results: who is first, by how much, and why somebody is missing."""

from benchmarks import pages, roster
from benchmarks.case import FASTER, Case, Target
from benchmarks.harness import Measurement

RATE = Case(
    "small", "How fast?", (Target("rate", "n/s", "n/s", FASTER, at_least=2),), why={"spdl": "It crosses no process."}
)
TIME = Case("resume", "How soon?", (Target("time", "seconds", "s", less=True),), needs="resumable")
ABOUT = {
    "command": "scripts/bench --report page.md",
    "hardware": {"processor": "P", "cores": 2, "memory GB": 4, "system": "S"},
    "versions": {"torch": {"torch": "2.13.0"}},
    "python": "3.11",
    "torch": "torch==2.13.0",
    "when": "now",
    "commit": "abc",
}


def found(case: str, subject: str, value: float, figure: str = "n/s", number: int = 1) -> Measurement:
    return Measurement(number, case, subject, 0.0, {figure: value})


def page(
    *measurements: Measurement, subjects: tuple[str, ...], cases: tuple[Case, ...] = (RATE,), **absent: str
) -> str:
    return pages.page(cases, subjects, measurements, absent, ABOUT)


def test_subjects_are_listed_best_first_with_what_headrace_is_beside_each() -> None:
    text = page(found("small", "torch", 2.0), found("small", "headrace", 8.0), subjects=("torch", "headrace"))
    assert text.index("| headrace | 8 | 1 |") < text.index("| torch DataLoader | 2 | 4x |")
    assert "| small | n/s | headrace | headrace 8 | torch DataLoader 2 | 4x |" in text


def test_where_a_peer_wins_the_page_says_so_and_why() -> None:
    text = page(found("small", "spdl", 10.0), found("small", "headrace", 8.0), subjects=("headrace", "spdl"))
    assert "**SPDL, threads is first here**: 1.25x of headrace. It crosses no process." in text
    assert "| small | n/s | **SPDL, threads** |" in text


def test_a_win_inside_the_spread_is_called_that() -> None:
    rounds = [("spdl", 10.0, 1), ("headrace", 8.0, 1), ("spdl", 7.9, 2), ("headrace", 8.0, 2)]
    text = page(*(found("small", n, v, number=k) for n, v, k in rounds), subjects=("headrace", "spdl"))
    assert "is first here" in text
    assert "The spreads overlap." in text


def test_less_is_better_for_times() -> None:
    text = page(
        found("resume", "headrace", 0.5, "seconds"),
        found("resume", "stateful", 2.0, "seconds"),
        subjects=("headrace", "stateful"),
        cases=(TIME,),
    )
    assert text.index("| headrace | 0.5 | 1 |") < text.index("| torchdata StatefulDataLoader | 2 | 4x |")


def test_nobody_is_missing_without_a_reason() -> None:
    failed = Measurement(1, "resume", "grain", 0.0, None, "ended with code 1\nTraceback\nIndexError: 3")
    text = page(failed, subjects=("grain", "spdl", "hf", "mosaic"), cases=(TIME,), mosaic="no such wheel")
    assert "* Grain, processes: failed in 1 round(s): ended with code 1; `IndexError: 3`" in text
    assert "* SPDL, threads: has no snapshots" in text
    assert "* MosaicML Streaming: not installed: no such wheel" in text


def test_every_subject_takes_every_case_of_peers_or_says_why_not() -> None:
    from benchmarks import cases

    for case in cases.select([]):
        for name in roster.ROSTER:
            assert roster.reason(case, name) != "has nothing of the kind", (case.name, name)
