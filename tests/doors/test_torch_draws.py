"""Samplers are asked when torch asks them: how many batches the loop had when index k was drawn is the same.

A sampler may draw from a generator that the loop, or another sampler, draws from too, and may follow what the loop has
found: then the moment decides which indices come. Where a sampler is asked earlier than by torch (`_may_draw_early`),
nothing that a program can look at may differ.
"""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from headrace.doors.torch import plan
from headrace.doors.torch.loader import DataLoader, TorchLoader
from tests.depth import across, depth
from tests.doors.torch_memory import begin_anew, global_states, pause, told, what

pytestmark = pytest.mark.filterwarnings("ignore:.*will create .* worker processes")

N = 29
SIZE = 2

STOPS = (4, None, 0, 1)
"""Batches after which epochs are left; None: never."""

Log = list[Any]


class Plain(Dataset[Any]):
    """Some samples are errors."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: Any) -> Any:
        pause()
        if index % 9 == 4:
            raise LookupError(f"there is no {index}")
        return index, random.random()


class Sound(Plain):
    """No sample is an error: torch's iterator does not end with its epoch where there was one."""

    def __getitem__(self, index: Any) -> Any:
        pause()
        return index, random.random()


class Watch:
    """What a sampler was asked, each with the number of steps that the loop had made."""

    def __init__(self) -> None:
        self.log: Log = []
        self.steps = 0

    def note(self, *event: Any) -> None:
        self.log.append((*event, self.steps))


class Recording(Sampler[Any]):
    """Each index is drawn when it is asked for."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[Any]:
        self.watch.note("begins")
        for place in range(N):
            index = (place + random.randrange(N)) % N
            self.watch.note("index", index)
            yield index
        self.watch.note("ends")


class Eager(Recording):
    """All is drawn by `iter()`."""

    def __iter__(self) -> Iterator[Any]:
        self.watch.note("iter")
        indices = torch.randperm(N).tolist()
        return iter(indices)


class ByHand(Recording):
    """The iterator is an object."""

    def __iter__(self) -> Iterator[Any]:
        return Calls(self.watch)


class Calls(Iterator[Any]):
    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.count = 0
        watch.note("iter")

    def __next__(self) -> int:
        self.count += 1
        if self.count <= N + 1:  # (torch goes on asking an iterator that has ended, to which nothing is to be added)
            self.watch.note("next")
        if self.count > N:
            raise StopIteration
        return int(np.random.randint(N))


class Closing(Recording):
    """Knows when it is left, and does something then that the next epoch depends on."""

    epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.watch.note("begins", self.epoch)
        try:
            for place in range(N):
                yield (place * (self.epoch + 1)) % N
        finally:
            self.watch.note("left")
            self.epoch += 1


class Batches(Recording):
    """A batch sampler, with batches of several lengths."""

    def __iter__(self) -> Iterator[list[int]]:
        self.watch.note("begins")
        for length in (1, 3, 2, 0, 4, 1, 2, 2, 3, 1, 2, 2):
            if length:
                batch = torch.randint(N, (length,)).tolist()
                self.watch.note("batch", batch)
                yield batch


class Distributed(DistributedSampler[Any]):
    """A subclass may do anything, so it is asked when torch asks it."""

    watch: Watch

    def __iter__(self) -> Iterator[Any]:
        self.watch.note("iter", self.epoch)
        self.epoch += 1
        for index in super().__iter__():
            self.watch.note("index", index)
            yield index


def _distributed(watch: Watch) -> Any:
    sampler = Distributed(Plain(), 2, 1)
    sampler.watch = watch
    return sampler


class Following(SequentialSampler):
    """Extends torch's class that is known to need no asking."""

    watch: Watch

    def __iter__(self) -> Iterator[int]:
        for index in super().__iter__():
            self.watch.note("index", index)
            yield index


def _following(watch: Watch) -> Any:
    sampler = Following(Plain())
    sampler.watch = watch
    return sampler


class Regrouping(BatchSampler):
    """Extends torch's batch sampler: the first index of each batch comes twice."""

    watch: Watch

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            self.watch.note("batch", batch)
            yield [batch[0], *batch]


def _regrouping(watch: Watch) -> Any:
    sampler = Regrouping(RandomSampler(range(N)), 3, False)
    sampler.watch = watch
    return sampler


def _own(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


Make = Callable[[Watch], dict[str, Any]]

RECORDED: dict[str, Make] = {
    "a sampler": lambda watch: {"sampler": Recording(watch), "batch_size": SIZE},
    "a sampler, dropping the last": lambda watch: {"sampler": Recording(watch), "batch_size": 3, "drop_last": True},
    "a sampler, no batches": lambda watch: {"sampler": Recording(watch), "batch_size": None},
    "a sampler that draws at once": lambda watch: {"sampler": Eager(watch), "batch_size": SIZE},
    "the same, no batches": lambda watch: {"sampler": Eager(watch), "batch_size": None},
    "an iterator by hand": lambda watch: {"sampler": ByHand(watch), "batch_size": SIZE},
    "the same, dropping the last": lambda watch: {"sampler": ByHand(watch), "batch_size": 3, "drop_last": True},
    "an iterator by hand, no batches": lambda watch: {"sampler": ByHand(watch), "batch_size": None},
    "an iterator by hand, whole batches": lambda watch: {"sampler": ByHand(watch), "batch_size": N},
    "a sampler that is told of its end": lambda watch: {
        "sampler": Closing(watch),
        "batch_size": SIZE,
        "dataset": Sound(),
    },
    "the same as it is": lambda watch: {"sampler": Closing(watch), "batch_size": None, "dataset": Sound()},
    "a batch sampler": lambda watch: {"batch_sampler": Batches(watch)},
    "a batch sampler of torch's": lambda watch: {"batch_sampler": BatchSampler(Recording(watch), 4, False)},
    "batches of batches": lambda watch: {
        "sampler": BatchSampler(Recording(watch), 3, False),
        "batch_size": None,
        "dataset": ByList(),
    },
    "a part of torch's DistributedSampler": lambda watch: {"sampler": _distributed(watch), "batch_size": SIZE},
    "a part of torch's SequentialSampler": lambda watch: {"sampler": _following(watch), "batch_size": SIZE},
    "a part of torch's BatchSampler": lambda watch: {"batch_sampler": _regrouping(watch)},
    "a list that is no sampler": lambda watch: {"batch_sampler": Listening(watch)},
}


class ByList(Plain):
    def __getitem__(self, index: Any) -> Any:
        return [super(ByList, self).__getitem__(one) for one in index]


class Listening:
    """Only `__getitem__` and `__len__`, so `iter()` makes an iterator of it."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def __len__(self) -> int:
        return 12

    def __getitem__(self, place: int) -> list[int]:
        self.watch.note("item", place)
        if place >= 12:
            raise IndexError
        return [place, int(torch.randint(N, ()))]


OWN: dict[str, Callable[[torch.Generator], dict[str, Any]]] = {
    "shuffle": lambda g: {"shuffle": True, "generator": g, "batch_size": SIZE},
    "shuffle, whole batches": lambda g: {"shuffle": True, "generator": g, "batch_size": N},
    "random": lambda g: {"sampler": RandomSampler(range(N), generator=g), "batch_size": SIZE},
    "random, several times": lambda g: {"sampler": RandomSampler(range(7), False, 24, g), "batch_size": 4},
    "random, fewer": lambda g: {"sampler": RandomSampler(range(N), False, 20, g), "batch_size": SIZE},
    "random, dropping the last": lambda g: {
        "sampler": RandomSampler(range(N), generator=g),
        "batch_size": 3,
        "drop_last": True,
    },
    "random, no batches": lambda g: {"sampler": RandomSampler(range(9), False, 27, g), "batch_size": None},
    "replacement": lambda g: {"sampler": RandomSampler(range(N), True, 99, g), "batch_size": 7},
    "replacement, large batches": lambda g: {"sampler": RandomSampler(range(N), True, 200, g), "batch_size": 33},
    "replacement, no batches": lambda g: {"sampler": RandomSampler(range(N), True, 40, g), "batch_size": None},
    "subset": lambda g: {"sampler": SubsetRandomSampler(range(3, 25), g), "batch_size": SIZE},
    "weighted": lambda g: {"sampler": WeightedRandomSampler(torch.rand(N).tolist(), 25, True, g), "batch_size": SIZE},
    "weighted, once": lambda g: {"sampler": WeightedRandomSampler([1.0] * N, 25, False, g), "batch_size": SIZE},
    "two orders": lambda g: {
        "batch_sampler": BatchSampler(RandomSampler(range(N), generator=g), 3, True),
        "generator": g,
    },
}
"""Samplers of torch's with a generator, whose state is looked at after each step."""

EARLY: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": lambda: {"batch_size": SIZE},
    "in order, with a generator": lambda: {"batch_size": SIZE, "generator": _own()},
    "in order, no batches": lambda: {"batch_size": None},
    "shuffled": lambda: {"batch_size": SIZE, "shuffle": True},
    "shuffled, dropping the last": lambda: {"batch_size": 3, "shuffle": True, "drop_last": True},
    "shuffled, one batch": lambda: {"batch_size": 50, "shuffle": True},
    "replacement": lambda: {"batch_size": 5, "sampler": RandomSampler(range(N), True, 140)},
    "several times": lambda: {"batch_size": 5, "sampler": RandomSampler(range(7), False, 60)},
    "weighted": lambda: {"batch_size": SIZE, "sampler": WeightedRandomSampler([1.0] * N, 40)},
    "weighted, with a generator": lambda: {
        "batch_size": SIZE,
        "sampler": WeightedRandomSampler([1.0] * N, 40, True, _own()),
    },
    "distributed": lambda: {"batch_size": SIZE, "sampler": DistributedSampler(Plain(), 2, 1)},
    "a batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(range(N)), 4, False)},
}
"""Samplers that may be asked early."""

HOW = [
    (0, None, False),
    *((workers, ahead, stay) for workers in (1, 2, 3) for ahead in (None, 1, 2, 3) for stay in (False, True)),
]
"""Numbers of workers, `prefetch_factor`, and whether workers stay."""


def options(workers: int, ahead: int | None, stay: bool) -> dict[str, Any]:
    return {"num_workers": workers, "prefetch_factor": ahead, "persistent_workers": stay}


def cases(names: dict[str, Any]) -> list[Any]:
    """Reduced: each name once, one way to run it after the other."""
    each = [(name, *HOW[7 * place % len(HOW)]) for place, name in enumerate(names)]
    return depth(each, [(name, *how) for name in names for how in HOW])


def walk(loader: Any, watch: Watch, stop: int | None, look: Callable[[], Any]) -> Iterator[Any]:
    """One epoch: what comes, and what the program sees behind it."""
    batches = iter(loader)
    watch.note("begun")
    yield look()
    for _ in itertools.repeat(None, 300) if stop is None else range(stop):
        try:
            batch = next(batches)
        except StopIteration:
            watch.steps += 1
            yield "end", look()
            break
        except Exception as error:
            error.__traceback__ = None
            watch.steps += 1
            yield what(error), look()
        else:
            watch.steps += 1
            yield told(batch), look()
    else:
        assert stop is not None, "the loader does not end"
    del batches
    watch.note("left by the loop")


def record(loader_class: Any, make: Make, **how: Any) -> tuple[list[Any], Log]:
    """What a program sees in some epochs, and what the sampler was asked."""
    begin_anew()
    watch = Watch()
    loader = loader_class(**{"dataset": Plain(), "collate_fn": list, **make(watch), **how})
    seen = [one for stop in STOPS for one in walk(loader, watch, stop, global_states)]
    return seen, watch.log


@pytest.mark.parametrize(("name", "workers", "ahead", "stay"), cases(RECORDED))
def test_a_sampler_is_asked_when_torch_asks_it(name: str, workers: int, ahead: int | None, stay: bool) -> None:
    seen, asked = record(TorchLoader, RECORDED[name], **options(workers, ahead, stay))
    ours = record(DataLoader, RECORDED[name], **options(workers, ahead, stay))
    assert ours[1] == asked
    assert ours[0] == seen


@pytest.mark.parametrize(("name", "workers", "ahead", "stay"), cases(OWN))
def test_a_generator_is_drawn_from_when_torch_draws(name: str, workers: int, ahead: int | None, stay: bool) -> None:
    def run(loader_class: Any) -> list[Any]:
        begin_anew()
        generator = _own()

        def look() -> Any:
            state = hash(bytes(generator.get_state().numpy()))
            return state, global_states(), int(torch.randint(1000, (), generator=generator))

        loader = loader_class(**{"dataset": Plain(), "collate_fn": list, **OWN[name](generator)}, **how)
        return [one for stop in STOPS for one in walk(loader, Watch(), stop, look)]

    how = options(workers, ahead, stay)
    assert run(DataLoader) == run(TorchLoader)


CHANGING: dict[str, Callable[[list[int]], dict[str, Any]]] = {
    "a subset": lambda indices: {"sampler": SubsetRandomSampler(indices), "batch_size": SIZE},
    "a subset, no batches": lambda indices: {"sampler": SubsetRandomSampler(indices), "batch_size": None},
    "a list": lambda indices: {"sampler": indices, "batch_size": SIZE},
    "a batch sampler of a list": lambda indices: {"batch_sampler": BatchSampler(indices, 3, True)},
}


@pytest.mark.parametrize("ahead", [None, 1])
@pytest.mark.parametrize(("name", "workers"), across(CHANGING, (0, 1, 2, 3)))
def test_indices_that_the_loop_changes_are_seen_when_torch_sees_them(
    name: str, workers: int, ahead: int | None
) -> None:
    def run(loader_class: Any) -> list[Any]:
        begin_anew()
        indices = list(range(N))
        options = CHANGING[name](indices) | {"num_workers": workers, "prefetch_factor": ahead if workers else None}
        seen = []
        for batch in loader_class(Sound(), collate_fn=list, **options):
            seen.append(told(batch))
            indices.append(indices.pop(0))
            indices[7:9] = indices[8], indices[7]
        return seen

    assert run(DataLoader) == run(TorchLoader)


class Wide(Sound):
    """Batches of 100 MB: three of them are more than a loader usually keeps in shared memory."""

    def __getitem__(self, index: Any) -> Any:
        return np.full(3_125_000, index, np.float64)


def test_memory_has_no_say_in_when_a_sampler_is_asked() -> None:
    def asked(loader_class: Any) -> Log:
        begin_anew()
        watch = Watch()
        loader = loader_class(Wide(), 4, sampler=Recording(watch), num_workers=2, prefetch_factor=2)
        for batch in loader:
            watch.steps += 1
            watch.note("batch", batch[:, 0].tolist())
        return watch.log

    assert asked(DataLoader) == asked(TorchLoader)


class Growing(Sound):
    """What a program learns to do while it reads."""

    length = N

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_may_grow_while_it_is_read(workers: int, size: int | None, shuffle: bool) -> None:
    """With workers, where a `prefetch_factor` is given."""

    def run(loader_class: Any, grows: int) -> list[Any]:
        begin_anew()
        dataset = Growing()
        ahead = {"num_workers": workers, "prefetch_factor": 2} if workers else {}
        loader = loader_class(dataset, size, shuffle, **ahead)
        batches = iter(loader)
        seen = []
        for step in range(99):
            if step == grows:
                dataset.length += 5
            if (batch := next(batches, None)) is None:
                break
            seen.append((told(batch), global_states()))
        return seen

    for grows in (0, 3, 20):
        assert run(DataLoader, grows) == run(TorchLoader, grows)


@pytest.mark.parametrize(("name", "workers"), across(EARLY, (0, 1, 2, 3)))
def test_nothing_shows_where_a_sampler_is_asked_early(name: str, workers: int) -> None:
    def run(loader_class: Any) -> list[Any]:
        begin_anew()
        loader = loader_class(**{"dataset": Plain(), "collate_fn": list, "num_workers": workers, **EARLY[name]()})
        if loader_class is DataLoader and workers:
            assert plan.policy(loader, plan.context_of(loader, 0)).stretch

        def look() -> Any:
            random.random(), np.random.rand()
            own = getattr(loader.sampler, "generator", None)
            return global_states(), float(torch.rand(())), None if own is None else own.get_state().tolist()

        return [one for stop in STOPS for one in walk(loader, Watch(), stop, look)]

    assert run(DataLoader) == run(TorchLoader)
