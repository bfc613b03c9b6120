"""An error says where it was: the op, the position in the epoch, and which sample of the dataset it is."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from tests.laws.pipes import KINDS, Numbers

BAD = 417
KINDS_TRIED = ["inline", "thread1", "fork1"]


class Fragile(Numbers):
    def __getitem__(self, i: int) -> int:
        if i == BAD:
            raise ValueError("a bad file")
        return super().__getitem__(i)


def breaks(x: int) -> int:
    if x == BAD:
        raise ValueError("a bad sample")
    return x


def ends(x: int) -> int:
    if x == BAD:
        raise StopIteration
    return x


def pipes(dataset: type[Numbers], fn: Callable[[int], int]) -> dict[str, Pipe[Any]]:
    return {
        "in the dataset": Pipe.of(dataset(1000)).shuffle(),
        "in a map before the shuffle": Pipe.of(Numbers(1000)).map(fn).shuffle(),
        "in a map after it": Pipe.of(Numbers(1000)).shuffle().map(fn),
        "in a map before a batch": Pipe.of(Numbers(1000)).shuffle().map(fn).batch(8).unbatch(),
    }


PIPES = pipes(Fragile, breaks)
POSITION = {name: list(Loader(pipe, seed=5)).index(BAD) for name, pipe in pipes(Numbers, int).items()}
WHERE = {name: f"at position {position} (index {BAD} of the dataset)" for name, position in POSITION.items()}


@pytest.mark.parametrize("kind", KINDS_TRIED)
def test_the_note_of_an_error_has_the_index_beside_the_position(kind: str) -> None:
    for name, pipe in PIPES.items():
        with Loader(pipe, seed=5, **KINDS[kind]) as loader, pytest.raises(ValueError, match="a bad") as caught:
            list(loader)
        assert WHERE[name] in caught.value.__notes__[0], name


@pytest.mark.parametrize("kind", KINDS_TRIED)
def test_the_quarantine_has_the_index_beside_the_position(kind: str, tmp_path: Path) -> None:
    for name, pipe in PIPES.items():
        path = tmp_path / f"{kind} {name}"
        with Loader(pipe, seed=5, on_error="skip", quarantine=path, **KINDS[kind]) as loader:
            list(loader)
        _, line = path.read_text().splitlines()
        assert (json.loads(line)["position"], json.loads(line)["index"]) == (POSITION[name], BAD), name


@pytest.mark.parametrize("kind", KINDS_TRIED)
def test_an_op_on_a_whole_batch_names_no_sample_of_the_dataset(kind: str) -> None:
    def broken(batch: list[int]) -> list[int]:
        raise ValueError("a bad batch")

    pipe = Pipe.of(Numbers(100)).shuffle().batch(8).map(broken)
    with Loader(pipe, seed=5, **KINDS[kind]) as loader, pytest.raises(ValueError, match="a bad") as caught:
        list(loader)
    assert caught.value.__notes__[0].startswith("headrace: in map(broken), at position 0")
    assert "index" not in caught.value.__notes__[0]


@pytest.mark.parametrize("kind", KINDS_TRIED)
def test_a_stop_iteration_in_a_map_keeps_its_notes(kind: str) -> None:
    pipe = Pipe.of(Numbers(1000)).shuffle().map(ends)
    with Loader(pipe, seed=5, **KINDS[kind]) as loader, pytest.raises(RuntimeError, match="StopIteration") as caught:
        list(loader)
    assert WHERE["in a map after it"] in caught.value.__notes__[0]


def no_samples() -> Iterator[int]:
    raise ValueError("a bad folder")


def test_a_note_of_this_process_says_the_op_and_nothing_of_the_engine() -> None:
    notes = {
        "headrace: while the pipe was read": Pipe.of(no_samples),
        f"headrace: in map(breaks), at position {BAD}": Pipe.of(Numbers(1000)).map(breaks),
    }
    for note, pipe in notes.items():
        with pytest.raises(ValueError, match="a bad") as caught:
            list(Loader(pipe))
        assert caught.value.__notes__ == [note]
