"""Documents packed without known lengths, and groups that are grouped again, on ranks: nothing is lost or cut."""

import logging
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, BadPipe, RanksDisagree
from tests.depth import depth
from tests.laws.pipes import Numbers, stream
from tests.ranks.test_counted_pipes import Records
from tests.ranks.together import together

LENGTH = 512


class Documents:
    """Of 1 to 400 tokens, each token another one in the corpus."""

    def __init__(self, count: int) -> None:
        self.sizes = np.random.default_rng(count).integers(1, 401, count)
        self._starts = 1 + np.cumsum(self.sizes) - self.sizes  # (0 fills rows up)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> list[int]:
        return list(range(int(self._starts[i]), int(self._starts[i] + self.sizes[i])))


def read(pipe: Pipe[Any], ranks: int, workers: int = 2, **how: Any) -> list[list[Any]]:
    def body(world: World) -> list[Any]:
        with Loader(pipe, seed=5, world=world, workers=workers, kind="thread", **how) as loader:
            return list(loader)

    with pytest.MonkeyPatch.context() as monkeypatch:
        return together(ranks, body, monkeypatch) if ranks > 1 else [body(World())]


# --- packing ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(depth(120, 1800))
@pytest.mark.parametrize("count", depth([100, 500, 2000], [100, 500, 2000, 100_000]))
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_token_of_documents_of_unknown_lengths_arrives_in_equal_steps(count: int, ranks: int) -> None:
    documents = Documents(count)
    got = read(Pipe.of(documents).map(list).pack(LENGTH).batch(4), ranks)
    assert len({len(rank) for rank in got}) == 1
    assert all(rank for rank in got)
    for step in zip(*got, strict=True):
        assert all(len(batch) >= 1 for batch in step)
    rows = [np.asarray(row["tokens"]) for rank in got for batch in rank for row in batch]
    tokens = np.concatenate(rows)
    tokens = np.sort(tokens[tokens > 0])
    assert len(tokens) == documents.sizes.sum()
    assert np.array_equal(tokens, 1 + np.arange(len(tokens)))


@pytest.mark.parametrize("ends", ["pad", "repeat", "drop"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_packed_rows_fill_the_last_step_or_are_dropped_with_it(ranks: int, ends: Any) -> None:
    documents = Documents(300)
    pipe = Pipe.of(documents).map(list).pack(LENGTH, window=32).batch(4)
    rows = sum(len(batch) for batch in Loader(pipe))

    def body(world: World) -> list[tuple[Any, list[bool]]]:
        with Loader(pipe, seed=5, world=world, ends=ends, workers=2, kind="thread") as loader:
            return [(batch, loader.mask() or [True] * len(batch)) for batch in loader]

    with pytest.MonkeyPatch.context() as monkeypatch:
        got = together(ranks, body, monkeypatch)
    assert len({len(rank) for rank in got}) == 1
    assert {len(batch) for rank in got for batch, _ in rank} == {4}
    real = [row for rank in got for batch, mask in rank for row, true in zip(batch, mask, strict=True) if true]
    firsts = [int(np.asarray(row["tokens"])[0]) for row in real]
    assert len(set(firsts)) == len(firsts) == (rows - rows % (4 * ranks) if ends == "drop" else rows)


def test_fewer_rows_than_ranks_are_refused_with_both_numbers() -> None:
    documents = Documents(10)
    rows = -(-int(documents.sizes.sum()) // LENGTH)
    assert rows < 8
    with pytest.raises(BadPipe, match=rf"\b{rows} samples are left .*for 8 ranks"):
        read(Pipe.of(documents).map(list).pack(LENGTH).batch(4), 8)


# --- groups that are grouped again ------------------------------------------------------------------------------------


def flat(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for part in value:
            yield from flat(part)
    else:
        yield value


def groups(got: list[list[Any]]) -> list[list[int]]:
    """The inner groups that ranks have delivered."""
    return [group for rank in got for batch in rank for group in batch]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_whole_groups_with_random_access_are_grouped_again_exactly(ranks: int) -> None:
    for n, inner, outer in ((20, 5, 2), (6400, 100, 8), (64, 1, 16), (57, 5, 2), (640, 4, 3)):
        got = read(Pipe.of(Numbers(n)).batch(inner, drop_last=True).batch(outer), ranks)
        assert len({len(rank) for rank in got}) == 1
        expected = [list(range(i, i + inner)) for i in range(0, n - n % inner, inner)]
        assert sorted(groups(got)) == expected, "every group, and none is cut or filled"


@pytest.mark.parametrize("ranks", [2, 3])
def test_groups_behind_a_filter_with_random_access_are_grouped_again_exactly(ranks: int) -> None:
    def kept(x: int) -> bool:
        return x % 3 > 0

    for n, inner, outer in ((31, 5, 2), (960, 10, 8), (97, 1, 16), (301, 4, 3)):
        got = read(Pipe.of(Numbers(n)).filter(kept).batch(inner, drop_last=True).batch(outer), ranks)
        assert len({len(rank) for rank in got}) == 1
        assert {len(group) for group in groups(got)} == {inner}
        samples = Counter(flat(got))
        wanted = [x for x in range(n) if kept(x)]
        assert max(samples.values()) == 1
        assert set(samples) <= set(wanted)
        assert sum(samples.values()) == len(wanted) - len(wanted) % inner


@pytest.mark.parametrize("source", ["stream", "divided stream", "filtered stream"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_groups_of_streams_are_neither_cut_nor_filled_and_what_makes_no_step_is_counted(
    source: str, ranks: int
) -> None:
    for n, inner, outer in ((20, 5, 2), (6400, 100, 8), (97, 1, 16), (301, 4, 3)):
        pipe = Pipe.of(stream(n))
        pipe = pipe.sharding_filter() if source == "divided stream" else pipe
        pipe = pipe.filter(common) if source == "filtered stream" else pipe
        with Records() as records:
            try:
                got = read(pipe.batch(inner, drop_last=True).batch(outer), ranks)
            except BadPipe as error:
                assert "no step of this epoch can be made" in str(error)  # noqa: PT017
                assert n < 2 * inner * outer * ranks
                continue
        assert len({len(rank) for rank in got}) == 1
        assert {len(group) for group in groups(got)} <= {inner}
        samples = Counter(flat(got))
        assert max(samples.values(), default=1) == 1
        wanted = sum(1 for x in range(n) if source != "filtered stream" or common(x))
        told = [(int(n), unit) for n, unit in re.findall(r"(\d+) (\w+) (?:of this rank )?are left out", records.text)]
        most = sum(n * (inner * outer if unit == "batches" else inner) for n, unit in told)
        missing = wanted - sum(samples.values())
        assert 0 <= missing <= most + inner * ranks, (n, inner, outer, records.text)


def common(x: int) -> bool:
    return x % 7 > 2


def test_the_examples_of_streams_that_lost_samples() -> None:
    for n, inner, outer, ranks in ((20, 5, 2, 3), (6400, 100, 8, 3)):
        pipe = Pipe.of(stream(n)).batch(inner, drop_last=True).batch(outer)
        assert sum(1 for _ in flat(read(pipe, 1))) == n
        with Records() as records:
            got = list(flat(read(pipe, ranks)))
        missing = n - len(got)
        assert not missing or "left out" in records.text


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_op_between_two_groupings_gets_whole_groups(ranks: int) -> None:
    """`batch(1).map(f).batch(16)` hands groups of 1 to f, on any number of ranks."""
    for source in (Pipe.of(Numbers(200)), Pipe.of(stream(200)), Pipe.of(Numbers(200)).filter(common)):
        met: list[int] = []

        def f(group: list[int], met: list[int] = met) -> list[int]:
            met.append(len(group))
            return group

        read(source.batch(1).map(f).batch(16), ranks)
        assert set(met) == {1}


class Not:
    """Keeps what is no multiple."""

    def __init__(self, of: int) -> None:
        self._of = of

    def __call__(self, x: int) -> bool:
        return x % self._of > 0


def several(x: int) -> list[int]:
    return [10 * x + i for i in range(x % 4)]


def grouped(seed: int) -> None:
    """Groups of groups behind an op that decides how many there are: equal steps, and every sample once, or counted."""
    chance = random.Random(seed)
    n, ranks = chance.choice([3, 8, 20, 57, 130, 400]), chance.choice([2, 3, 4])
    pipe: Pipe[Any] = Pipe.of(Numbers(n)) if chance.random() < 0.7 else Pipe.of(stream(n))
    op = chance.choice(["filter", "flatmap", "none", "filter"])
    pipe = pipe.filter(Not(chance.choice([2, 3, 7]))) if op == "filter" else pipe
    pipe = pipe.flatmap(several) if op == "flatmap" else pipe
    sizes = [chance.choice([1, 2, 3, 5]) for _ in range(chance.choice([1, 2, 2, 3]))]
    for level, size in enumerate(sizes):
        pipe = pipe.batch(size, drop_last=level < len(sizes) - 1 and chance.random() < 0.4)
        pipe = pipe.map(list) if chance.random() < 0.3 else pipe
    ends = chance.choice(["short", "short", "short", "pad", "drop"])
    whole = set(flat(list(Loader(pipe, seed=5))))
    source = range(n) if op != "flatmap" else [y for x in range(n) for y in several(x)]
    try:
        with Records() as records:
            got = read(pipe, ranks, ends=ends)
    except (BadPipe, BadOption):
        return  # fewer than there are ranks: refused
    assert len({len(rank) for rank in got}) == 1, "equal steps"
    if ends == "short":
        samples = list(flat(got))
        assert len(set(samples)) == len(samples)
        assert set(samples) <= set(source)  # (with drop_last=True other samples may fill the last group)
        assert len(samples) == len(whole) or "left out" in records.text


@pytest.mark.timeout(depth(120, 1800))
@pytest.mark.parametrize("ten", range(depth(10, 100)))
def test_groups_of_groups_come_in_equal_steps_and_every_sample_once_or_counted(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        try:
            grouped(seed)
        except BaseException as error:
            error.add_note(f"grouped({seed})")
            raise


# --- ops that do not decide by the sample alone -----------------------------------------------------------------------


class OwnGenerator:
    """Draws from a generator that nobody has keyed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, x: int) -> bool:
        return self._random.random() < 0.5


class Seen:
    """Remembers."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, x: int) -> bool:
        key = x % 40
        new = key not in self.seen
        self.seen.add(key)
        return new


def from_the_system(x: int) -> bool:
    return os.urandom(1)[0] < 128


@pytest.mark.parametrize("what", ["own generator", "seen", "system"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_filter_that_does_not_decide_by_the_sample_is_named_before_the_first_step(what: str, ranks: int) -> None:
    steps: list[int] = []

    def body(world: World) -> None:
        ops: dict[str, Any] = {"own generator": OwnGenerator(world.rank), "seen": Seen(), "system": from_the_system}
        pipe = Pipe.of(Numbers(2000)).filter(ops[what]).batch(8)
        with Loader(pipe, seed=5, world=world, workers=1, kind="thread") as loader:
            steps.extend(world.rank for _ in loader)

    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(RanksDisagree, match=r"filter\(.* does not decide"):
        together(ranks, body, monkeypatch)
    assert not steps


def test_nothing_is_logged_where_nothing_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="headrace"):
        read(Pipe.of(Numbers(201)).filter(common).batch(4), 3)
    assert "left out" not in caplog.text
