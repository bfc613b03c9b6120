"""Sources that begin again with another number of rows in each turn: every document comes once in every turn."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.ops.order.cycle import FOREVER
from headrace.pipe.access import random_access
from headrace.pipe.cursor import Opening
from tests.depth import depth

SEEDS = range(12)
Pieces = Iterator[tuple[int, int]]


def source(name: int, count: int, longest: int = 13) -> Pipe[list[int]]:
    """Documents of which every token is the document's own number."""
    documents = [[1000 * name + i] * (1 + (i * 7919 + name) % longest) for i in range(count)]
    return Pipe.of(documents).sized([len(one) for one in documents])


def rows(name: int, count: int) -> Pipe[Any]:
    return source(name, count).shuffle().pack(20, how="fit", window=16)


def in_rows(pipe: Pipe[Any], seed: int) -> Pieces:
    """Number and tokens of each document, as they come."""
    for row in Loader(pipe, seed=seed):
        tokens = np.asarray(row["tokens"])[np.asarray(row["mask"])]
        yield from zip(*(some.tolist() for some in np.unique(tokens, return_counts=True)), strict=True)


def in_lists(pipe: Pipe[Any], seed: int) -> Pieces:
    for documents in Loader(pipe, seed=seed):
        for document in documents:
            yield document[0], len(document)


def in_documents(pipe: Pipe[Any], seed: int) -> Pieces:
    for document in Loader(pipe, seed=seed):
        yield document[0], len(document)


def check_turns(pieces: Pieces, name: int, count: int, longest: int = 13) -> int:
    """How many turns there were; in each but the last, every document came exactly once and whole."""
    mine = [(number, size) for number, size in pieces if number // 1000 == name]
    whole = sorted((1000 * name + i, 1 + (i * 7919 + name) % longest) for i in range(count))
    for first in range(0, len(mine), count):
        turn = mine[first : first + count]
        assert sorted(turn) == whole or (first + count > len(mine) and max(Counter(turn).values()) == 1)
    return -(-len(mine) // count)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ends", ["all", "forever"])
def test_packed_sources_begin_again_whole(ends: Any, seed: int) -> None:
    pipe = rows(1, 60).mix(rows(2, 400), weights=[1, 1], ends=ends)
    pieces = islice(in_rows(pipe, seed), 2000)
    assert check_turns(pieces, 1, 60) > 5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("then", ["plain", "shuffled", "many"])
def test_a_cycle_gives_every_packed_document_as_often_as_it_says(then: str, seed: int) -> None:
    pipe = rows(1, 60).cycle(3)
    if then == "shuffled":
        assert Counter(in_rows(pipe.shuffle(), seed)) == {piece: 3 for piece, _ in Counter(in_rows(pipe, seed)).items()}
    elif then == "plain":
        assert len(list(Loader(pipe, seed=seed))) == len(Loader(pipe, seed=seed))
        assert check_turns(in_rows(pipe, seed), 1, 60) == 3
    else:
        assert check_turns(islice(in_rows(rows(1, 60).cycle(), seed), 600), 1, 60) == 10


def test_a_cycle_of_streams_and_of_numbered_rows_is_the_same() -> None:
    numbered = list(in_rows(rows(1, 60).cycle(3), 1))
    in_turn = list(in_rows(rows(1, 60).filter(bool).cycle(3), 1))
    assert Counter(numbered) == Counter(in_turn)


NESTED: dict[str, tuple[Callable[[], Pipe[Any]], Callable[[Pipe[Any], int], Pieces]]] = {
    "bucket": (
        lambda: (
            source(1, 60)
            .shuffle()
            .bucket(60, window=16)
            .mix(source(2, 500).shuffle().bucket(60, window=16), weights=[1, 1], ends="all")
        ),
        in_lists,
    ),
    "tokens, all": (
        lambda: (
            source(1, 60)
            .shuffle()
            .mix(source(3, 1, 9).shuffle(), weights=[1, 1], by="tokens", ends="drop")
            .shuffle()
            .mix(source(2, 500), weights=[1, 1], by="tokens", ends="all")
        ),
        in_documents,
    ),
    "packed twice": (
        lambda: rows(1, 60).map(dict).mix(rows(2, 90), weights=[1, 3], ends="all").mix(rows(3, 900), ends="all"),
        in_rows,
    ),
}


@pytest.mark.parametrize("seed", range(depth(4, 12)))
@pytest.mark.parametrize("name", NESTED)
def test_other_sources_of_changing_length_begin_again_whole(name: str, seed: int) -> None:
    make, pieces = NESTED[name]
    if name == "packed twice":
        given = Counter(number for number, _ in pieces(make(), seed))
        assert all(given[number] > 0 for number in [*range(1000, 1060), *range(2000, 2090), *range(3000, 3900)])
    else:
        assert check_turns(pieces(make(), seed), 1, 60) > 1


@pytest.mark.parametrize("seed", range(depth(4, 12)))
@pytest.mark.parametrize("outer", ["samples", "tokens"])
@pytest.mark.parametrize("ends", ["first", "all"])
def test_a_mixture_by_tokens_inside_another_begins_again_where_it_ended(ends: Any, outer: str, seed: int) -> None:
    inner = source(1, 60).shuffle().mix(source(3, 45, 9).shuffle(), weights=[1, 1], by="tokens", ends=ends)
    pipe = inner.mix(source(2, 500), weights=[1, 1], by=outer, ends="all")
    got = [number for number, _ in in_documents(pipe, seed)]
    assert {number for number in got if number // 1000 == 2} == set(range(2000, 2500))
    # Each turn of the inner mixture, which is its order in another turn, stands in the other one as it is.
    inside = [number for number in got if number // 1000 != 2]
    turn = 0
    while inside:
        opened = random_access(pipe.inputs[0], Opening(pipe.ordinals(), seed, 0), turn)
        assert opened is not None
        size = opened.length
        alone = Counter(inside[:size])
        assert ends == "all" or max(alone.values()) == 1
        inside, turn = inside[size:], turn + 1
    assert turn > 2


def test_rows_behind_a_mixture_are_packed_by_the_lengths_of_their_own_turn() -> None:
    small = source(1, 60).shuffle().mix(source(3, 45, 9).shuffle(), weights=[1, 1], by="tokens", ends="first")
    pipe = small.mix(source(2, 500), weights=[1, 1], ends="all").pack(20, how="fit", window=16)
    for seed in range(4):
        got = Counter(number for number, _ in in_rows(pipe, seed))  # pack refuses a document of another length
        assert all(got[number] == 1 for number in range(2000, 2500))


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_ranks_and_a_resume_agree_on_turns_of_any_length(workers: int) -> None:
    pipe = rows(1, 60).mix(rows(2, 400), weights=[1, 1], ends="all").batch(2).collate()

    def batches(loader: Loader[Any], most: int | None = None) -> list[Any]:
        return [batch["tokens"].tolist() for batch in islice(iter(loader), most)]

    with Loader(pipe, seed=5) as loader:
        whole = batches(loader)
        assert len(whole) == len(Loader(pipe, seed=5))
    with Loader(pipe, seed=5, workers=workers, kind="thread") as loader:
        assert batches(loader) == whole
    with Loader(pipe, seed=5, workers=workers, kind="process") as loader:
        first = batches(loader, 90)
        state = loader.state_dict()
    with Loader(pipe, seed=5) as loader:
        loader.load_state_dict(state)
        assert first + batches(loader) == whole
    ranks = [batches(Loader(pipe, seed=5, world=World(rank, 2)), 70) for rank in range(2)]
    assert [batch for pair in zip(*ranks, strict=True) for batch in pair] == whole[:140]


def test_turns_of_one_length_are_counted_without_opening_them() -> None:
    pipe = Pipe.of(range(3)).shuffle().mix(Pipe.of(range(10, 15)).shuffle(), ends="forever")
    indexed = pipe.indexed(1, 0)
    assert indexed is not None
    assert not any(one.indexed(1, 0).varies for one in pipe.inputs)  # type: ignore[union-attr]
    assert indexed.get(10**12) in {0, 1, 2, 10, 11, 12, 13, 14}
    cycled = Pipe.of(range(3)).shuffle().cycle().indexed(1, 0)
    assert cycled is not None
    assert cycled.length > FOREVER - 3
    assert cycled.get(10**12) in {0, 1, 2}
