"""Datasets and samplers that tell what happened: who made a sample, and which random values were drawn for it."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info


def witness() -> tuple[int, int, int, float, float, float]:
    """The worker at work, and one value of each global generator."""
    info = get_worker_info()
    who = (-1, 0, 0) if info is None else (info.id, info.num_workers, info.seed)
    return (*who, random.random(), float(np.random.rand()), float(torch.rand(())))


class Told(Dataset[Any]):
    """Map-style: the index and a witness."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.offset = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return index + self.offset, *witness()

    def move(self, worker: int) -> None:
        self.offset = 1000 * (worker + 1)


class ByBatch(Told):
    """Fetches whole batches."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [(i, type(indices).__name__, *witness()) for i in indices]


class Tree(Dataset[Any]):
    """Samples of many forms in one."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        return {
            "number": index,
            "text": f"sample {index}",
            "array": np.full((2, 3), index, np.float32),
            "tensor": torch.arange(index, index + 4),
            "large": torch.full((40, 50), float(index)),
            "pair": (index / 2, [np.int16(index), bool(index % 2)]),
        }


class Ends(Dataset[Any]):
    """Fails at some indices."""

    def __init__(self, bad: Sequence[int], error: type[Exception] = ValueError) -> None:
        self.bad = bad
        self.error = error

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise self.error(f"bad sample {index}")
        return index


class Stream(IterableDataset[Any]):
    """Iterable-style: worker k yields `sizes[k]` samples, with a witness each."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        for number in range(self.sizes[worker % len(self.sizes)]):
            yield worker, number, *witness()


class Span(IterableDataset[int]):
    """Iterable-style, with a length; `worker_init_fn` may change it. Every worker reads all of it."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))

    def __len__(self) -> int:
        return self.end - self.start

    def cut(self, worker: int) -> None:
        """As a `worker_init_fn` it acts on the worker's own copy."""
        info = get_worker_info()
        assert info is not None
        size = (self.end - self.start) // info.num_workers
        self.start += worker * size
        self.end = self.start + size


class Breaks(IterableDataset[int]):
    """An iterator object that fails at some numbers and can go on."""

    def __init__(self, count: int, bad: Sequence[int]) -> None:
        self.count = count
        self.bad = bad

    def __iter__(self) -> Iterator[int]:
        return BreaksIterator(self.count, self.bad)


class BreaksIterator(Iterator[int]):
    def __init__(self, count: int, bad: Sequence[int]) -> None:
        self.number = -1
        self.count = count
        self.bad = bad

    def __next__(self) -> int:
        self.number += 1
        if self.number >= self.count:
            raise StopIteration
        if self.number in self.bad:
            raise KeyError(self.number)
        return self.number


class Kept(IterableDataset[int]):
    """Iterable-style with a state of its own; counts how many samples were really read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        while self.at < self.count:
            self.at += 1
            yield 1000 * worker + self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Backwards(Sampler[int]):
    """A sampler of one's own, without anything random."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length - 1, -1, -1))

    def __len__(self) -> int:
        return self.length


class Eager(Sampler[int]):
    """Draws from the global generators when it is iterated, and counts how often that is."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.iterated = 0

    def __iter__(self) -> Iterator[int]:
        self.iterated += 1
        indices = torch.randperm(self.length).tolist()
        random.shuffle(indices)
        np.random.shuffle(indices)
        return iter(indices)

    def __len__(self) -> int:
        return self.length


class Lazy(Eager):
    """Draws one index at a time."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.length):
            yield int(torch.randint(self.length, ())) // 2 + random.randrange(self.length) // 2


class Pairs:
    """A batch sampler that is only an iterable, of tuples."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        for start in range(0, self.length, 2):
            yield (start, start + 1, start)

    def __len__(self) -> int:
        return self.length // 2


class Resumable(Sampler[int]):
    """A sampler with a state of its own: which turn it is."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.turn = 0

    def __iter__(self) -> Iterator[int]:
        turn, self.turn = self.turn, self.turn + 1
        return iter(torch.randperm(self.length, generator=torch.Generator().manual_seed(turn)).tolist())

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, Any]:
        return {"turn": self.turn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.turn = state["turn"]


def joined(samples: list[Any]) -> str:
    return "|".join(map(str, samples))


def second_to_front(samples: list[Any]) -> Any:
    return samples[::-1], len(samples)


class Reads:
    """A sampler that gives what another one gives, kept under this name."""

    def __init__(self, **inner: Any) -> None:
        vars(self).update(inner)

    def __iter__(self) -> Any:
        (inner,) = vars(self).values()
        yield from inner


class Draws:
    """A sampler with a generator of its own."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        for _ in range(9):
            yield self.draw() % 9

    def draw(self) -> int:
        source = self.source
        if isinstance(source, torch.Generator):
            return int(torch.randint(1000, (), generator=source))
        raw = getattr(source, "random_raw", None)
        return int(raw() if raw is not None else 1000 * source.random())

    def __len__(self) -> int:
        return 9
