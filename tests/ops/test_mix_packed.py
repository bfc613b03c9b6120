"""Stored documents, mixed and then packed: weights change in a running epoch, and the length of each epoch is known."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, NoLength
from tests.depth import depth
from tests.sources.stored import writers

DOCUMENTS = depth(1500, 2500)


def sources(folder: Path) -> list[Any]:
    """Two, whose tokens say which they are of."""
    made = []
    for number in range(2):
        random = np.random.default_rng(number)
        lengths = random.integers(1, 30, DOCUMENTS)
        documents = [np.full(length, number + 1, np.uint16) for length in lengths]
        made.append(writers.megatron(folder / f"{number}.bin", documents, 8))
    return made


def rows(paths: list[Any], ends: Any = "drop", **options: Any) -> Any:
    first, second = (Pipe.tokens(path).shuffle() for path in paths)
    return first.mix(second, weights=[3, 1], ends=ends).pack(32, **options)


def tokens(batch: Any) -> Any:
    return batch["tokens"].tolist()


def share(batches: list[Any]) -> float:
    """Of the second source, in all tokens."""
    flat = np.array(batches).reshape(-1)
    return float((flat == 2).sum() / (flat > 0).sum())


@pytest.mark.parametrize("how", ["split", "fit"])
def test_weights_change_in_a_running_epoch_behind_pack(tmp_path: Path, how: str) -> None:
    paths = sources(tmp_path)
    pipe = rows(paths, how=how, window=64).batch(4).collate()
    streams, starts = [], set()
    for called_after in (0, 3, 30):
        with Loader(pipe, seed=1) as loader:
            batches = iter(loader)
            got = [tokens(next(batches)) for _ in range(called_after)]
            starts.add(loader.reweight([1, 3], at_step=40))
            got += [tokens(batch) for batch in batches]
            streams.append(got)
    assert len(starts) == 1
    assert streams[0] == streams[1] == streams[2]
    with Loader(pipe, seed=1) as plain:
        before = [tokens(batch) for batch in plain]
    # (A block of the mixture is 1024 documents, about 120 batches: the change comes at the next one.)
    assert streams[0][:40] == before[:40]
    assert share(streams[0][:100]) == pytest.approx(0.25, abs=0.05)
    assert share(streams[0][140:240]) == pytest.approx(0.75, abs=0.1)
    together = sorted(token for batch in streams[0] for row in batch for token in row if token)
    assert together == sorted(token for batch in before for row in batch for token in row if token)


def test_ranks_and_a_resume_agree_on_the_change(tmp_path: Path) -> None:
    paths = sources(tmp_path)
    pipe = rows(paths, how="fit", window=64).batch(4).collate()
    with Loader(pipe, seed=1) as loader:
        batches = iter(loader)
        got = [tokens(next(batches)) for _ in range(6)]
        loader.reweight([1, 3], at_step=40)
        whole = got + [tokens(batch) for batch in batches]
    ranks = []
    for rank in range(2):
        with Loader(pipe, seed=1, world=World(rank, 2)) as loader:
            batches = iter(loader)
            got = [tokens(next(batches)) for _ in range(2 + 3 * rank)]
            loader.reweight([1, 3], at_step=20)
            got += [tokens(next(batches)) for _ in range(90)]
            state = json.loads(json.dumps(loader.state_dict()))
        with Loader(pipe, seed=1, world=World(rank, 2), workers=1, kind="thread") as again:
            again.load_state_dict(state)
            ranks.append(got + [tokens(batch) for batch in again])
    # (The last two batches may be shared out otherwise.)
    assert [batch for pair in zip(*ranks, strict=False) for batch in pair][:-2] == whole[: 2 * min(map(len, ranks)) - 2]


def test_a_change_that_comes_too_late_is_refused_by_what_is_delivered(tmp_path: Path) -> None:
    pipe = rows(sources(tmp_path), window=64).batch(4).collate()
    with Loader(pipe, seed=1) as loader:
        batches = iter(loader)
        for _ in range(200):
            next(batches)
        with pytest.raises(BadOption, match=r"delivered already.*choose a later step"):
            loader.reweight([1, 3], at_step=3)
        with pytest.raises(BadOption, match=r"delivered already.*choose a later sample"):
            loader.reweight([1, 3], at_sample=3)


def test_where_it_cannot_be_told_the_form_that_works_is_named(tmp_path: Path) -> None:
    shuffled = rows(sources(tmp_path)).shuffle().batch(4).collate()
    with Loader(shuffled) as loader:
        next(iter(loader))
        with pytest.raises(BadOption, match=r"pack\(\) each source and mix\(\) the rows"):
            loader.reweight([1, 3], at_step=40)


@pytest.mark.parametrize("how", ["split", "fit"])
@pytest.mark.parametrize("ends", depth(["drop", "first"], ["drop", "first", "all"]))
def test_the_length_of_each_epoch_is_known(tmp_path: Path, how: str, ends: Any) -> None:
    pipe = rows(sources(tmp_path), ends, how=how, window=64).batch(4).collate()
    for world in (World(), World(1, 3)):
        with Loader(pipe, seed=1, world=world) as loader:
            for _ in range(2):
                expected = len(loader)
                batches = iter(loader)
                assert len(loader) == expected, "also while it runs"
                assert sum(1 for _ in batches) == expected


def test_where_the_length_is_not_known_the_op_is_named() -> None:
    with (
        Loader(Pipe.of(range(10)).filter(bool).batch(2)) as loader,
        pytest.raises(NoLength, match=r"filter\(bool\) dec"),
    ):
        len(loader)


COUNTED: dict[str, Callable[[Any], Any]] = {
    "filter": lambda pipe: pipe.filter(odd),
    "flatmap": lambda pipe: pipe.flatmap(twice),
    "filter, batch": lambda pipe: pipe.filter(odd).batch(3),
    "batch, filter": lambda pipe: pipe.batch(3).filter(bool),
    "flatmap, batch, map": lambda pipe: pipe.flatmap(twice).batch(3).map(tuple),
    "unbatch": lambda pipe: pipe.batch(3).unbatch(),
    "cycle": lambda pipe: pipe.cycle(3).batch(4),
    "header": lambda pipe: pipe.shuffle().header(7).batch(2),
    "buffer": lambda pipe: pipe.shuffle(buffer_size=5).batch(2),
    "shuffle": lambda pipe: pipe.shuffle().map(abs),
    "zip": lambda pipe: pipe.zip(Pipe.of(range(15)).filter(odd)),
}


def odd(x: int) -> bool:
    return x % 2 == 1


def twice(x: int) -> list[int]:
    return [x, x]


@pytest.mark.parametrize("world", [World(), World(1, 3)], ids=["alone", "rank"])
@pytest.mark.parametrize("name", COUNTED)
def test_a_length_that_is_told_is_the_number_of_batches(name: str, world: World) -> None:
    with Loader(COUNTED[name](Pipe.of(range(20))), world=world) as loader:
        try:
            told = len(loader)
        except NoLength:
            return
        assert told == sum(1 for _ in loader)
