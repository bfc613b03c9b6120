"""Documents behind filters and flatmaps, by their number, once they have been measured."""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World, measure, rng
from headrace.errors import BadOption
from headrace.ops.text.sized import Measure, Measured, Measurement
from headrace.pipe.verbs.growing import grow

DOCUMENTS = [f"{n} {'x' * (n * 7 % 23)}" for n in range(600)]


def odd(text: str) -> bool:
    return len(text) % 5 != 1


def copies(text: str) -> list[str]:
    """None, one or two of it."""
    return [text] * (len(text) % 3)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


class Texts:
    """A dataset whose seventh document may change."""

    added = ""

    def __len__(self) -> int:
        return len(DOCUMENTS)

    def __getitem__(self, number: int) -> str:
        return DOCUMENTS[number] + self.added * (number == 7)


def documents(data: list[str] = DOCUMENTS) -> Pipe[Any]:
    return Pipe.of(data).filter(odd).flatmap(copies).tokenize(letters)


def small() -> Pipe[Any]:
    counts, lengths = np.array([0, 2, 1]), np.array([2, 2, 4])
    found = Pipe.of(["", "ab", "abcd"]).flatmap(copies).tokenize(letters)
    return grow(found, Measured(Measurement(counts, lengths, "")))


EXAMPLES = {
    "Measured": lambda of, at: small(),
    "Measure": lambda of, at: grow(Pipe.of(DOCUMENTS).filter(odd).tokenize(letters), Measure()),
}


def plain(samples: Any) -> list[list[int]]:
    return [list(map(int, sample)) for sample in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_filters_leave_can_be_had_by_number(tmp_path: Path, workers: int) -> None:
    made = documents()
    assert made.indexed(0, 0) is None
    known = made.sized(measure(made, tmp_path / "lengths", workers=workers))
    assert os.listdir(tmp_path) == ["lengths"]
    whole = plain(made)
    assert len(known) == len(whole)
    assert plain(known) == whole
    indexed = known.indexed(0, 0)
    assert indexed is not None
    assert indexed.lengths is not None
    assert indexed.many is not None
    order = np.random.default_rng(0).permutation(len(whole))
    assert plain(map(indexed.get, order.tolist())) == plain(indexed.many(order.tolist())) == [whole[i] for i in order]
    assert indexed.lengths.at(order).tolist() == [len(whole[i]) for i in order]
    shuffled = plain(known.shuffle())
    assert shuffled != whole
    assert sorted(shuffled) == sorted(whole)


def test_every_rank_may_measure_and_one_does(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "lengths")
    ranks = [multiprocessing.get_context("fork").Process(target=_rank, args=(path, tmp_path)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(30)
        assert rank.exitcode == 0
    assert len((tmp_path / "read").read_text()) == len(DOCUMENTS)


def _rank(path: str, folder: Path) -> None:
    def noted(text: str) -> list[int]:
        with open(folder / "read", "a") as file:
            file.write("x")
        return letters(text)

    measure(Pipe.of(DOCUMENTS).tokenize(noted), path)


def test_a_file_of_another_pipe_is_refused(tmp_path: Path) -> None:
    path = measure(documents(), tmp_path / "lengths")
    assert measure(documents(), path) == path
    with pytest.raises(BadOption, match="another pipe: remove it"):
        measure(documents(DOCUMENTS[:50]), path)
    with pytest.raises(BadOption, match="another pipe: remove it"):
        documents(DOCUMENTS[:50]).sized(path)
    with pytest.raises(BadOption, match="3 positions were measured, and there are 4: measure"):
        grow(Pipe.of(["", "ab", "abcd", "a"]).flatmap(copies), small().op).shuffle().pack(8)


def test_documents_that_have_changed_are_an_error_not_other_tokens(tmp_path: Path) -> None:
    texts = Texts()
    made = Pipe.of(texts).filter(odd).flatmap(copies).tokenize(letters)
    known = made.sized(measure(made, tmp_path / "lengths"))
    for added in ("x", "xxx"):  # another number of copies; as many, but longer
        texts.added = added
        with pytest.raises(BadOption, match=r"when it was measured: measure\(\) anew"):
            list(Loader(known.pack(64).batch(4)))


def test_what_depends_on_chance_cannot_be_measured(tmp_path: Path) -> None:
    def sometimes(text: str) -> bool:
        return bool(rng().random() < 0.5)

    made = Pipe.of(DOCUMENTS).filter(sometimes).tokenize(letters)
    known = made.sized(measure(made, tmp_path / "lengths"))
    with pytest.raises(BadOption, match="must not depend on chance"):
        list(Loader(known.pack(64), seed=8))
    with pytest.raises(BadOption, match=r"there is shuffle\(\): measure what comes before it"):
        measure(Pipe.of(DOCUMENTS).shuffle().tokenize(letters), tmp_path / "other")
    with pytest.raises(BadOption, match="no stream"):
        measure(Pipe.of(iter(DOCUMENTS)).tokenize(letters), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = Path(measure(documents(), tmp_path / "lengths"))
    good = path.read_bytes()
    chance = np.random.default_rng(0)
    whole = plain(documents())
    for case in range(300):
        bad = bytearray(good[: chance.integers(1, len(good))] if case % 3 == 0 else good)
        bad[chance.integers(len(bad))] ^= 1 << chance.integers(8)
        path.write_bytes(bad)
        try:
            found = plain(documents().sized(str(path)))
        except BadOption:
            continue
        assert found == whole  # (a bit that nobody looks at)
    np.savez(tmp_path / "objects.npz", counts=np.array([{}], object), lengths=np.zeros(0), pipe=np.array(""))
    with pytest.raises(BadOption, match=r"no file that headrace\.measure"):
        documents().sized(tmp_path / "objects.npz")


def test_nothing_at_all(tmp_path: Path) -> None:
    for name, made in {"none": documents([]), "left out": documents(["abcdef"])}.items():
        known = made.sized(measure(made, tmp_path / name))
        assert len(known) == 0
        assert list(Loader(known.shuffle().pack(8).batch(2))) == []


def test_measured_batches_are_one_sequence_for_any_ranks(tmp_path: Path) -> None:
    made = documents()
    pipe = made.sized(measure(made, tmp_path / "lengths")).shuffle().bucket(200, window=100)
    whole = [plain(batch) for batch in Loader(pipe, seed=3)]
    assert sorted(one for batch in whole for one in batch) == sorted(plain(made))
    assert all(max(map(len, batch)) * len(batch) <= 200 for batch in whole)
    for ranks in (2, 3):
        shares = [
            [plain(b) for b in Loader(pipe, seed=3, world=World(rank, ranks), ends="short")] for rank in range(ranks)
        ]
        together = [batch for step in zip(*shares, strict=True) for batch in step]
        assert together == whole[: len(whole) // ranks * ranks]  # (the last step has a batch for every rank)


def test_a_document_of_another_length_than_was_said_is_an_error() -> None:
    for how in ("split", "fit"):
        for said in ([3, 2], [3, 5]):
            pipe = Pipe.of([[1, 2, 3], [4, 5, 6, 7]]).sized(said)
            for ordered in (pipe, pipe.shuffle()):
                with pytest.raises(BadOption, match=f"document [01] has 4 tokens where {said[1]} were said"):
                    list(Loader(ordered.pack(8, how=how)))


@pytest.mark.parametrize("as_dict", [False, True])
def test_batches_and_steps_of_wrong_lengths_are_an_error(as_dict: bool) -> None:
    for of in ([[1] * 50] * 20, [np.ones(50, np.int32)] * 20):
        lie = Pipe.of([{"tokens": one} for one in of] if as_dict else of).sized([5] * 20)
        for pipe in (lie.bucket(20), lie.shuffle().bucket(20), lie.balance(rows=4), lie.mix(lie, by="tokens").batch(4)):
            with pytest.raises(BadOption, match=r"document \d+ has 50 tokens where 5 were said"):
                list(Loader(pipe))


def test_what_has_no_tokens_yet_is_as_long_as_is_said() -> None:
    for sample in ("some text", b"bytes", (1, 2, 3), np.zeros((4, 2)), np.zeros(7), {"text": "x"}, [1.5], 3, None):
        (batch,) = Loader(Pipe.of([sample] * 2).sized([5, 5]).bucket(20))
        assert len(batch) == 2
