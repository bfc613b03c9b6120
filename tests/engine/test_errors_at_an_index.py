"""An error is about one position: it comes in the place of that position's outputs, and all others are made once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import Closed
from tests.depth import depth
from tests.laws.pipes import KINDS, Numbers

SIZE = 150
TRIED = ["inline", "thread3", "fork2", "server3"]
BAD: dict[str, set[int]] = {
    "in the middle": {37},
    "the first": {0},
    "the last": {SIZE - 1},
    "at the edges of a block": {63, 64},
    "all of a block": set(range(64, 128)),
    "several": {3, 4, 90, 91, 149},
}


class Noting:
    """A function that writes down each call, and fails for some samples: a process cannot count for another one."""

    def __init__(self, path: Path, bad: set[int]) -> None:
        self.path, self.bad = path, bad

    def __call__(self, x: int) -> int:
        with self.path.open("ab", 0) as file:
            file.write(b"%d\n" % x)
        if x in self.bad:
            raise KeyError(x)
        return x

    def calls(self) -> Counter[int]:
        return Counter(map(int, self.path.read_text().split()))


class Unpackable:
    """A sample that fails on its way to the consumer."""

    def __reduce__(self) -> Any:
        raise ValueError("it will not travel")


def no_third(x: int) -> bool:
    return x % 3 > 0


def twice(x: int) -> list[int]:
    return [x, x]


def pipes(note: Noting) -> dict[str, Pipe[Any]]:
    return {
        "single": Pipe.of(Numbers(SIZE)).map(note),
        "filtered": Pipe.of(Numbers(SIZE)).filter(no_third).map(note),
        "spread behind": Pipe.of(Numbers(SIZE)).map(note).flatmap(twice),
        "grouped behind": Pipe.of(Numbers(SIZE)).map(note).flatmap(twice).batch(4),
        "second stage": Pipe.of(Numbers(SIZE)).filter(no_third).batch(1).unbatch().map(note),
        "in the consumer": Pipe.of(Numbers(SIZE)).map(note).sharding_filter().header(SIZE),
    }


def read(loader: Loader[Any]) -> Iterator[Any]:
    """What an iterator gives, an error as its argument."""
    samples = iter(loader)
    while True:
        try:
            yield next(samples)
        except StopIteration:
            return
        except KeyError as error:
            yield ("failed", *error.args)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", TRIED)
def test_every_sample_is_made_exactly_once_and_errors_come_in_their_places(kind: str, bad: str, tmp_path: Path) -> None:
    for number, name in enumerate(pipes(Noting(tmp_path, set()))):
        note = Noting(tmp_path / f"calls{number}", BAD[bad])
        with Loader(pipes(note)[name], **KINDS[kind]) as loader:
            found = list(read(loader))
        made = [x for x in range(SIZE) if name not in ("filtered", "second stage") or no_third(x)]
        assert note.calls() == Counter(made), name
        errors = [one[1] for one in found if isinstance(one, tuple) and one[0] == "failed"]
        assert errors == [x for x in made if x in BAD[bad]], name
        if name in ("single", "filtered", "second stage", "in the consumer"):
            assert found == [("failed", x) if x in BAD[bad] else x for x in made]
        elif name == "spread behind":
            assert found == [one for x in made for one in ([("failed", x)] if x in BAD[bad] else [x, x])]


@pytest.mark.parametrize("kind", ["inline", "thread3", "fork2"])
@pytest.mark.parametrize("name", list(pipes(Noting(Path(), set()))))
def test_a_run_that_goes_on_anywhere_among_errors_gives_the_rest(name: str, kind: str, tmp_path: Path) -> None:
    bad = {3, 4, 63, 64, 90, SIZE - 1}
    pipe = pipes(Noting(tmp_path / "calls", bad))[name]
    with Loader(pipe, **KINDS[kind]) as loader:
        whole = list(read(loader))
    for stop in range(0, len(whole), depth(37, 3)):
        with Loader(pipe, **KINDS[kind]) as loader:
            samples = read(loader)
            got = [next(samples) for _ in range(stop)]
            state = loader.state_dict()
        with Loader(pipe, **KINDS[kind]) as loader:
            loader.load_state_dict(state)
            rest = list(read(loader))
        # An error is passed when what follows it has come: the last ones before the state are raised again.
        again = 0
        while _failed(got, stop - again - 1):
            again += 1
        assert got[: stop - again] + rest == whole, stop


def _failed(got: list[Any], number: int) -> bool:
    return number >= 0 and isinstance(got[number], tuple) and got[number][0] == "failed"


@pytest.mark.parametrize("kind", ["fork2", "server3"])
def test_a_sample_that_fails_on_its_way_is_an_error_in_its_place(kind: str) -> None:
    def some(x: int) -> Any:
        return Unpackable() if x in (5, 6) else x

    with Loader(Pipe.of(range(20)).map(some), **KINDS[kind]) as loader:
        samples, found = iter(loader), []
        while True:
            try:
                found.append(next(samples))
            except StopIteration:
                break
            except (ValueError, Closed) as error:
                found.append(type(error))
    assert found == [*range(5), ValueError, ValueError, *range(7, 20)]
