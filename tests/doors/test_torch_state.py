"""A DataLoader's state: taken after every batch, loaded at another number of workers, the rest is exact."""

import json
import pickle
import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from headrace import World
from headrace.doors.torch.loader import DataLoader
from headrace.doors.torch.pack import pack, unpack
from headrace.errors import SnapshotRefused
from tests.depth import across, depth
from tests.doors import torch_datasets as data
from tests.doors.torch_corpus import plain, seeded

Make = Callable[[int], Any]

MAPS: dict[str, Make] = {
    "in sequence": lambda w: DataLoader(range(11), 3, num_workers=w),
    "shuffled": lambda w: DataLoader(range(11), 2, shuffle=True, num_workers=w),
    "shuffled by a generator": lambda w: DataLoader(range(11), 3, shuffle=True, num_workers=w, generator=seeded()),
    "drop_last": lambda w: DataLoader(range(11), 3, shuffle=True, drop_last=True, num_workers=w),
    "one by one": lambda w: DataLoader(range(6), batch_size=None, shuffle=True, num_workers=w),
    "with replacement": lambda w: DataLoader(range(9), 20, sampler=RandomSampler(range(9), True, 150), num_workers=w),
    "more than there are": lambda w: DataLoader(
        range(5), 3, sampler=RandomSampler(range(5), num_samples=13, generator=seeded(1)), num_workers=w
    ),
    "of a subset": lambda w: DataLoader(range(9), 2, sampler=SubsetRandomSampler([1, 3, 5, 7, 8]), num_workers=w),
    "by weight": lambda w: DataLoader(
        range(4), 3, sampler=WeightedRandomSampler([1.0, 2.0, 2.0, 5.0], 11), num_workers=w
    ),
    "for ranks": lambda w: DataLoader(
        range(12), 2, sampler=_at_epoch(DistributedSampler(range(12), 2, 1)), num_workers=w
    ),
    "a list of batches": lambda w: DataLoader(range(9), batch_sampler=[[1, 2], [0], [3, 4, 5], [8]], num_workers=w),
    "tuples of a batch sampler": lambda w: DataLoader(range(9), batch_sampler=data.Pairs(8), num_workers=w),
    "torch's batch sampler over one's own": lambda w: DataLoader(
        range(9), batch_sampler=BatchSampler(data.Eager(9), 2, drop_last=False), num_workers=w
    ),
    "a sampler that draws at once": lambda w: DataLoader(
        range(6), batch_size=None, sampler=data.Eager(6), num_workers=w
    ),
    "a sampler with a state": lambda w: DataLoader(range(8), 3, sampler=data.Resumable(8), num_workers=w),
}

STREAMS: dict[str, Make] = {
    "a stream": lambda w: DataLoader(data.Stream(5, 3, 4), 2, num_workers=w),
    "a stream one by one": lambda w: DataLoader(data.Stream(1, 3, 2), batch_size=None, num_workers=w),
    "a stream cut by worker_init_fn": lambda w: _cut(data.Span(3, 27), w),
    "a stream with a state": lambda w: DataLoader(data.Kept(7), 2, num_workers=w),
    "a shuffled stream": lambda w: DataLoader(data.Stream(9, 7), 2, num_workers=w, shuffle_window=4),
    "a divided stream": lambda w: DataLoader(data.Span(3, 20), 2, num_workers=w, shard="auto"),
    "a divided stream, shuffled, with a state": lambda w: DataLoader(
        data.Kept(13), 2, num_workers=w, shard="auto", shuffle_window=5
    ),
}


def _at_epoch(sampler: Any) -> Any:
    sampler.set_epoch(4)
    return sampler


def _cut(dataset: Any, workers: int) -> Any:
    return DataLoader(dataset, 3, num_workers=workers, worker_init_fn=dataset.cut)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        warnings.filterwarnings("ignore", ".*all read the same samples", UserWarning)
        yield


def batches(loader: Any) -> list[Any]:
    return [plain(batch) for batch in loader]


def seed(number: int = 5) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def resumes(make: Make, before: int, after: int, *, stops: int | None = None) -> None:
    """Takes the state after every batch with `before` workers, and goes on with `after` of them."""
    seed()
    whole = batches(make(before))
    states = []
    seed()
    loader = make(before)
    it = iter(loader)
    states.append(loader.state_dict())
    for _ in whole:
        next(it)
        states.append(loader.state_dict())
    untouched = pickle.dumps(states)
    assert next(it, None) is None
    steps = range(len(states)) if stops is None else range(0, len(states), max(1, len(states) // stops))
    for step in steps:
        seed(99)  # what the global generators say after a restart does not matter
        loader = make(after)
        loader.load_state_dict(pickle.loads(pickle.dumps(states[step])))
        assert batches(loader) == whole[step:], f"after {step} of {len(whole)}"
    assert pickle.dumps(states) == untouched


@pytest.mark.parametrize(("name", "workers"), across(MAPS, [(0, 2), (2, 0), (2, 1), (1, 3)]))
def test_the_rest_of_a_map_style_epoch_is_exact(name: str, workers: tuple[int, int]) -> None:
    resumes(MAPS[name], *workers, stops=depth(2, None))


@pytest.mark.parametrize(("name", "workers"), across(STREAMS, [1, 2, 3]))
def test_the_rest_of_a_stream_is_exact_with_random_values_and_worker_ids(name: str, workers: int) -> None:
    resumes(STREAMS[name], workers, workers, stops=depth(3, None))


@pytest.mark.parametrize(("name", "workers"), across([n for n in STREAMS if "divided" in n], [(2, 1), (0, 2), (1, 3)]))
def test_the_rest_of_a_divided_stream_is_exact_with_any_number_of_workers(name: str, workers: tuple[int, int]) -> None:
    resumes(STREAMS[name], *workers, stops=depth(3, None))


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 0), (1, 3), (0, 2)])
@pytest.mark.parametrize("name", ["a stream", "a stream with a state", "a shuffled stream"])
def test_a_stream_goes_on_with_the_number_of_workers_that_it_had_only(name: str, before: int, after: int) -> None:
    make = STREAMS[name]
    began, other = make(before), make(after)
    batches_of_it = iter(began)
    next(batches_of_it)
    with pytest.raises(SnapshotRefused, match=rf"go on with that number, not {after}") as refused:
        other.load_state_dict(began.state_dict())
    assert f"num_workers={before}" in str(refused.value)
    assert len(batches(other)) == len(batches(make(after))), "what is refused changes nothing"
    list(batches_of_it)
    other.load_state_dict(began.state_dict())  # between epochs
    assert len(batches(other)) == len(batches(make(after)))


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_later_epochs_follow_as_without_the_stop(workers: int, persistent: bool) -> None:
    def make() -> Any:
        return DataLoader(
            range(9),
            2,
            shuffle=True,
            num_workers=workers,
            generator=seeded(),
            persistent_workers=persistent,
        )

    loader = make()
    whole = [batches(loader) for _ in range(4)]
    for epoch in depth((1,), (0, 1, 2)):
        for step in (0, 2, len(whole[0])):
            loader = make()
            for _ in range(epoch):
                batches(loader)
            it = iter(loader)
            for _ in range(step):
                next(it)
            state = loader.state_dict()
            again = make()
            again.load_state_dict(state)
            assert batches(again) == whole[epoch][step:]
            assert [batches(again) for _ in range(3 - epoch)] == whole[epoch + 1 :]


class Drawn(Dataset[float]):
    """Samples with a random value each."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> float:
        return index + random.random() / 2


FOLLOWED: dict[str, Callable[..., Any]] = {
    "in any order": partial(DataLoader, range(7), 3, shuffle=True),
    "with random values": partial(DataLoader, Drawn(), 3, shuffle=True, reproducible=True),
    "shuffled in windows": partial(DataLoader, data.Span(0, 7), 3, shard="auto", shuffle_window=5),
}


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 2), (2, 3), (2, -2), (-2, 2)])
def test_later_epochs_follow_whether_workers_stay_or_not(before: int, after: int, name: str) -> None:
    """A negative number: so many workers, which end with each epoch."""

    def make(workers: int) -> Any:
        return FOLLOWED[name](num_workers=abs(workers), generator=seeded(), persistent_workers=workers > 0)

    loader = make(before)
    whole = [batches(loader) for _ in range(5)]
    for epoch, step in ((0, 1), (1, 0), (1, 2), (1, 3)):
        loader = make(before)
        for _ in range(epoch):
            batches(loader)
        state = loader.state_dict()
        if step:
            it = iter(loader)
            for _ in range(step):
                next(it)
            state = loader.state_dict()
        again = make(after)
        again.load_state_dict(state)
        assert batches(again) == whole[epoch][step:]
        assert batches(again) == whole[epoch + 1]
        it = iter(again)
        next(it)
        once_more = make(before)
        once_more.load_state_dict(again.state_dict())
        assert batches(once_more) == whole[epoch + 2][1:]
        assert batches(once_more) == whole[epoch + 3]


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 1)])
def test_reproducible_random_values_go_on_after_a_stop(before: int, after: int) -> None:
    def values(loader: Any) -> list[Any]:
        return [[sample[0].tolist(), *(v.tolist() for v in sample[4:])] for sample in loader]

    def make(workers: int) -> Any:
        return DataLoader(
            data.Told(11), 2, shuffle=True, num_workers=workers, generator=seeded(), reproducible=True
        )  # fmt: skip

    whole = values(make(before))
    loader = make(before)
    it = iter(loader)
    next(it), next(it)
    again = make(after)
    again.load_state_dict(loader.state_dict())
    assert values(again) == whole[2:]


def test_a_state_between_epochs_starts_the_next_one() -> None:
    def make() -> Any:
        return DataLoader(range(6), 2, shuffle=True, generator=seeded())

    loader = make()
    assert loader.state_dict()["at"] == "null"
    first, state, second = batches(loader), loader.state_dict(), batches(loader)
    again = make()
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert batches(again) == second != first


def of_ranks() -> Any:
    loader = DataLoader(range(12), 2, sampler=DistributedSampler(range(12), 2, 1))
    return loader, loader.sampler.set_epoch  # type: ignore[attr-defined]


def of_a_stated_sampler() -> Any:
    loader = DataLoader(range(12), 2, sampler=data.Resumable(12))
    return loader, lambda epoch: loader.sampler.load_state_dict({"turn": epoch})  # type: ignore[attr-defined]


def of_a_generator() -> Any:
    loader = DataLoader(range(12), 2, shuffle=True, generator=seeded())
    return loader, loader.generator.manual_seed  # type: ignore[union-attr]


@pytest.mark.parametrize("finished", [False, True], ids=["ended", "said to be over"])
@pytest.mark.parametrize("make", [of_ranks, of_a_stated_sampler, of_a_generator])
def test_what_a_program_sets_before_the_next_epoch_holds_after_a_state_between_epochs(
    make: Any, finished: bool
) -> None:
    """Programs call `sampler.set_epoch(epoch)` or seed a generator at the start of each epoch, in the same loop."""
    loader, begin = make()
    begin(1)
    it = iter(loader)
    for _ in range(len(loader)):
        next(it)
    state = {**loader.state_dict(), "_iterator_finished": True}
    assert list(it) == []
    if not finished:
        state = loader.state_dict()
    begin(5)
    following = batches(loader)
    again, begin = make()
    again.load_state_dict(state)
    begin(5)
    assert batches(again) == following


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_began_from_a_state_between_epochs_has_states_of_its_own(workers: int) -> None:
    def make() -> Any:
        return DataLoader(range(12), 2, shuffle=True, num_workers=workers)  # drawn from the global generator

    loader, second, third = make(), make(), make()
    second.load_state_dict(loader.state_dict())
    it = iter(second)
    next(it), next(it)
    third.load_state_dict(second.state_dict())
    assert batches(third) == batches(it)


def test_the_state_outlives_its_iterator() -> None:
    loader = DataLoader(range(10), 2)
    for batch in loader:
        if int(batch[0]) == 4:
            break
    state = loader.state_dict()
    again = DataLoader(range(10), 2)
    again.load_state_dict(state)
    assert [b.tolist() for b in again] == [[6, 7], [8, 9]]


def test_an_empty_state_means_from_the_start() -> None:
    loader = DataLoader(range(3))
    loader.load_state_dict({})
    assert [int(b) for b in loader] == [0, 1, 2]


def test_batches_that_come_in_any_order_are_counted_one_by_one() -> None:
    def make(opened: bool) -> Any:
        return DataLoader(Slow(opened), batch_size=None, num_workers=2, in_order=False)

    loader = make(opened=False)
    it = iter(loader)
    early = [next(it)]
    assert early != [0], "the first sample is the slowest"
    loader.dataset.gate.fill_(1)
    early += [next(it), next(it)]
    state = loader.state_dict()
    again = make(opened=True)
    again.load_state_dict(state)
    assert sorted([*early, *again]) == list(range(12))


class SlowStream(IterableDataset[Any]):
    """Of two workers, the first waits until the gate is opened."""

    def __init__(self, opened: bool) -> None:
        self.gate = torch.full((1,), int(opened)).share_memory_()

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        for number in range(6):
            while info.id == 0 and not self.gate.item():
                pass
            yield 10 * info.id + number


def test_streams_that_come_in_any_order_do_not_wait_for_each_other_and_resume_exactly() -> None:
    def make(opened: bool) -> Any:
        return DataLoader(SlowStream(opened), batch_size=None, num_workers=2, in_order=False)

    loader = make(opened=False)
    it = iter(loader)
    early = [next(it) for _ in range(3)]
    assert early == [10, 11, 12]
    loader.dataset.gate.fill_(1)
    again = make(opened=True)
    again.load_state_dict(loader.state_dict())
    rest = list(again)
    assert sorted(early + rest) == [*range(6), *range(10, 16)]
    assert [number for number in rest if number >= 10] == [13, 14, 15]


class Slow:
    """The first sample waits until the gate is opened."""

    def __init__(self, opened: bool) -> None:
        self.gate = torch.full((1,), int(opened)).share_memory_()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 0:
            while not self.gate.item():
                pass
        return index


def test_the_state_rides_with_the_batch_and_not_with_the_prefetch() -> None:
    loader = DataLoader(range(40), 2, num_workers=2, prefetch_factor=4, sampler=data.Eager(40))
    it = iter(loader)
    first = next(it)
    state = loader.state_dict()
    again = DataLoader(range(40), 2, sampler=data.Eager(40))
    again.load_state_dict(state)
    assert [*first.tolist(), *torch.cat(list(again)).tolist()] == [*first.tolist(), *torch.cat(list(it)).tolist()]


def test_another_batch_size_goes_on_at_the_same_sample() -> None:
    loader = DataLoader(range(12), 2, shuffle=True, generator=seeded())
    it = iter(loader)
    early = [*next(it).tolist(), *next(it).tolist()]
    again = DataLoader(range(12), 3, shuffle=True, generator=seeded())
    again.load_state_dict(loader.state_dict())
    rest = [b.tolist() for b in again]
    assert [len(b) for b in rest] == [3, 3, 2]
    assert sorted([*early, *(i for b in rest for i in b)]) == list(range(12))


def test_batches_that_came_before_their_turn_are_not_counted_by_another_batch_size() -> None:
    """They are known by their numbers."""

    def make(size: int | None, opened: bool) -> Any:
        return DataLoader(Slow(opened), size, num_workers=2, in_order=False)

    loader = make(2, opened=False)
    it = iter(loader)
    early = next(it).tolist()
    loader.dataset.gate.fill_(1)
    state = loader.state_dict()
    for size in (None, 1, 3):
        other = make(size, opened=True)
        other.load_state_dict(state)
        with pytest.raises(SnapshotRefused, match="the batch_size that it was taken with"):
            iter(other)
    again = make(2, opened=True)
    again.load_state_dict(state)
    assert sorted([*early, *torch.cat(list(again)).tolist()]) == list(range(12))


def test_a_batch_sampler_that_gives_other_batches_than_before_is_refused() -> None:
    def make(size: int) -> Any:
        return DataLoader(range(12), batch_sampler=[[*range(i, i + size)] for i in range(0, 12, size)])

    loader = make(2)
    it = iter(loader)
    next(it), next(it)
    other = make(4)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(SnapshotRefused, match="had 4 samples, and the sampler gives 8 in as many now"):
        iter(other)


def _random(seed: int = 1) -> RandomSampler:
    return RandomSampler(range(9), generator=seeded(seed))


WITHIN: dict[str, Callable[[], dict[str, Any]]] = {
    "a sampler of a sampler": lambda: {"batch_size": 2, "sampler": data.Reads(sampler=_random())},
    "a sampler of a sampler of a sampler": lambda: {
        "batch_size": 2, "sampler": data.Reads(sampler=data.Reads(sampler=_random()))
    },
    "a batch sampler of a batch sampler": lambda: {
        "batch_sampler": data.Reads(batch_sampler=BatchSampler(_random(), 2, drop_last=False))
    },
    "batches as samples": lambda: {"batch_size": None, "sampler": BatchSampler(_random(), 2, drop_last=False)},
    "torch's generator": lambda: {"batch_size": 2, "sampler": data.Draws(seeded())},
    "numpy's generator": lambda: {"batch_size": 2, "sampler": data.Draws(np.random.default_rng(3))},
    "numpy's bits": lambda: {"batch_size": 2, "sampler": data.Draws(np.random.Philox(3))},
    "numpy's old generator": lambda: {"batch_size": 2, "sampler": data.Draws(np.random.RandomState(3))},
    "Python's generator": lambda: {"batch_size": 2, "sampler": data.Draws(random.Random(3))},
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize("between", [False, True])
def test_generators_inside_of_samplers_go_on_in_later_epochs(name: str, between: bool) -> None:
    def make() -> Any:
        return DataLoader(np.arange(9), collate_fn=np.array, **WITHIN[name]())

    whole = make()
    for _ in range(2):
        list(whole)
    third, fourth = batches(whole), batches(whole)
    loader = make()
    for _ in range(2):
        list(loader)
    front = []
    if not between:
        it = iter(loader)
        front = [plain(next(it)), plain(next(it))]
    state = json.loads(json.dumps(loader.state_dict()))
    again = make()
    again.load_state_dict(state)
    assert front + batches(again) == third
    assert batches(again) == fourth


def test_batches_as_samples_hold_the_global_generator_that_their_order_was_drawn_from() -> None:
    resumes(
        lambda w: DataLoader(
            np.arange(9), None, sampler=BatchSampler(RandomSampler(range(9)), 2, drop_last=False), num_workers=w
        ), 0, 0,
    )  # fmt: skip


@pytest.mark.parametrize("generator", [None, 3])
def test_a_state_is_small_and_plain(generator: int | None) -> None:
    loader = DataLoader(
        range(100), 4, shuffle=True, num_workers=2, generator=None if generator is None else seeded(generator)
    )
    it = iter(loader)
    next(it)
    state = loader.state_dict()
    assert len(pickle.dumps(state)) <= 6000
    ordered = DataLoader(range(100), 4, num_workers=2)
    next(iter(ordered))
    assert json.loads(ordered.state_dict()["at"])["batches"] == 1


class Holds(IterableDataset[int]):
    """A state of whatever is asked for."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __iter__(self) -> Any:
        yield from range(4)

    def state_dict(self) -> Any:
        return {"deep": [{"held": self.held}]}

    def load_state_dict(self, state: Any) -> None:
        self.held = state["deep"][0]["held"]


@pytest.mark.parametrize(
    ("held", "workers"), across([b"raw", np.arange(3), torch.arange(3), None, 1.5, "text"], [0, 1])
)
def test_a_dataset_may_keep_bytes_arrays_and_tensors(workers: int, held: Any) -> None:
    loader = DataLoader(Holds(held), num_workers=workers)
    it = iter(loader)
    next(it)
    state = loader.state_dict()
    kept = note_of(state)["dataset"]["deep"][0]["held"]
    assert type(kept) is type(held)
    assert str(kept) == str(held)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_not_plain_is_refused_by_its_path(workers: int) -> None:
    loader = DataLoader(Holds({1, 2}), num_workers=workers)
    it = iter(loader)
    next(it)
    with pytest.raises(SnapshotRefused, match=r"\['dataset'\]\['deep'\]\[0\]\['held'\] is a set"):
        loader.state_dict()


def test_a_dataset_with_a_state_is_not_read_again() -> None:
    def make() -> Any:
        return DataLoader(data.Kept(50), batch_size=None)

    loader = make()
    it = iter(loader)
    for _ in range(40):
        next(it)
    state = loader.state_dict()
    again = make()
    again.load_state_dict(state)
    assert next(iter(again)) == 40
    note = note_of(state)
    assert note["dataset"] == {"at": note["samples"]}, "the dataset's own state, as it was after that many batches"


def test_a_state_of_another_kind_is_refused() -> None:
    mapped, streamed = DataLoader(range(4)), DataLoader(data.Span(0, 4))
    with pytest.raises(SnapshotRefused, match=r"of a DataLoader over a map-style dataset.*an iterable-style"):
        streamed.load_state_dict(mapped.state_dict())
    with pytest.raises(SnapshotRefused, match="not int"):
        mapped.load_state_dict(3)  # type: ignore[arg-type]
    state = mapped.state_dict()
    for name in state:
        with pytest.raises(SnapshotRefused, match=name):
            mapped.load_state_dict({k: v for k, v in state.items() if k != name})
    with pytest.raises(SnapshotRefused, match="version 7"):
        mapped.load_state_dict({**state, "version": 7})


def note_of(state: dict[str, Any]) -> Any:
    """What the first worker's part of a stream has noted."""
    return unpack(state["at"])["place"]["place"]["strands"][0]["state"][2]


@pytest.mark.parametrize(
    "broken",
    [
        {"at": 3}, {"at": {}}, {"at": {"drawn": [1, 1], "batches": -1, "samples": 0, "done": [], "iterator": None}},
        {"at": {"drawn": [1], "batches": 1, "samples": 0, "done": [], "iterator": None}},
        {"at": {"drawn": [1, 1], "batches": 1, "samples": 0, "done": "x", "iterator": None}},
        {"start": None}, {"num_workers": -1}, {"epoch": "0"}, {"base_seed": 1.5},
    ],
)  # fmt: skip
def test_a_broken_state_is_refused_when_it_is_loaded(broken: dict[str, Any]) -> None:
    loader = DataLoader(range(4))
    packed = {k: json.dumps(v).encode() if k in ("at", "start") else v for k, v in broken.items()}
    for part in (broken, packed):
        with pytest.raises(SnapshotRefused):
            loader.load_state_dict({**loader.state_dict(), "base_seed": 1, **part})


@pytest.mark.parametrize(
    "value",
    [
        None, 1, 1.5, "text", [1, [2]], {"a": 1}, {1: "one"}, {"$": 1}, b"raw", [b"a", b"bc"], {},
        torch.arange(5), torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(0, 2), torch.tensor(True),
        np.arange(6).reshape(2, 3), np.array("text"), np.zeros((0, 3)), {"a": [torch.ones(2), {"b": np.ones(1)}]},
    ],
    ids=str,
)  # fmt: skip
def test_plain_data_is_packed_and_unpacked_as_it_was(value: Any) -> None:
    assert plain(unpack(pack(value, "x"))) == plain(value)


@pytest.mark.parametrize("value", [{1, 2}, object(), {"a": lambda: 0}, {(1, 2): 3}, np.array([None]), 1j], ids=str)
def test_other_data_is_not_packed(value: Any) -> None:
    with pytest.raises(SnapshotRefused, match=r"^x"):
        pack(value, "x")


@pytest.mark.parametrize(
    "broken", ["", "{", '{"$": []}', '{"$": ["tensor", 0, 8, "nothing", [1]]}', '{"a":1}\n?', "text", b"{}", 3]
)
def test_broken_text_is_refused(broken: Any) -> None:
    with pytest.raises(SnapshotRefused):
        unpack(broken)


def test_a_shorter_dataset_is_refused() -> None:
    loader = DataLoader(range(10), 2)
    it = iter(loader)
    for _ in range(4):
        next(it)
    shorter = DataLoader(range(5), 2)
    shorter.load_state_dict(loader.state_dict())
    with pytest.raises(SnapshotRefused, match="stands at sample 8, but the sampler gives only 5"):
        iter(shorter)


def test_ranks_divide_a_stream_and_resume_their_own_part(caplog: pytest.LogCaptureFixture) -> None:
    def make(rank: int, size: int | None = 3) -> Any:
        return DataLoader(data.Span(0, 32), size, num_workers=1, shard="auto", world=World(rank=rank, ranks=2))

    parts = [[b.tolist() for b in make(rank)] for rank in range(2)]
    assert len(parts[0]) == len(parts[1])
    assert sorted(i for part in parts for b in part for i in b) == list(range(32))
    single = [list(make(rank, None)) for rank in range(2)]
    assert single == [list(range(0, 32, 2)), list(range(1, 32, 2))]
    world = partial(World, ranks=5)
    uneven = [
        list(DataLoader(data.Span(0, 32), None, shard="auto", world=world(rank=rank), num_workers=rank % 2))
        for rank in range(5)
    ]
    assert uneven == [list(range(rank, 30, 5)) for rank in range(5)], "as many steps on every rank"
    assert "2 samples at the end of the epoch are left out" in caplog.text
    for rank in range(2):
        loader = make(rank)
        it = iter(loader)
        next(it), next(it)
        again = make(rank)
        again.load_state_dict(loader.state_dict())
        assert [b.tolist() for b in again] == parts[rank][2:]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_whose_trainer_says_that_the_epoch_is_over_goes_on_with_the_next(workers: int) -> None:
    """Trainers take a state after the last batch, before anybody has asked whether there is more."""
    loader = DataLoader(range(8), 4, shuffle=True, num_workers=workers, generator=seeded())
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = {**loader.state_dict(), "_iterator_finished": True}
    assert list(batches) == []
    following = [batch.tolist() for batch in loader]
    again = DataLoader(range(8), 4, shuffle=True, num_workers=1 - workers, generator=seeded())
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == following


@pytest.mark.parametrize("sampler", [None, RandomSampler, lambda d: DistributedSampler(d, 2, 1)])
def test_inside_an_epoch_a_dataset_of_another_length_is_refused(sampler: Any) -> None:
    """A random order follows from the length: some samples would come twice, and others never."""

    def loader(length: int) -> Any:
        given: Any = {"shuffle": True} if sampler is None else {"sampler": sampler(range(length))}
        return DataLoader(range(length), 3, **given)

    first = loader(20)
    next(iter(first))
    again = loader(22)
    again.load_state_dict(first.state_dict())
    with pytest.raises(SnapshotRefused, match="drew among 20 samples, and there are 22 now"):
        iter(again)


def test_a_misspelt_argument_is_told_as_torch_tells_it_with_what_was_meant() -> None:
    wrong: Any = DataLoader
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'batchsize'; did you mean 'batch_size'\?"):
        wrong(range(3), batchsize=4)
