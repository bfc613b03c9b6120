"""Lineage: any past batch is named and made again, bit by bit, without anything having been recorded."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headrace.engine.epoch import Start
from headrace.engine.places import RunPlace
from headrace.engine.policy import Policy
from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.observe.lineage import Lineage, Origin
from headrace.op import Source, rng
from headrace.pipe.graph import Pipe
from headrace.plan.world import World


def noisy(x: int) -> tuple[int, float, float, float]:
    return x, rng().random(), random.random(), float(np.random.random())


def of(loader: Loader[Any], step: int, epoch: int = 0, at: Any = None, left_out: bool = False) -> Lineage:
    return Lineage(
        loader.program, loader.policy, epoch, step,
        world=loader.world, ends=loader.ends, start=Start(at), left_out=left_out,
    )  # fmt: skip


COUNTABLE: dict[str, Callable[[], Pipe[Any]]] = {
    "batches": lambda: Pipe.of(range(103)).shuffle().map(noisy).batch(5),
    "collated": lambda: Pipe.of(range(103)).shuffle().map(noisy).batch(5).collate().map(noisy_batch),
    "drop last": lambda: Pipe.of(range(103)).map(noisy).batch(5, drop_last=True),
    "singles": lambda: Pipe.of(range(203)).shuffle().map(noisy),
    "zipped": lambda: Pipe.of(range(60)).zip(Pipe.of(range(100, 160)).shuffle()).map(noisy).batch(7),
}


def noisy_batch(batch: Any) -> Any:
    return batch, random.random()


@pytest.mark.parametrize("name", COUNTABLE)
@pytest.mark.parametrize(
    ("workers", "world"),
    [(0, World()), (2, World()), (0, World(rank=0, ranks=3)), (0, World(rank=2, ranks=3))],
    ids=["inline", "processes", "the first of three ranks", "the last of three ranks"],
)
def test_every_past_batch_of_two_epochs_is_made_again_bit_by_bit(name: str, workers: int, world: World) -> None:
    with Loader(COUNTABLE[name](), seed=5, world=world, workers=workers) as loader:
        past = [[digest(batch) for batch in loader] for _ in range(2)]
        for epoch, digests in enumerate(past):
            for step, seen in enumerate(digests):
                lineage = of(loader, step, epoch)
                assert lineage.exact
                assert digest(lineage.batch()) == seen, (epoch, step)


@pytest.mark.parametrize("name", ["batches", "singles"])
def test_positions_of_all_ranks_and_steps_are_the_epoch_once(name: str) -> None:
    seen: list[int] = []
    for rank in range(3):
        loader = Loader(COUNTABLE[name](), world=World(rank=rank, ranks=3))
        for step in range(len(loader)):
            positions = of(loader, step).positions
            assert positions is not None
            seen += positions
    assert sorted(seen) == list(range(103 if name == "batches" else 201))  # two single items are not enough for three


def test_origins_name_source_and_index_through_a_shuffle() -> None:
    data = [i * 10 for i in range(50)]
    loader = Loader(Pipe.of(data).shuffle().map(lambda x: x + 1).batch(4), seed=2)
    for step, batch in enumerate(loader):
        origins = of(loader, step).origins()
        assert [len(o) for o in origins] == [1] * len(batch)
        assert [data[o[0].position] + 1 for o in origins] == batch
        assert all(o[0].source.startswith("of(") for o in origins)


def test_a_sample_of_two_sources_has_two_origins() -> None:
    loader = Loader(Pipe.of(range(8)).zip(Pipe.of(list("abcdefgh")).shuffle()).batch(2))
    (first, *_) = loader
    for (left, right), origins in zip(first, of(loader, 0).origins(), strict=True):
        assert {o.position for o in origins} == {left, "abcdefgh".index(right)}


@dataclass(frozen=True, slots=True)
class Lines(Source[str]):
    def size(self) -> int:
        return 6

    def get(self, position: int) -> str:
        return f"line {position}"

    def locate(self, position: int) -> str:
        return f"data.txt:{position * 7}"


def test_a_source_that_can_say_where_a_sample_lies_is_asked() -> None:
    loader = Loader(Pipe(Lines()).batch(2))
    assert of(loader, 1).origins()[1] == (Origin("lines()", 3, "data.txt:21"),)


def test_positions_are_known_without_running_anything() -> None:
    def never(x: int) -> int:
        raise AssertionError("it was run")

    lineage = of(Loader(Pipe.of(range(20)).map(never).batch(8)), 1)
    assert lineage.positions == tuple(range(8, 16))
    with pytest.raises(AssertionError, match="it was run"):
        lineage.batch()


@pytest.mark.parametrize("ends", ["pad", "repeat"])
def test_samples_that_only_fill_a_batch_are_marked(ends: Any) -> None:
    loader = Loader(Pipe.of(range(10)).batch(4), world=World(rank=1, ranks=2), ends=ends)
    lineage = of(loader, 1)
    assert lineage.mask == (False,) * 4
    assert lineage.batch() == list(loader)[1]


def test_steps_count_from_where_a_loaded_snapshot_goes_on() -> None:
    pipe = Pipe.of(range(103)).shuffle().map(noisy).batch(5)
    first = Loader(pipe, seed=5)
    epoch = iter(first)
    for _ in range(7):
        next(epoch)
    state = first.state_dict()
    second = Loader(pipe, seed=5)
    second.load_state_dict(state)
    at = RunPlace.read(state["at"])
    for step, batch in enumerate(second):
        lineage = of(second, step, at=at)
        assert lineage.exact
        assert digest(lineage.batch()) == digest(batch)


def test_single_samples_behind_a_snapshot_are_made_again_with_the_random_values_that_they_had() -> None:
    pipe = Pipe.of(range(150)).shuffle().map(noisy)
    for world in (World(), World(rank=1, ranks=2)):
        for gone in (3, 50, 70):
            first = Loader(pipe, seed=5, world=world)
            for _ in zip(range(gone), first, strict=False):
                pass
            second = Loader(pipe, seed=5, world=world)
            second.load_state_dict(first.state_dict())
            for step, sample in enumerate(second):
                assert digest(second.lineage(step).batch()) == digest(sample)
            with pytest.raises(BadOption, match=f"has steps 0 to {step} on"):
                second.lineage(step + 1)


def test_batches_that_come_as_they_are_made_are_not_told_by_their_number() -> None:
    pipe = Pipe.of(range(40)).batch(4)
    with Loader(pipe, workers=1, kind="thread", ordered=False) as loader:
        next(iter(loader))
        with pytest.raises(BadOption, match="ordered=True"):
            loader.lineage(0)
    assert Loader(pipe, ordered=False).lineage(1).batch() == [4, 5, 6, 7]  # (alone, in order)


STREAMS: dict[str, Callable[[], Pipe[Any]]] = {
    "stream": lambda: Pipe.of(iter_range).shuffle(window=16).map(noisy).batch(5),
    "filter": lambda: Pipe.of(range(90)).map(noisy).filter(lambda s: s[0] % 3 > 0).batch(4).collate(),
    "tail": lambda: Pipe.of(range(60)).map(noisy).batch(4).filter(lambda b: b[0][0] % 8 == 0).shuffle(window=4),
}


def iter_range() -> Any:
    return iter(range(90))


@pytest.mark.parametrize("name", STREAMS)
def test_where_arithmetic_does_not_reach_the_epoch_is_read_again(name: str) -> None:
    with Loader(STREAMS[name](), seed=3, workers=2) as loader:
        past = [[digest(batch) for batch in loader] for _ in range(2)]
        for step in (0, 3, len(past[1]) - 1):
            lineage = of(loader, step, epoch=1)
            assert (lineage.exact, lineage.positions, lineage.origins()) == (False, None, ())
            assert digest(lineage.batch()) == past[1][step]
        with pytest.raises(BadOption, match="ends before it"):
            of(loader, len(past[1])).batch()


def test_batches_that_lost_samples_are_found_by_reading_again() -> None:
    def fragile(x: int) -> int:
        if x in (4, 8, 9, 10, 11, 20):
            raise ValueError(x)
        return x

    loader = Loader(Pipe.of(range(40)).map(fragile).batch(4), on_error="skip")
    past = list(loader)
    assert len(past) == 9, "a whole batch failed"
    assert [of(loader, step, left_out=True).batch() for step in range(9)] == past


def test_the_callers_generators_are_left_alone() -> None:
    loader = Loader(Pipe.of(range(20)).map(noisy).batch(4))
    random.seed(1)
    np.random.seed(1)
    want = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    of(loader, 2).batch()
    assert (random.random(), np.random.random()) == want


@pytest.mark.parametrize("step", [-1, True, "1", None])
def test_a_step_that_is_none_is_refused(step: Any) -> None:
    with pytest.raises(BadOption, match="step must be"):
        of(Loader(Pipe.of(range(4))), step)


@pytest.mark.parametrize("pipe", [Pipe.of(range(20)).batch(4), Pipe.of(range(5))])
def test_a_step_beyond_the_epoch_is_refused_with_the_last_one(pipe: Pipe[Any]) -> None:
    with pytest.raises(BadOption, match="has steps 0 to 4"):
        of(Loader(pipe), 5)


def test_carried_randomness_cannot_be_made_again() -> None:
    with pytest.raises(BadOption, match="carried from batch to batch"):
        of(Loader.of(Pipe.of(range(4)), Policy(randomness="carried")), 0)
