"""`headrace verify`: sound pipes are proved, and each planted fault is found."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.cli import main
from headrace.cli.proofs import Positions, ProofOptions, cuts, prove, prove_stateful
from headrace.cli.replay import replay
from headrace.cli.subject import Subject, find
from headrace.loader import Loader
from headrace.measuring import measure
from headrace.pipe.graph import Pipe
from tests.cli.conftest import Headrace
from tests.cli.subjects import TEXT
from tests.cli.subjects import forgotten as forgotten
from tests.conftest import RunScript
from tests.depth import depth


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "verified.py"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("name", depth(["pipe", "make"], ["pipe", "loader", "singles", "make"]))
def test_a_sound_pipe_is_proved(file: Path, headrace: Headrace, name: str) -> None:
    done = headrace("verify", f"{file}:{name}", "--workers", "1,2", "--ranks", "2", "--cuts", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILS" not in done.stdout
    for words in ("repeat", "once", "workers=2, process", "resume after 0", "ranks"):
        assert words in done.stdout


def test_json_has_every_proof(file: Path, headrace: Headrace) -> None:
    done = headrace("verify", f"{file}:pipe", "--workers", "1", "--cuts", "2", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["holds"]) == (0, True)
    assert [p["name"] for p in data["proofs"]] == [
        "repeat", "once, inline", "workers=1, process", "once, workers=1, process", "workers=1, thread",
        "once, workers=1, thread", "resume after 6", "resume after 13",
    ]  # fmt: skip


def test_a_loader_that_delivers_in_any_order_is_compared_in_order() -> None:
    loader = Loader(Pipe.of(range(200)).batch(2), workers=2, ordered=False)
    proofs = list(prove(Subject("it", loader), ProofOptions(workers=(2,), cuts=3)))
    assert all(proof.holds for proof in proofs), proofs


def test_threads_that_draw_from_global_generators_are_a_remark_unless_they_were_asked_for(file: Path) -> None:
    subject = find(f"{file}:pipe")
    remarks = {p.name: p.holds for p in prove(subject, ProofOptions(workers=(2,), cuts=0))}
    assert remarks["workers=2, thread"] is None
    asked = {p.name: p.holds for p in prove(subject, ProofOptions(workers=(2,), kinds=("thread",), cuts=0))}
    assert asked["workers=2, thread"] is False


def test_a_pipe_that_is_no_function_of_its_seed_is_found_first(file: Path, headrace: Headrace) -> None:
    done = headrace("verify", f"{file}:clocked")
    assert done.returncode == 1
    assert "FAILS repeat" in done.stdout
    assert "no function of the sample" in done.stdout


def test_an_empty_epoch_is_a_remark(file: Path, headrace: Headrace) -> None:
    done = headrace("verify", f"{file}:empty")
    assert (done.returncode, "nothing to compare" in done.stdout) == (0, True)


def test_a_part_of_a_long_epoch_can_be_verified(file: Path, headrace: Headrace) -> None:
    done = headrace("verify", f"{file}:pipe", "--batches", "5", "--workers", "2", "--cuts", "3")
    assert done.returncode == 0, done.stdout
    assert "5 batches" in done.stdout
    assert "resume after 5" in done.stdout


class Lost(Loader[Any]):
    """A loader that forgets where it was."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if state["at"] is not None and state["at"]["place"] is not None:
            state["at"]["place"]["position"] += 8
        return state


def test_a_resume_that_loses_a_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cli.subject.Loader", Lost)
    subject = Subject("x:pipe", Pipe.of(range(64)).batch(8))
    found = {p.name: p for p in prove(subject, ProofOptions(workers=(1,), cuts=3))}
    assert found["resume after 4"].holds is False
    assert found["resume after 4"].detail == "batch 4 differs"
    assert found["resume after 8"].detail.startswith("its own snapshot is refused: the snapshot stands at sample 72")


def test_a_position_that_is_fetched_twice_or_never_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Positions.count

    def wrong(self: Positions, stage: int, reply: Any) -> None:
        counted(self, stage, reply)
        if reply.ticket.number == 2:
            self.seen[3] += 1
            del self.seen[17]

    monkeypatch.setattr(Positions, "count", wrong)
    proofs = list(prove(Subject("x:pipe", Pipe.of(range(40)).batch(8)), ProofOptions(workers=(1,), cuts=0)))
    once = [p for p in proofs if p.name.startswith("once")]
    assert once
    assert all(p.detail == "fetched too often: 3; never fetched: 17" for p in once)


def test_a_torch_style_loader_is_verified_by_its_own_state(tmp_path: Path, headrace: Headrace) -> None:
    path = tmp_path / "torchy.py"
    path.write_text(
        "from headrace.doors.torch.loader import DataLoader\n"
        "loader = DataLoader(list(range(40)), batch_size=4, shuffle=True, num_workers=1)\n"
    )
    done = headrace("verify", f"{path}:loader", "--cuts", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok    resume after 5" in done.stdout


def test_random_values_that_differ_after_a_resume_are_told_with_a_cure(tmp_path: Path, headrace: Headrace) -> None:
    path = tmp_path / "torchy.py"
    path.write_text(
        "import random\n"
        "from headrace.doors.torch.loader import DataLoader\n"
        "class Noisy:\n"
        "    def __len__(self): return 40\n"
        "    def __getitem__(self, index): return index + random.random()\n"
        "loader = DataLoader(Noisy(), batch_size=4, num_workers=1)\n"
        "exact = DataLoader(Noisy(), batch_size=4, num_workers=1, reproducible=True)\n"
    )
    done = headrace("verify", f"{path}:loader", "--cuts", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    (failed,) = [line for line in done.stdout.splitlines() if "resume after 5" in line]
    assert failed.endswith("set reproducible=True, or draw from headrace.rng()")
    done = headrace("verify", f"{path}:exact", "--cuts", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_ranks_that_cannot_be_counted_are_not_checked_and_the_remark_says_how(file: Path, headrace: Headrace) -> None:
    done = headrace("verify", f"{file}:make", "--workers", "1", "--cuts", "1", "--ranks", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    (remark,) = [line for line in done.stdout.splitlines() if line.startswith("note  ranks")]
    assert "not checked: " in remark
    assert "headrace run --num-instances 2 python" in remark


def test_a_foreign_loader_whose_state_is_wrong_is_found() -> None:
    class Forgets:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            for self.at in range(self.at, 10):  # noqa: B020
                yield self.at

        def state_dict(self) -> int:
            return self.at

        def load_state_dict(self, state: int) -> None:
            self.at = state

    assert [p.holds for p in prove_stateful(Forgets(), 3, None)] == [True, True, False, False]


def test_cuts_have_the_ends_and_what_lies_between() -> None:
    assert cuts(10, 4) == [0, 3, 7, 10]
    assert cuts(1, 4) == [0, 1]
    assert cuts(10, 1) == [5]
    assert cuts(10, 0) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--workers", "0"),
        ("--workers", "a"),
        ("--kinds", "magic"),
        ("--ranks", "0"),
        ("--cuts", "-1"),
        ("--batches", "0"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    file: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", f"{file}:pipe", option, value]) == 2
    assert f"{option} " in capsys.readouterr().err


# --- quarantine -------------------------------------------------------------------------------------------------------


MAIN = """
import sys
for epoch in range(2):
    list(globals()[sys.argv[1]])
"""


def quarantined(run_script: RunScript, name: str, path: Path) -> None:
    """Two epochs in a program of its own, where the file is not a module but `__main__`."""
    text = TEXT.replace('on_error="skip"', f'on_error="skip", quarantine={str(path)!r}')
    done = run_script(text.partition("if __name__")[0] + MAIN, name)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["bad", "bad_stream"])
def test_the_samples_of_a_quarantine_fail_again(
    file: Path, tmp_path: Path, headrace: Headrace, run_script: RunScript, name: str
) -> None:
    path = tmp_path / "bad.jsonl"
    quarantined(run_script, name, path)
    done = headrace("verify", f"{file}:{name}", "--quarantine", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    fails = [line for line in done.stdout.splitlines() if "fails again" in line]
    assert len(fails) == (8 if name == "bad" else 6)
    assert sum("ValueError: sample 41" in line for line in fails) == 2
    assert sum("KeyError" in line for line in fails) == (2 if name == "bad" else 0)


ROLLS = """
import random
from headrace import Loader, Pipe, World

def roll(x):
    if random.random() < 0.1:
        raise ValueError(f"rolled at {x}")
    return x

pipe = Pipe.of(range(400)).map(roll)

if __name__ == "__main__":
    for rank in range(2):
        with Loader(pipe, world=World(rank=rank, ranks=2), on_error="skip", quarantine="rolls.jsonl") as loader:
            list(loader)
"""


@pytest.mark.parametrize("name", ["rolls.jsonl", "rolls.1.jsonl"])
def test_single_samples_of_a_rank_fail_again_with_the_same_random_values(
    tmp_path: Path, headrace: Headrace, run_script: RunScript, name: str
) -> None:
    (tmp_path / "rolls.py").write_text(ROLLS)
    assert run_script(ROLLS).returncode == 0
    done = headrace("verify", "rolls.py:pipe", "--quarantine", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fails again") > 5


def picky(x: int) -> list[int]:
    if x % 11 == 5:
        raise ValueError(f"sample {x}")
    return [x] * 3


@pytest.mark.parametrize("how", ["batches", "buckets", "windows"])
def test_samples_of_batches_that_were_shuffled_fail_again(how: str, tmp_path: Path) -> None:
    documents = Pipe.of(range(60)).map(picky)
    batches = {
        "batches": lambda: documents.batch(4),
        "buckets": lambda: documents.sized([3] * 60).bucket(12, window=8).shuffle(),
        "windows": lambda: documents.bucket(12, window=8),
    }[how]()
    pipe = batches.shuffle() if how == "batches" else batches
    with Loader(pipe, on_error="skip", quarantine=tmp_path / "bad.jsonl") as loader:
        list(loader)
    proofs = list(replay(Subject("x:pipe", pipe), tmp_path / "bad.jsonl"))
    assert len(proofs) == 5
    assert all(proof.holds for proof in proofs), proofs


def test_samples_that_were_repaired_are_told(tmp_path: Path, headrace: Headrace, run_script: RunScript) -> None:
    path = tmp_path / "bad.jsonl"
    quarantined(run_script, "bad", path)
    mended = tmp_path / "verified.py"
    mended.write_text(TEXT.replace("(17, 40, 41)", "(17,)"))
    done = headrace("verify", f"{mended}:bad", "--quarantine", str(path))
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("does not fail any more") == 4
    assert done.stdout.count("fails again") == 4


def test_a_quarantine_of_another_pipe_or_seed_is_refused(
    file: Path, tmp_path: Path, headrace: Headrace, run_script: RunScript
) -> None:
    path = tmp_path / "bad.jsonl"
    quarantined(run_script, "bad", path)
    done = headrace("verify", f"{file}:pipe", "--quarantine", str(path))
    assert (done.returncode, "this file is of another pipe: op 2" in done.stderr) == (2, True)
    text = path.read_text().replace('"seed": 5', '"seed": 6')
    path.write_text(text)
    done = headrace("verify", f"{file}:bad", "--quarantine", str(path))
    assert (done.returncode, "seed=6" in done.stderr) == (2, True)


def test_an_epoch_of_another_length_is_compared_with_that_length(tmp_path: Path) -> None:
    lengths = [1 + 37 * i % 59 for i in range(300)]
    documents = Pipe.of([np.arange(n, dtype=np.int32) for n in lengths])
    sized = documents.sized(measure(documents, tmp_path / "lengths"))
    pipe = sized.shuffle().pack(64, how="fit", window=16).batch(1)
    assert len({len(list(Loader(pipe, epoch=epoch))) for epoch in range(3)}) > 1
    for epoch in range(3):
        proofs = list(prove(Subject("x:pipe", pipe), ProofOptions(workers=(1,), cuts=0, ranks=2, epoch=epoch)))
        assert all(proof.holds for proof in proofs), proofs


class Kept:
    """A dataset that gives out what it holds."""

    def __init__(self) -> None:
        self.samples = [{"x": i} for i in range(12)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> dict[str, int]:
        return self.samples[i]


def raised(sample: dict[str, int]) -> dict[str, int]:
    sample["x"] += 1
    return sample


def labelled(sample: dict[str, int]) -> dict[str, int]:
    sample["label"] = sample["x"] % 3
    return sample


@pytest.mark.parametrize("change", [raised, labelled])
def test_a_map_that_changes_what_the_dataset_holds_is_named(change: Any) -> None:
    subject = Subject("x:pipe", Pipe.of(Kept()).shuffle().map(change).batch(4))
    proofs = {p.name: p for p in prove(subject, ProofOptions(workers=(1,), cuts=0))}
    assert proofs["in place"].holds is False
    assert "of(" in proofs["in place"].detail
    assert "copy" in proofs["in place"].detail


def test_a_dataset_that_draws_is_not_taken_for_one_that_was_changed() -> None:
    import random

    class Drawing(Kept):
        def __getitem__(self, i: int) -> Any:
            return random.random()

    subject = Subject("x:pipe", Pipe.of(Drawing()).batch(4))
    assert "in place" not in {p.name for p in prove(subject, ProofOptions(workers=(1,), cuts=0))}
