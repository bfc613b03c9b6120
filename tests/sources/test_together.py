"""A data set with `__getitems__` is asked for many samples at once, and everything is as if it were asked by `[i]`."""

import json
import logging
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import Loader, Pipe
from headrace.errors import BadPipe, PoisonSample
from headrace.sources.together import VAIN, reads_together
from tests.depth import depth
from tests.laws.pipes import KINDS, RANDOM_STEPS, SEEDED, drawn, keyed, odd, read, shown, some

SIZE = 60
BAD = 17
KINDS_TRIED = ["inline", "thread3", "fork2", "server3"]


class Reader:
    """Samples by `[i]` only."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, i: int) -> Any:
        return np.int64(self.checked(i))

    def checked(self, i: int) -> int:
        if not 0 <= i < SIZE:
            raise IndexError(i)
        return i


class Many(Reader):
    """The same, many in one call too, whose sizes are noted."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __getitems__(self, indices: list[int]) -> Any:
        assert type(indices) is list
        self.asked.append(len(indices))
        return [self[i] for i in indices]


def rows(x: Any) -> Any:
    return np.arange(int(x) % 7 + 1)


PIPES: dict[str, Callable[[Any], Pipe[Any]]] = {
    "batch": lambda data: Pipe.of(data).batch(8),
    "shuffle": lambda data: Pipe.of(data).shuffle().batch(8),
    "windowed shuffle": lambda data: Pipe.of(data).shuffle(window=20).batch(8),
    "map": lambda data: Pipe.of(data).shuffle().map(keyed).batch(8, drop_last=True),
    "global generators": lambda data: Pipe.of(data).shuffle().map(drawn).batch(8),
    "samples": lambda data: Pipe.of(data).shuffle().map(keyed),
    "map first": lambda data: Pipe.of(data).map(keyed).shuffle().enumerate().batch(8),
    "filter": lambda data: Pipe.of(data).shuffle().map(keyed).filter(odd).batch(8),
    "flatmap": lambda data: Pipe.of(data).flatmap(some).map(keyed).batch(8),
    "header": lambda data: Pipe.of(data).header(30).sharding_filter().batch(8),
    "cycle": lambda data: Pipe.of(data).shuffle().cycle(2).batch(8),
    "once": lambda data: Pipe.of(data).shuffle().cycle(1).batch(8),
    "concat": lambda data: Pipe.of(range(5)).concat(Pipe.of(data).shuffle(), Pipe.of(data)).batch(8),
    "mix": lambda data: Pipe.of(data).mix(Pipe.of(range(40)), weights=[2, 1]).batch(8),
    "zip": lambda data: Pipe.of(data).zip(Pipe.of(data).shuffle(), Pipe.of(range(50))).batch(8),
    "zip_longest": lambda data: Pipe.of(range(70)).zip_longest(Pipe.of(data), fill_value=-1).batch(8),
    "weighted": lambda data: Pipe.of(data).weighted([1 + i % 3 for i in range(SIZE)], 80).batch(8),
    "picked": lambda data: Pipe.of(data).to_iter_datapipe([3, 3, 1, 7, 3, 9, 9]).batch(4),
    "split": lambda data: Pipe.of(data).random_split({"a": 2, "b": 1}, seed=1, total_length=SIZE)[0].batch(8),
    "batches of batches": lambda data: Pipe.of(data).batch(4).shuffle().batch(2),
    "packed": lambda data: Pipe.of(data).map(rows).pack(16, window=20).batch(2),
}


@pytest.mark.parametrize("kind", KINDS_TRIED)
@pytest.mark.parametrize("name", PIPES)
def test_the_stream_is_that_of_single_samples_and_goes_on_as_it_does(name: str, kind: str) -> None:
    if name == "global generators" and kind not in SEEDED:
        pytest.skip("threads do not seed the global generators")
    one, many = PIPES[name](Reader()), PIPES[name](Many())
    want = read(one)
    assert read(many, **KINDS[kind]) == want
    with Loader(many, seed=3, **KINDS[kind]) as loader:
        batches = iter(loader)
        first = [shown(next(batches)) for _ in range(len(want) // 2)]
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(many, seed=3) as again:
        again.load_state_dict(state)
        assert first + [shown(batch) for batch in again] == want


@settings(max_examples=depth(40, 1000), deadline=None)
@given(st.lists(st.sampled_from(RANDOM_STEPS), max_size=5), st.integers(1, 9))
def test_whatever_comes_after_it_the_stream_is_that_of_single_samples(steps: list[Any], size: int) -> None:
    def made(data: Any) -> Pipe[Any]:
        pipe = Pipe.of(data)
        for step in steps:
            pipe = step(pipe)
        return pipe.batch(size)

    assert read(made(Many()), epochs=2) == read(made(Reader()), epochs=2)


@pytest.mark.parametrize("name", PIPES)
def test_it_is_asked_for_all_samples_of_a_ticket_at_once(name: str) -> None:
    data = Many()
    with Loader(PIPES[name](data), seed=3) as loader:
        list(loader)
    assert data.asked
    if name in ("batch", "shuffle", "windowed shuffle"):
        assert data.asked == [8] * (SIZE // 8) + [SIZE % 8]


# --- errors -----------------------------------------------------------------------------------------------------------


class Broken(Reader):
    def checked(self, i: int) -> int:
        if i == BAD:
            raise ValueError("a bad file")
        return super().checked(i)


class ManyBroken(Many, Broken):
    pass


def outcome(pipe: Pipe[Any], **how: Any) -> tuple[list[str], str, list[str]]:
    """What comes, and the error with its notes."""
    seen: list[str] = []
    with Loader(pipe, seed=3, **how) as loader:
        try:
            seen.extend(shown(batch) for batch in loader)
        except ValueError as error:
            notes = [re.sub(r"process \d+", "process", note) for note in error.__notes__]
            return seen, repr(error), [note.replace("ManyBroken", "Broken") for note in notes]
        return seen, f"{loader.stats().skips} left out", []


@pytest.mark.parametrize("kind", ["inline", "thread1", "fork1"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    "name", ["batch", "shuffle", "map", "samples", "filter", "zip", "batches of batches", "packed"]
)
def test_the_sample_at_fault_is_named_or_left_out_as_if_it_had_been_read_by_itself(
    name: str, on_error: str, kind: str
) -> None:
    how = {**KINDS[kind], "on_error": on_error}
    want, got = outcome(PIPES[name](Broken()), **how), outcome(PIPES[name](ManyBroken()), **how)
    assert got == want
    assert (want[1] == "1 left out") == (on_error == "skip")


class Answers(Many):
    """Whose `__getitems__` returns something else."""

    def __init__(self, answer: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self.answer = answer

    def __getitems__(self, indices: list[int]) -> Any:
        return self.answer(super().__getitems__(indices))


@pytest.mark.parametrize("how", [{}, {"on_error": "skip"}, KINDS["fork1"]])
def test_another_number_of_samples_is_an_error(how: dict[str, Any]) -> None:
    said = r"Answers\.__getitems__\(\) returned 7 samples for 8 indices, from 0 on"
    pipe = Pipe.of(Answers(lambda found: found[1:])).map(keyed).batch(8)
    with Loader(pipe, **how) as loader, pytest.raises(BadPipe, match=said):
        list(loader)


def test_another_number_of_samples_is_an_error_where_windows_ask() -> None:
    with pytest.raises(BadPipe, match=r"returned 59 samples for 60 indices"):
        list(Loader(Pipe.of(Answers(lambda found: found[1:])).map(rows).pack(16)))


@pytest.mark.parametrize("answer", [lambda found: {"x": found}, iter, lambda found: None, lambda found: "text"])
def test_what_is_no_list_of_samples_is_an_error(answer: Callable[[list[Any]], Any]) -> None:
    with pytest.raises(BadPipe, match=r"Answers\.__getitems__\(\) returned a \w+: it must return a list of samples"):
        list(Loader(Pipe.of(Answers(answer)).batch(8)))


def test_an_array_of_samples_is_as_good_as_a_list() -> None:
    assert read(Pipe.of(Answers(np.array)).batch(8)) == read(Pipe.of(Reader()).batch(8))


def refuse(found: list[Any]) -> Any:
    raise OSError("not now")


def test_an_error_that_no_single_sample_has_is_told_and_after_a_few_it_is_not_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = Answers(refuse)
    with caplog.at_level(logging.WARNING, "headrace"):
        assert read(Pipe.of(data).shuffle().batch(8)) == read(Pipe.of(Reader()).shuffle().batch(8))
    assert VAIN <= len(data.asked) < SIZE // 8
    told = [record.message.endswith("so it is not asked again in this epoch") for record in caplog.records]
    assert told[:VAIN] == [False] * (VAIN - 1) + [True]
    assert "__getitems__ raised OSError('not now'), and each of its samples could be read by itself" in caplog.text


class Noisy(Reader):
    def __getitem__(self, i: int) -> Any:
        return i, float(headrace.rng().random())


class ManyNoisy(Many, Noisy):
    pass


def test_random_numbers_that_belong_to_a_sample_are_those_of_the_sample() -> None:
    data = ManyNoisy()
    assert read(Pipe.of(data).shuffle().batch(8)) == read(Pipe.of(Noisy()).shuffle().batch(8))
    assert VAIN <= len(data.asked) < SIZE // 8


class Deadly(Reader):
    def checked(self, i: int) -> int:
        if i == BAD:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().checked(i)


class ManyDeadly(Many, Deadly):
    pass


def test_a_sample_that_kills_is_named_or_left_out_by_itself() -> None:
    pipe = Pipe.of(ManyDeadly()).shuffle().batch(8)
    position = list(Loader(Pipe.of(Reader()).shuffle(), seed=3)).index(BAD)
    named = pytest.raises(PoisonSample, match=rf"position {position} ended its worker twice.*SIGKILL")
    with named, Loader(pipe, seed=3, workers=2) as loader:
        list(loader)
    with Loader(pipe, seed=3, workers=2, on_poison="skip") as loader:
        found = [int(x) for batch in loader for x in batch]
    assert found == [int(x) for x in Loader(Pipe.of(Reader()).shuffle(), seed=3) if x != BAD]


# --- who is asked -----------------------------------------------------------------------------------------------------


class Doubled(Many):
    """Whose `[i]` is another than that of the `__getitems__` that it inherits."""

    def __getitem__(self, i: int) -> Any:
        return 2 * self.checked(i)


class Around:
    """Passes on whatever it does not have itself."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> Any:
        return -self.data[i]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["data"], name)


class Listed(list[int]):
    def __getitems__(self, indices: list[int]) -> Any:
        raise AssertionError("is in memory")


@pytest.mark.parametrize(
    ("data", "want"),
    [(Doubled(), range(0, 2 * SIZE, 2)), (Around(Many()), range(0, -SIZE, -1)), (Listed(range(SIZE)), range(SIZE))],
)
def test_only_what_says_the_same_as_single_samples_is_asked(data: Any, want: range) -> None:
    assert [int(x) for batch in Loader(Pipe.of(data).batch(8)) for x in batch] == list(want)


def test_a_subset_is_asked_where_what_it_is_a_part_of_can_be() -> None:
    torch_data: Any = pytest.importorskip("torch.utils.data")
    assert reads_together(torch_data.Subset(Reader(), [1, 2])) is None
    data = Many()
    twice = torch_data.Subset(torch_data.Subset(data, list(range(0, SIZE, 2))), list(range(20)))
    assert [x for batch in Loader(Pipe.of(twice).batch(5)) for x in batch] == list(range(0, 40, 2))
    assert data.asked == [5] * 4
