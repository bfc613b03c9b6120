"""Random programs over samplers, generators, collate functions and options: what they see is what they see with torch.

A program is made from its number. It reads one loader, or two at a time, for some epochs, of which it leaves some; in
between it draws from the generators that samplers draw from, and changes what they give. All that it is given, and all
that it can look at after each step, is compared.
"""

import random
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from headrace.doors.torch.loader import DataLoader, TorchLoader
from tests.depth import depth
from tests.doors.torch_memory import KINDS, Collating, begin_anew, global_states, told, what

pytestmark = pytest.mark.filterwarnings("ignore:.*(will create .* worker processes|all read the same samples)")

DATASETS = [
    name
    for name, one in KINDS.items()
    if one.workers == (0, 1, 2, 3) and [*one.make(TorchLoader)] == ["dataset"] and name != "whole batches"
]
N = 24
"""Indices that samplers give; datasets have more."""


class Little(Sampler[int]):
    """Draws each index when it is asked for it, from whatever it is given."""

    def __init__(self, draw: Callable[[int], int], log: list[Any]) -> None:
        self.draw = draw
        self.log = log

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        self.log.append("begins")
        for _ in range(N):
            index = self.draw(N)
            self.log.append(index)
            yield index


class Changing(Sampler[int]):
    """Gives what stands in a list, which the loop changes meanwhile."""

    def __init__(self, indices: list[int], log: list[Any]) -> None:
        self.indices = indices
        self.log = log

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        for place in range(N):
            self.log.append(place)
            yield self.indices[place]


class Uneven(Changing):
    """Batches of the same list; how long they are is drawn."""

    def __iter__(self) -> Iterator[Any]:
        place = 0
        while place < N:
            length = random.randint(1, 4)
            self.log.append((place, length))
            yield self.indices[place : place + length]
            place += length


class Program:
    """The loaders of one program, and its loop."""

    def __init__(self, number: int, loader_class: Any) -> None:
        begin_anew()
        self.choose = random.Random(number)
        """Decides; nothing else draws from it."""
        self.log: list[Any] = []
        self.shared = torch.Generator().manual_seed(number)
        self.own = np.random.default_rng(number)
        self.indices = list(range(N))
        self.loader_class = loader_class
        self.resizable: list[Any] = []
        """Loaders whose batches the loop makes longer: none of streams, and none whose sampler is asked early."""
        name = self.choose.choice(DATASETS)
        self.told = [name]
        self.loaders = [self._loader(name)]
        if self.choose.random() < 0.25:
            self.loaders.append(self._loader(self.choose.choice(DATASETS)))

    def _loader(self, name: str) -> Any:
        choose = self.choose
        workers = choose.choice((0, 1, 1, 2, 2, 3))
        generator = choose.choice((None, self.shared, self.shared, torch.Generator().manual_seed(choose.randrange(99))))
        options: dict[str, Any] = {
            "num_workers": workers,
            "generator": generator,
            "persistent_workers": workers > 0 and choose.random() < 0.4,
            "prefetch_factor": choose.choice((None, None, 1, 2, 3)) if workers else None,
            # (With several workers torch's own order is that in which they are ready.)
            "in_order": workers > 1 or choose.random() < 0.8,
            "collate_fn": choose.choice((None, None, Collating())),
            "worker_init_fn": choose.choice((None, _draws)),
        }
        dataset = KINDS[name].make(self.loader_class)["dataset"]
        if not isinstance(dataset, IterableDataset):
            options |= self._sampler(dataset, generator)
        else:
            options |= {"batch_size": choose.choice((2, 5)), "drop_last": choose.random() < 0.3}
        if options.get("batch_size", 1) is None:
            options["collate_fn"] = None
        self.told.append(f"{name}: { ({key: value for key, value in options.items() if value is not None}) }")
        loader = self.loader_class(dataset, **options)
        drawn_then = not workers or options["prefetch_factor"] is not None
        if type(loader.batch_sampler) is BatchSampler and drawn_then and not isinstance(dataset, IterableDataset):
            self.resizable.append(loader)
        return loader

    def _sampler(self, dataset: Any, generator: torch.Generator | None) -> dict[str, Any]:
        choose = self.choose
        kind = choose.randrange(13)
        if kind == 0:
            return self._batches() | {"shuffle": choose.choice((True, True, False))}
        if kind == 1:
            sampler: Any = SequentialSampler(range(N))
        elif kind == 2:
            sampler = RandomSampler(range(N), generator=choose.choice((None, generator, self.shared)))
        elif kind == 3:
            sampler = RandomSampler(range(N), True, choose.choice((5, 40, 64)), choose.choice((None, generator)))
        elif kind == 4:
            sampler = RandomSampler(range(9), False, choose.choice((4, 18, 23)), choose.choice((None, generator)))
        elif kind == 5:
            sampler = SubsetRandomSampler(self.indices, generator)
        elif kind == 6:
            weights = [float(place % 5 + 1) for place in range(N)]
            sampler = WeightedRandomSampler(weights, 20, choose.random() < 0.5, generator)
        elif kind == 7:
            sampler = DistributedSampler(range(N), 2, choose.randrange(2), shuffle=choose.random() < 0.7)  # type: ignore[arg-type]
        elif kind == 8:
            sampler = Little(
                choose.choice((random.randrange, np.random.randint, _by_torch, _by(self.shared))), self.log
            )
        elif kind == 9:
            sampler = Little(_by_numpy(self.own), self.log)
        elif kind == 10:
            sampler = Changing(self.indices, self.log)
        elif kind == 11:
            return {"batch_sampler": Uneven(self.indices, self.log)}
        else:
            inner = choose.choice((RandomSampler(range(N), generator=generator), Changing(self.indices, self.log)))
            return {"batch_sampler": BatchSampler(inner, choose.choice((2, 5)), choose.random() < 0.5)}
        return self._batches() | {"sampler": sampler}

    def _batches(self) -> dict[str, Any]:
        size = self.choose.choice((1, 2, 3, 4, 7, None))
        return {"batch_size": size, "drop_last": size is not None and self.choose.random() < 0.3}

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> Iterator[Any]:
        for _ in range(self.choose.choice((2, 3))):
            stop = self.choose.choice((None, None, 0, 1, 3, 5))
            epochs = [iter(loader) for loader in self.loaders]
            yield "begun", self._look()
            steps = 0
            while epochs and (stop is None or steps < stop):
                steps += 1
                assert steps < 500, "a loader does not end"
                for batches in [*epochs]:
                    try:
                        came = told(next(batches))
                    except StopIteration:
                        epochs.remove(batches)
                        came = "end"
                    except Exception as error:
                        error.__traceback__ = None  # (torch's would keep its iterator, and so its workers)
                        came = what(error)
                    yield came, self._look()
                self._meddle()
            del epochs
            batches = None
            yield "left", self._look()

    def _meddle(self) -> None:
        """What a training loop does between two steps."""
        doing = self.choose.randrange(8)
        if doing == 0:
            random.random(), np.random.rand(), torch.rand(())
        elif doing == 1:
            torch.rand((), generator=self.shared)
        elif doing == 2:
            self.own.random()
        elif doing == 3:
            first, second = self.choose.sample(range(N), 2)
            self.indices[first], self.indices[second] = self.indices[second], self.indices[first]
        elif doing == 4:
            for loader in self.loaders:
                if hasattr(getattr(loader, "sampler", None), "set_epoch"):
                    loader.sampler.set_epoch(self.choose.randrange(5))
        elif doing == 5:
            size = self.choose.randrange(1, 6)
            for loader in self.resizable:
                loader.batch_sampler.batch_size = size

    def _look(self) -> Any:
        return (
            global_states(),
            hash(bytes(self.shared.get_state().numpy())),
            str(self.own.bit_generator.state),
            len(self.log),
        )


def _draws(worker: int) -> None:
    random.random(), np.random.rand(), torch.rand(())


def _by_torch(n: int) -> int:
    return int(torch.randint(n, ()))


def _by(generator: torch.Generator) -> Callable[[int], int]:
    return lambda n: int(torch.randint(n, (), generator=generator))


def _by_numpy(generator: np.random.Generator) -> Callable[[int], int]:
    return lambda n: int(generator.integers(n))


@pytest.fixture(autouse=True)
def settings_are_put_back() -> Iterator[None]:
    yield
    begin_anew()


def run(number: int, loader_class: Any) -> tuple[Any, list[Any]]:
    """What samplers were asked, and what the loop saw."""
    with warnings.catch_warnings():  # (samples set filters)
        program = Program(number, loader_class)
        seen = list(program.run())
    return (program.log, [re.sub(r" at 0x\w+", "", told) for told in program.told]), seen


@pytest.mark.parametrize("number", range(depth(25, 300)))
def test_a_program_sees_what_it_sees_with_torch(number: int) -> None:
    (theirs, expected), (ours, found) = run(number, TorchLoader), run(number, DataLoader)
    for place, (one, other) in enumerate(zip(found, expected, strict=False)):
        assert one == other, (place, theirs)
    assert len(found) == len(expected)
    assert ours == theirs


def test_programs_are_made_of_many_kinds() -> None:
    assert len(DATASETS) >= 60
