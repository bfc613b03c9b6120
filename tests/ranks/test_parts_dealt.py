"""An order of parts in the engine: one order for every number of ranks, workers and batch size, and own units only."""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import Loader, Pipe, World
from headrace.errors import BadOption, SnapshotRefused
from headrace.op import Here, Indexed, Source
from headrace.plan.units import LARGE, Units, better_rank_count, choose_arrangement, times_read
from tests.depth import depth
from tests.engine.scripted import Script, read, run
from tests.laws.pipes import odd, shown
from tests.ranks.together import together


@dataclass(frozen=True, slots=True)
class InUnits(Source[int]):
    """Numbers that are stored in units of these sizes."""

    sizes: tuple[int, ...]
    row: int = 1000
    """Bytes of a row."""

    def size(self) -> int:
        return sum(self.sizes)

    def get(self, position: int) -> int:
        return position

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        assert found is not None
        found.units = self.units()
        return found

    def units(self) -> Units:
        ends = np.cumsum(np.array(self.sizes, np.int64))
        return Units(ends, len(ends), self.size() * self.row, max(self.sizes) * self.row)

    def identity(self) -> tuple[Any, ...]:
        return ("in units", self.sizes, choose_arrangement(self.units()))


def keyed(x: int) -> tuple[int, float]:
    return x, float(headrace.rng().random())


def numbers(sizes: tuple[int, ...], parts: int | None = 48) -> Pipe[int]:
    return Pipe(InUnits(sizes)).shuffle(parts=parts)


def dealt(pipe: Pipe[Any], ranks: int, ends: Any = "short", state: Any = None, **how: Any) -> list[list[Any]]:
    """The batches of each rank, without what only fills them."""
    found = []
    for rank in range(ranks):
        with Loader(pipe, seed=3, world=World(rank=rank, ranks=ranks), ends=ends, **how) as loader:
            if state is not None:
                loader.load_state_dict(state)
            found.append(
                [[x for x, real in zip(b, loader.mask() or [True] * len(b), strict=True) if real] for b in loader]
            )
    return found


def steps(job: list[list[Any]]) -> list[list[Any]]:
    """What all ranks together have at each step, in the order of the job: one of each rank in turn."""
    return [
        [batch[i] for i in range(max(map(len, step))) for batch in step if i < len(batch)]
        for step in zip(*job, strict=True)
    ]


SIZES = (7, 0, 13, 120, 1, 31, 8, 8, 8, 60)
ENDS = ("short", "pad", "repeat", "drop")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6, 8, 12, 16])
def test_the_order_of_the_job_does_not_depend_on_the_ranks_or_the_batch(ranks: int) -> None:
    pipe = numbers((20,) * 96).map(keyed)
    want = [x for batch in dealt(pipe.batch(48), 1)[0] for x in batch]
    assert sorted(x for x, _ in want) == list(range(1920))
    assert want != sorted(want)
    for whole in (240, 480):
        job = dealt(pipe.batch(whole // ranks), ranks)
        assert len({len(batches) for batches in job}) == 1
        if ranks * (whole // ranks) == whole:
            assert steps(job) == [want[at : at + whole] for at in range(0, 1920, whole)]
        assert sorted(x for rank in job for batch in rank for x in batch) == sorted(want)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 16, 5])
def test_a_rank_meets_the_units_of_its_own_parts_only(ranks: int) -> None:
    pipe = numbers((10,) * 960).batch(48)
    met = [{x // 10 for batch in rank for x in batch} for rank in dealt(pipe, ranks)]
    # (Where ranks do not divide the parts, a rank may miss all ten rows of some unit.)
    assert 960 * times_read(ranks, 48) * (0.8 if ranks == 5 else 1) <= sum(map(len, met)) <= 960 * times_read(ranks, 48)
    assert f"together read the data {times_read(ranks, 48):.2f} times" in pipe.explain(ranks=ranks) or ranks == 1


@settings(max_examples=depth(20, 1000))
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30),
    st.sampled_from([1, 2, 6, 48]),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from(ENDS),
    st.data(),
)
def test_every_sample_comes_once_with_any_ends_and_after_a_resume_on_other_ranks(
    sizes: list[int], parts: int, batch: int, ranks: int, ends: str, data: st.DataObject
) -> None:
    length, other = sum(sizes), data.draw(st.integers(1, 7))
    if length < max(ranks, other):
        return
    pipe = numbers(tuple(sizes), parts).batch(batch)
    order = [x for b in dealt(numbers(tuple(sizes), parts).batch(1), 1)[0] for x in b]
    job = dealt(pipe, ranks, ends)
    assert len({len(rank) for rank in job}) == 1
    seen = Counter(x for rank in job for b in rank for x in b)
    assert max(seen.values(), default=1) == 1
    left_out = length % (batch * ranks) if ends == "drop" else 0
    assert len(seen) == length - left_out
    assert [x for step in steps(job)[:-2] for x in step] == order[: max(0, len(job[0]) - 2) * batch * ranks]

    stop = data.draw(st.integers(0, len(job[0])))
    with Loader(pipe, seed=3, world=World(rank=0, ranks=ranks), ends=ends) as loader:  # type: ignore[arg-type]
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict())) if stop < len(job[0]) else None
    if state is None or (ends == "short" and length - sum(map(len, steps(job)[:stop])) < other):
        return
    rest = dealt(pipe, other, ends, state)
    delivered = [x for step in steps(job)[:stop] for x in step]
    again = sorted(x for rank in rest for b in rank for x in b)
    assert delivered == order[: len(delivered)]
    if ends != "drop":
        assert sorted(delivered + again) == list(range(length))
    assert not set(delivered) & set(again)


@pytest.mark.parametrize("how", [{"workers": 2, "kind": "thread"}, {"workers": 2, "start_method": "fork"}])
def test_workers_do_not_change_the_stream_of_a_rank(how: dict[str, Any]) -> None:
    pipe = numbers(SIZES).map(keyed).batch(5)
    assert dealt(pipe, 3, **how) == dealt(pipe, 3)


def test_the_answers_of_workers_in_any_order_give_the_same_batches() -> None:
    pipe = numbers(SIZES).map(keyed).batch(5)
    for rank, seed in product(range(3), range(depth(3, 100))):
        made, _ = run(pipe, Script(seed), world=World(rank=rank, ranks=3))
        assert read(made) == [shown(batch) for batch in dealt(pipe, 3)[rank]]


def test_single_samples_are_dealt_by_remainder_too_and_go_on_on_other_ranks() -> None:
    pipe = numbers(SIZES)
    order = list(Loader(pipe, seed=3))
    assert sorted(order) == list(range(256))
    for ranks in (2, 4, 8):
        for rank in range(ranks):
            with Loader(pipe, seed=3, world=World(rank=rank, ranks=ranks)) as loader:
                assert list(loader) == order[rank::ranks]
    with Loader(pipe, seed=3) as loader:
        samples = iter(loader)
        assert [next(samples) for _ in range(15)] == order[:15]
        state = loader.state_dict()
    with Loader(pipe, seed=3, world=World(rank=1, ranks=2)) as loader:
        loader.load_state_dict(state)
        # (Of 241 that are left one is too many for equal steps.)
        assert list(loader) == [x for at, x in enumerate(order[:-1]) if at >= 15 and at % 2 == 1]


def test_behind_a_filter_a_rank_stays_with_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = numbers((10,) * 96, 12).filter(odd).batch(4)

    def body(world: World) -> list[int]:
        with Loader(pipe, seed=3, world=world) as loader:
            return [x for batch in loader for x in batch]

    job = together(4, body, monkeypatch)
    assert sorted(x for rank in job for x in rank) == list(range(1, 960, 2))
    units = [{x // 10 for x in rank} for rank in job]
    assert sum(map(len, units)) <= 96 + 8  # near the end what is left is dealt anew


def test_a_batch_can_be_made_again_on_a_rank() -> None:
    pipe = numbers(SIZES).map(keyed).batch(5)
    with Loader(pipe, seed=3, world=World(rank=1, ranks=3)) as loader:
        batches = list(loader)
        assert [loader.lineage(step).batch() for step in range(len(batches))] == batches
        assert loader.lineage(2).exact


def test_small_data_is_shuffled_uniformly_whatever_the_memory_and_large_data_by_parts() -> None:
    small = Pipe(InUnits((100,) * 48, row=LARGE // 4800)).shuffle()
    large = Pipe(InUnits((100,) * 48, row=LARGE // 4800 + 1)).shuffle()
    assert (small.indexed(0, 0).parts, large.indexed(0, 0).parts.count) == (None, 24)  # type: ignore[union-attr]
    assert "uniform over all rows" in small.explain()
    assert "every one of 8 ranks needs every one of the 48 row groups" in small.explain(ranks=8)
    assert "an order of 24 parts, because there are" in large.explain()
    assert "5 does not divide 24: 6 ranks read" in large.batch(7).explain(ranks=5)


def test_parts_and_lanes_follow_from_the_data_and_what_the_user_says() -> None:
    def units(largest: int, count: int = 1000) -> Units:
        return Units(np.arange(count) + 1, 1, count * max(largest, LARGE), largest)

    assert choose_arrangement(units(0)) == (48, 4)
    assert choose_arrangement(units(LARGE // 100)) == (48, 2)
    assert choose_arrangement(units(LARGE // 20)) == (16, 1)
    assert choose_arrangement(units(2 * LARGE)) == (1, 1)
    assert choose_arrangement(units(2 * LARGE), parts=48) == (48, 1)
    assert choose_arrangement(units(0), quality=0.6) == (48, 12)
    assert choose_arrangement(units(0), quality=0.003) == (3, 1)
    assert choose_arrangement(units(0), quality=1) is None
    assert [better_rank_count(ranks, 48) for ranks in (8, 5, 32, 49, 96)] == [None, 6, 48, 50, 48]


def test_a_snapshot_of_another_number_of_parts_is_refused() -> None:
    state = Loader(numbers(SIZES, 48).batch(4)).state_dict()
    with pytest.raises(SnapshotRefused, match="shuffle"):
        Loader(numbers(SIZES, 24).batch(4)).load_state_dict(state)


def test_wrong_uses_of_parts_are_refused() -> None:
    with pytest.raises(BadOption, match=r"shuffle\(parts=\) is for files that are read in units"):
        Loader(Pipe.of(range(10)).shuffle(parts=4))
    with pytest.raises(BadOption, match="positive whole number"):
        Pipe.of(range(10)).shuffle(parts=0)
    with pytest.raises(BadOption, match="leave out window="):
        Pipe.of(range(10)).shuffle(parts=4, window=3)


def test_turns_of_a_cycle_stay_with_one_class_of_parts() -> None:
    pipe = numbers((10,) * 96, 12).cycle(3).batch(10)
    job = dealt(pipe, 4)
    assert Counter(x for rank in job for b in rank for x in b) == Counter(dict.fromkeys(range(960), 3))
    for rank in job:
        samples = [x for batch in rank for x in batch]
        for turn in range(3):
            assert len({x // 10 for x in samples[turn * 240 : (turn + 1) * 240]}) == 24
