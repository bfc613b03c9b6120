"""`on_error="skip"` where documents are packed or bucketed: the bad one goes alone, and is counted and listed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.observe.digest import digest
from headrace.ops.text.sized import Measured, Measurement
from headrace.pipe.verbs.growing import grow

BAD = (7, 19)
COUNT = 30


def fragile(text: str) -> list[int]:
    if int(text) in BAD:
        raise ValueError(f"bad document {text}")
    return [int(text) + 1] * 3


def documents(known: bool) -> Pipe[Any]:
    made = Pipe.of([str(number) for number in range(COUNT)]).tokenize(fragile)
    return made.sized([3] * COUNT) if known else made


def seen(batches: list[Any]) -> Counter[int]:
    """Tokens of each document."""
    found: Counter[int] = Counter()
    for batch in batches:
        rows = (
            [batch["tokens"][batch["mask"]] if "mask" in batch else batch["tokens"]]
            if isinstance(batch, dict)
            else batch
        )
        found.update(int(token) - 1 for row in rows for token in row)
    return found


MADE = {
    "split": lambda pipe: pipe.pack(10),
    "split with overlap": lambda pipe: pipe.pack(12, overlap=1),
    "fit": lambda pipe: pipe.pack(9, how="fit"),
    "shuffled, split": lambda pipe: pipe.shuffle().pack(10, window=8),
    "separated": lambda pipe: pipe.pack(9, separator=99),
    "flat": lambda pipe: pipe.pack(9, how="fit", form="flat"),
    "bucket": lambda pipe: pipe.bucket(12),
    "shuffled bucket": lambda pipe: pipe.shuffle().bucket(12, window=8),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("known", [False, True])
def test_a_bad_document_is_left_out_alone(name: str, known: bool, tmp_path: Path) -> None:
    pipe = MADE[name](documents(known))
    outputs = []
    for how in ({}, {"workers": 2, "kind": "thread"}):
        listed = tmp_path / f"{len(outputs)}.jsonl"
        with Loader(pipe, on_error="skip", quarantine=listed, seed=1, **how) as loader:
            outputs.append(list(loader))
            skips = loader.stats().skips
        found = seen(outputs[-1])
        del found[98]  # the separator
        assert all(found[number] >= 3 for number in range(COUNT) if number not in BAD)
        assert "overlap" in name or set(found.values()) == {3}
        assert not any(found[number] for number in BAD)
        entries = [json.loads(line) for line in listed.read_text().splitlines()]
        indices = [entry["index"] for entry in entries if "error" in entry]
        assert set(indices) == set(BAD)
        assert skips == len(indices)  # (a document that two rows share is counted in both)
    assert digest(outputs[0]) == digest(outputs[1])


def test_the_place_of_a_bad_document_is_padding() -> None:
    of = [{"tokens": [n] * 2, "loss": [[0.5, 1.0]] * 2} for n in range(1, 6)]

    def bad(document: Any) -> Any:
        return 1 / 0 if document["tokens"][0] == 2 else document

    pipe = Pipe.of(of).map(bad).sized([2] * 5)
    first, second = Loader(pipe.pack(6, pad=9), on_error="skip")
    assert first["tokens"].tolist() == [1, 1, 9, 9, 3, 3]
    assert first["documents"].tolist() == [1, 1, 0, 0, 2, 2]
    assert first["positions"].tolist() == [0, 1, 0, 0, 0, 1]
    assert first["mask"].tolist() == [True, True, False, False, True, True]
    assert first["loss"].tolist() == [[0.5, 1]] * 2 + [[0, 0]] * 2 + [[0.5, 1]] * 2
    assert second["tokens"].tolist() == [4, 4, 5, 5, 9, 9]
    flat, _ = Loader(pipe.pack(6, form="flat"), on_error="skip")
    assert (flat["tokens"].tolist(), flat["cu_seqlens"].tolist()) == ([1, 1, 3, 3], [0, 2, 4])
    assert flat["loss"].shape == (4, 2)
    with pytest.raises(ZeroDivisionError):
        list(Loader(pipe.pack(6)))


def test_a_row_or_batch_of_which_nothing_is_left_is_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "bad.jsonl"
    made = Pipe.of(["7", "19", "1", "2"]).tokenize(fragile).sized([3] * 4)
    for pipe in (made.pack(6), made.bucket(6)):
        with Loader(pipe, on_error="skip", quarantine=listed) as loader:
            assert seen(list(loader)) == {1: 3, 2: 3}
            assert loader.stats().skips == 2
        entries = [json.loads(line) for line in listed.read_text().splitlines()]
        assert sorted(entry["index"] for entry in entries if "error" in entry) == [0, 1]
        listed.unlink()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("bad", [(0,), (0, 1, 2, 3), tuple(range(40))])
def test_what_is_left_out_sums_up_whatever_fails(known: bool, bad: tuple[int, ...]) -> None:
    def letters(text: str) -> list[int]:
        if int(text) in bad and int(text) % 5 != 4:
            raise ValueError("bad")
        return [int(text)] * (50 if int(text) % 5 == 4 else 3)

    pipe = Pipe.of([str(n) for n in range(40)]).tokenize(letters)
    if known:
        pipe = pipe.sized([50 if n % 5 == 4 else 3 for n in range(40)])
    rows = list(Loader(pipe.pack(9, how="fit", long="drop"), on_error="skip"))
    if known or len(bad) < 40:  # (of a window of which nothing is left there is no row that could say so)
        assert sum(row["left_out"] for row in rows).tolist() == [8, 0]


def test_a_document_that_cannot_be_packed_does_not_take_its_window_with_it() -> None:
    for of, bad in (
        ([[1], [2.5], [3], [2**40], [5]], 2),
        ([[1], "text", [3], None, [5]], 2),
        ([{"tokens": [1]}, {"tokens": [3], "loss": [1]}, {"tokens": [3]}, {"text": "x"}, {"tokens": [5]}], 2),
    ):
        for made in (Pipe.of(of), Pipe.of(lambda of=of: iter(of)), Pipe.of(of).sized([1] * 5)):
            with Loader(made.pack(8), on_error="skip") as loader:
                rows = list(loader)
                assert [token for row in rows for token in row["tokens"][row["mask"]].tolist()] == [1, 3, 5]
                assert loader.stats().skips == bad
    with Loader(Pipe.of([[1] * 9, [2] * 2, [3] * 2]).bucket(4), on_error="skip") as loader:
        assert list(loader) == [[[2] * 2, [3] * 2]]
        assert loader.stats().skips == 1
    with Loader(Pipe.of([[1] * 9, [2] * 2]).pack(4, how="fit", long="error"), on_error="skip") as loader:
        assert [row["tokens"].tolist() for row in loader] == [[2, 2, 0, 0]]


def test_rows_without_bad_documents_are_the_same_on_ranks_and_after_a_resume() -> None:
    pipe = documents(known=True).shuffle().pack(10, window=8).batch(2)
    whole = [digest(row) for batch in Loader(pipe, on_error="skip", seed=4) for row in batch]
    shares = [Loader(pipe, on_error="skip", seed=4, world=World(rank, 2), ends="short") for rank in range(2)]
    steps = [{digest(row) for batch in step for row in batch} for step in zip(*shares, strict=False)]
    assert len(steps) > 1
    assert steps[:-1] == [set(whole[4 * i : 4 * i + 4]) for i in range(len(steps) - 1)]
    first = Loader(pipe, on_error="skip", seed=4)
    batches = iter(first)
    front = [digest(row) for _ in range(3) for row in next(batches)]
    again = Loader(pipe, on_error="skip", seed=4)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert front + [digest(row) for batch in again for row in batch] == whole


@pytest.mark.parametrize("name", ["pack", "bucket", "measured"])
def test_a_row_of_which_nothing_is_left_does_not_end_a_stream(name: str, tmp_path: Path) -> None:
    numbers = [0, 7, 19, 7, 19, 1, 2, 3, 4, 5, 6, 8]
    made = Pipe.of([str(number) for number in numbers]).tokenize(fragile)
    known = Measured(Measurement(np.ones(12, np.int64), np.full(12, 3), "")) if name == "measured" else None
    sized = made.sized([3] * 12) if known is None else grow(made, known)
    pipe = (sized.bucket(3) if name == "bucket" else sized.pack(3)).shuffle(buffer_size=3)
    with Loader(pipe, on_error="skip", seed=3) as loader:
        whole = list(loader)
        assert seen(whole) == dict.fromkeys([0, 1, 2, 3, 4, 5, 6, 8], 3)
        assert loader.stats().skips == 4
    for at in range(len(whole)):
        first = Loader(pipe, on_error="skip", seed=3)
        batches = iter(first)
        front = [next(batches) for _ in range(at)]
        again = Loader(pipe, on_error="skip", seed=3)
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert digest(front + list(again)) == digest(whole)


def test_a_quarantine_file_of_packed_rows_can_be_run_again(tmp_path: Path, capsys: Any) -> None:
    from headrace.cli import main

    script, listed = tmp_path / "data.py", tmp_path / "bad.jsonl"
    script.write_text(
        "from headrace import Loader, Pipe\n"
        "def fragile(text):\n"
        "    if int(text) % 2:\n"
        "        raise ValueError(f'bad {text}')\n"
        "    return [int(text)] * 3\n"
        "pipe = Pipe.of([str(n) for n in range(12)]).tokenize(fragile).sized([3] * 12).pack(12)\n"
        f"loader = Loader(pipe, on_error='skip', quarantine={str(listed)!r})\n"
        "if __name__ == '__main__':\n"
        "    list(loader)\n"
    )
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__"})
    assert len(listed.read_text().splitlines()) == 1 + 6
    assert main(["verify", f"{script}:loader", "--quarantine", str(listed)]) == 0, capsys.readouterr().out
