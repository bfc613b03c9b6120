"""`scripts/compat`: outcomes whatever a test does, losses with their class, and the proof that ours was in place."""

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from compat import environments, page, parts, results
from compat.losses import DEFECT, DOCUMENTED, PRIVATE, Entry, classify, read, stale
from compat.proof import Proof, prove
from compat.running import Outcomes, Side
from compat.suites import SUITES, TORCH

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(sysconfig.get_paths()["purelib"])

TESTS = """
import os, threading, unittest

def test_passes(): pass
def test_fails(): assert 1 == 2, "one is not two"
def test_hangs(): threading.Event().wait()
def test_dies(): os._exit(3)
def test_kills(): os.kill(os.getpid(), 9)

class TestLast(unittest.TestCase):
    def test_passes_after_all_that(self): pass
    @unittest.skip("no reason")
    def test_skipped(self): pass
"""

ONCE = """
import pathlib, pytest

def test_fails_the_first_time():
    marker = pathlib.Path("was here")
    marker.exists() or marker.touch() or pytest.fail()
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> Callable[[list[str]], Path]:
    def made(lines: list[str]) -> Path:
        return environments.overlay(tmp_path / "environment", PACKAGES, lines)

    return made


@pytest.fixture
def side(tmp_path: Path, interpreter: Callable[[list[str]], Path]) -> Callable[..., Outcomes]:
    def run(seconds: float, known: bool, **files: str) -> Outcomes:
        tests = tmp_path / "tests"
        tests.mkdir()
        for name, text in files.items():
            (tests / f"{name}.py").write_text(text)
        python = interpreter([str(ROOT / "compat" / "side")])
        return Side(python, tests, tmp_path / "log", seconds).run(["."], lambda test: known)

    return run


def test_every_test_has_an_outcome_whatever_hangs_or_dies(side: Callable[..., Outcomes]) -> None:
    found = side(3, True, test_all=TESTS, test_broken="import nothing_of_that_name")
    assert {test.split("::")[-1]: outcome for test, outcome in found.outcome.items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_hangs": "timeout",
        "test_dies": "crashed",
        "test_kills": "crashed",
        "test_passes_after_all_that": "passed",
        "test_skipped": "skipped",
    }
    assert "one is not two" in found.error["test_all.py::test_fails"]
    assert "nothing_of_that_name" in found.broken["test_broken.py"]


def test_what_passes_when_repeated_has_passed_and_is_named(side: Callable[..., Outcomes]) -> None:
    found = side(30, False, test_once=ONCE)
    assert found.outcome == {"test_once.py::test_fails_the_first_time": "passed"}
    assert found.repeated == ["test_once.py::test_fails_the_first_time"]


def test_a_run_in_parts_is_whole_when_the_last_part_is_there(tmp_path: Path) -> None:
    found = [Outcomes({f"test_{k}": "passed"}, seconds=1.0) for k in (1, 2)]
    assert parts.kept(tmp_path, "swift-abc", (2, 2), found[1], Proof(2, 2, 1)) is None
    assert parts.kept(tmp_path, "swift-def", (1, 2), found[0], Proof(1, 1, 1)) is None, "of another commit"
    whole = parts.kept(tmp_path, "swift-abc", (1, 2), found[0], Proof(3, 3, 2, wrong=["foreign"]))
    assert whole == (
        Outcomes({"test_1": "passed", "test_2": "passed"}, seconds=2.0),
        Proof(5, 5, 3, wrong=["foreign"]),
    )


PROCESSES = """
import multiprocessing, subprocess, sys
from swift_loader import SwiftLoader

def child():
    from swift_loader import SwiftLoader

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
    # Without a variable of the environment, and isolated from the folder it is in.
    subprocess.run([sys.executable, "-I", "-c", "import swift_loader"], env={}, check=True)
    SwiftLoader.start(object.__new__(SwiftLoader), -1) if sys.argv[1:] else None
"""


def witnessed(
    interpreter: Callable[[list[str]], Path], folder: Path, program: str, *arguments: str, suite: str = "swift"
) -> Path:
    witness = folder / "witness"
    witness.mkdir()
    python = interpreter(environments.ours(SUITES[suite], witness, ""))
    (folder / "program.py").write_text(program)
    command = [str(python), str(folder / "program.py"), *arguments]
    subprocess.run(command, env=environments.variables(), capture_output=True, timeout=50)
    return witness


def test_ours_is_in_place_in_every_process_however_it_was_started(
    interpreter: Callable[[list[str]], Path], tmp_path: Path
) -> None:
    proof = prove(witnessed(interpreter, tmp_path, PROCESSES, "use"), ("swift_loader.SwiftLoader",))
    assert proof.wrong == []
    # This one, three children and a program; helpers of multiprocessing import nothing.
    assert proof.replaced == 5
    assert proof.used == 1


OURS_FIRST = """
import headrace
loader = headrace.DataLoader
import torch.utils.data
assert torch.utils.data.DataLoader is loader
assert len(list(torch.utils.data.DataLoader([1, 2, 3]))) == 3
"""


@pytest.mark.deep
def test_ours_is_in_place_where_headrace_itself_imports_torch(
    interpreter: Callable[[list[str]], Path], tmp_path: Path
) -> None:
    witness = witnessed(interpreter, tmp_path, OURS_FIRST, suite="torch")
    proof = prove(witness, SUITES["torch"].replaced)
    assert (proof.wrong, proof.used) == ([], 1)


@pytest.mark.deep
def test_a_run_that_used_nothing_of_ours_proves_nothing(
    interpreter: Callable[[list[str]], Path], tmp_path: Path
) -> None:
    proof = prove(witnessed(interpreter, tmp_path, PROCESSES), ("swift_loader.SwiftLoader", "swift_loader.Other"))
    assert proof.wrong == ["swift_loader.Other was never asked for", "nothing of headrace's was used"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("foreign\ttorch.utils.data.dataloader._SingleProcessDataLoaderIter", "foreign in process 7"),
        ("unseen\tpython -S x.py", "unseen in process 7"),
        ("name\ta.Name torch.utils.data.dataloader", "a.Name was torch.utils.data.dataloader's in process 7"),
    ],
)
def test_one_process_with_the_original_spoils_the_run(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "6").write_text("started\tx\nname\ta.Name headrace.loader\nused\theadrace.loader.Loader\n")
    assert prove(tmp_path, ("a.Name",)).wrong == []
    (tmp_path / "7").write_text(f"started\tx\n{line}\n")
    (wrong,) = prove(tmp_path, ("a.Name",)).wrong
    assert wrong.startswith(said)


def test_a_loss_that_no_entry_names_is_a_defect() -> None:
    entries = [Entry("torch", PRIVATE, "r", "", ("a.py::T::test_x*", "a.py::test_p[1-2]"))]
    assert classify("torch", "a.py::T::test_xy", entries).kind == PRIVATE
    assert classify("torch", "a.py::test_p[1-2]", entries).kind == PRIVATE
    assert classify("torch", "a.py::test_p1", entries).kind == DEFECT
    assert classify("stateful", "a.py::T::test_xy", entries).kind == DEFECT
    assert stale("torch", ["a.py::T::test_xy"], entries) == ["a.py::test_p[1-2]"]


def test_every_documented_difference_links_to_a_heading_that_exists() -> None:
    for entry in read():
        assert entry.suite in SUITES
        if entry.kind != DOCUMENTED:
            continue
        name, _, anchor = entry.link.partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / name).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        assert anchor in slugs, entry.link


def test_the_page_says_what_the_results_say() -> None:
    assert page.FILE.read_text() == page.text(results.stored()), "run scripts/compat --page"


def test_the_classes_of_the_stored_losses_are_those_of_the_list() -> None:
    entries = read()
    for result in results.stored():
        for loss in result["losses"]:
            entry = classify(result["suite"], loss["test"], entries)
            assert (loss["class"], loss["reason"], loss["link"]) == (entry.kind, entry.reason, entry.link), loss["test"]


def test_stored_results_add_up() -> None:
    for result in results.stored():
        assert result["suite"] in SUITES
        assert result["kept"] + len(result["losses"]) == result["comparable"]
        assert list(result["original outcomes"].values()).count("passed") == result["comparable"]
        assert result["proof"]["used"] > 0
        assert "/tmp" not in json.dumps(result)


def test_one_torch_is_pinned_for_everybody() -> None:
    pins = subprocess.run(
        [sys.executable, "-c", "import environment; print(environment.PINNED['torch'][0])"],
        cwd=ROOT / "scripts", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert pins.stdout.strip() == TORCH
