"""A corpus of DataLoaders, each as a function of the class: what it yields must not depend on whose class it is."""

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from tests.doors import torch_datasets as data

Config = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """What came, with its types, comparable by `==`."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), tuple(value.shape), value.tolist())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, dict):
        return (type(value).__name__, {k: plain(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return (type(value).__name__, [plain(v) for v in value])
    return (type(value).__name__, value)


def story(make: Config, loader_class: Any, epochs: int) -> dict[str, Any]:
    """Everything that epochs of a loader let one see: batches, errors, warnings, length, generators."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    told: dict[str, Any] = {"epochs": []}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loader = make(loader_class)
        for _ in range(epochs):
            told["epochs"].append(list(events(loader)))
            told.setdefault("drawn", []).append(int(torch.empty((), dtype=torch.int64).random_()))
        try:
            told["len"] = len(loader)
        except TypeError as error:
            told["len"] = str(error)
        if loader.generator is not None:
            told["generator"] = loader.generator.get_state().tolist()
    told["warnings"] = [str(w.message) for w in warned if issubclass(w.category, UserWarning)]
    return told


def events(loader: Any) -> Iterator[Any]:
    it = iter(loader)
    for _ in range(200):
        try:
            yield plain(next(it))
        except StopIteration:
            return
        except Exception as error:
            yield type(error).__name__
    raise AssertionError("the loader does not end")


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def only_tensors(n: int) -> TensorDataset:
    return TensorDataset(torch.arange(n), torch.arange(n, 2 * n).float())


def init_seeds(worker: int) -> None:
    torch.manual_seed(100 + worker)


CORPUS: dict[str, Config] = {}


def add(name: str, make: Config) -> None:
    assert name not in CORPUS, name
    CORPUS[name] = make


for w in range(4):
    add(f"map, workers={w}", lambda D, w=w: D(data.Told(10), batch_size=3, num_workers=w))
    add(f"map shuffled, workers={w}", lambda D, w=w: D(data.Told(10), batch_size=4, shuffle=True, num_workers=w))
    add(
        f"map shuffled by a generator, workers={w}",
        lambda D, w=w: D(data.Told(9), batch_size=2, shuffle=True, num_workers=w, generator=seeded()),
    )
    add(
        f"map, drop_last, generator only for seeds, workers={w}",
        lambda D, w=w: D(data.Told(11), batch_size=4, drop_last=True, num_workers=w, generator=seeded()),
    )
    add(f"map, batch_size=None, workers={w}", lambda D, w=w: D(data.Tree(), batch_size=None, num_workers=w))
    add(f"map, batches of one, workers={w}", lambda D, w=w: D(data.Told(5), num_workers=w, shuffle=True))
    add(f"iterable, workers={w}", lambda D, w=w: D(data.Stream(5, 3, 4), batch_size=2, num_workers=w))
    add(
        f"iterable, drop_last, workers={w}",
        lambda D, w=w: D(data.Stream(5, 3, 4), batch_size=2, drop_last=True, num_workers=w, generator=seeded()),
    )
    add(
        f"iterable, batch_size=None, workers={w}",
        lambda D, w=w: D(data.Stream(1, 3, 2), batch_size=None, num_workers=w),
    )
for w in (1, 2, 3):
    add(
        f"map, persistent, workers={w}",
        lambda D, w=w: D(data.Told(10), batch_size=3, shuffle=True, num_workers=w, persistent_workers=True),
    )
    add(
        f"iterable, persistent, workers={w}",
        lambda D, w=w: D(data.Stream(5, 3, 4), batch_size=2, num_workers=w, persistent_workers=True),
    )
    add(
        f"map, worker_init_fn of the dataset's own, workers={w}",
        lambda D, w=w: _with_own_init(D, data.Told(8), "move", w),
    )
    add(f"iterable, worker_init_fn cuts it, workers={w}", lambda D, w=w: _with_own_init(D, data.Span(3, 33), "cut", w))


def _with_own_init(D: Any, dataset: Any, method: str, workers: int) -> Any:
    return D(dataset, batch_size=4, num_workers=workers, worker_init_fn=getattr(dataset, method))


for w in (0, 2):
    add(
        f"sampler with replacement, workers={w}",
        lambda D, w=w: D(data.Told(9), 4, sampler=RandomSampler(range(9), True, 70), num_workers=w),
    )
    add(
        f"sampler of more than there are, workers={w}",
        lambda D, w=w: D(
            data.Told(5), 3, num_workers=w, sampler=RandomSampler(range(5), num_samples=12, generator=seeded(1))
        ),
    )
    add(
        f"sampler of a subset, workers={w}",
        lambda D, w=w: D(data.Told(9), 2, sampler=SubsetRandomSampler([1, 3, 5, 7, 8]), num_workers=w),
    )
    add(
        f"sampler by weight, workers={w}",
        lambda D, w=w: D(data.Told(4), 3, sampler=WeightedRandomSampler([1.0, 0.0, 2.0, 5.0], 11), num_workers=w),
    )
    add(
        f"sampler for ranks, workers={w}",
        lambda D, w=w: D(data.Told(10), 3, sampler=DistributedSampler(range(10), 3, 1, seed=5), num_workers=w),
    )
    add(f"sampler that is a list, workers={w}", lambda D, w=w: D(data.Told(9), 2, sampler=[4, 4, 0], num_workers=w))
    add(
        f"sampler of one's own, workers={w}",
        lambda D, w=w: D(data.Told(6), 4, sampler=data.Backwards(6), num_workers=w),
    )
    add(
        f"sampler that draws at once, workers={w}",
        lambda D, w=w: D(data.Told(6), 4, sampler=data.Eager(6), num_workers=w),
    )
    add(
        f"sampler that draws at once, no batches, workers={w}",
        lambda D, w=w: D(data.Told(6), batch_size=None, sampler=data.Eager(6), num_workers=w),
    )
    add(
        f"sampler that draws bit by bit, workers={w}",
        lambda D, w=w: D(data.Told(6), 4, sampler=data.Lazy(6), num_workers=w),
    )
    add(
        f"batch sampler of torch's, workers={w}",
        lambda D, w=w: D(
            data.Told(9), num_workers=w, batch_sampler=BatchSampler(RandomSampler(range(9)), 4, drop_last=True)
        ),
    )
    add(
        f"batch sampler that is a list, workers={w}",
        lambda D, w=w: D(data.Told(9), batch_sampler=[[1, 2], [0]], num_workers=w),
    )
    add(
        f"batch sampler of tuples, workers={w}",
        lambda D, w=w: D(data.ByBatch(8), batch_sampler=data.Pairs(8), num_workers=w),
    )
    add(f"__getitems__, workers={w}", lambda D, w=w: D(data.ByBatch(7), 3, shuffle=True, num_workers=w))
    add(
        f"__getitems__ is not for single samples, workers={w}",
        lambda D, w=w: D(data.ByBatch(3), batch_size=None, num_workers=w),
    )
    add(f"many forms in one sample, workers={w}", lambda D, w=w: D(data.Tree(), batch_size=3, num_workers=w))
    add(f"collate_fn, workers={w}", lambda D, w=w: D(data.Tree(), 3, collate_fn=data.second_to_front, num_workers=w))
    add(f"collate_fn to text, workers={w}", lambda D, w=w: D(data.Told(5), 2, collate_fn=data.joined, num_workers=w))
    add(
        f"collate_fn without batches, workers={w}",
        lambda D, w=w: D([1, 2], batch_size=None, collate_fn=str, num_workers=w),
    )
    add(f"TensorDataset, workers={w}", lambda D, w=w: D(only_tensors(9), 4, shuffle=True, num_workers=w))
    add(f"ConcatDataset, workers={w}", lambda D, w=w: D(ConcatDataset([range(3), range(10, 14)]), 3, num_workers=w))
    add(f"StackDataset, workers={w}", lambda D, w=w: D(StackDataset(a=only_tensors(6), b=range(6)), 4, num_workers=w))
    add(f"Subset, workers={w}", lambda D, w=w: D(Subset(range(20), [3, 5, 7, 11]), 3, num_workers=w))
    add(
        f"ChainDataset, workers={w}",
        lambda D, w=w: D(ChainDataset([data.Stream(2, 3), data.Stream(4)]), 3, num_workers=w),
    )
    add(
        f"a dict by its keys, workers={w}",
        lambda D, w=w: D({"a": 1, "b": 2, "c": 3}, 2, sampler=["c", "a"], num_workers=w),
    )
    add(f"a list of text, workers={w}", lambda D, w=w: D(["x", "y", "z"], batch_size=2, num_workers=w))
    add(f"an array, workers={w}", lambda D, w=w: D(np.arange(12.0).reshape(6, 2), 4, num_workers=w))
    add(f"a tensor, no batches, workers={w}", lambda D, w=w: D(torch.arange(4), batch_size=None, num_workers=w))
    add(f"errors of samples, workers={w}", lambda D, w=w: D(data.Ends([2, 3, 8]), batch_size=2, num_workers=w))
    add(
        f"errors without batches, workers={w}",
        lambda D, w=w: D(data.Ends([0, 9], KeyError), batch_size=None, num_workers=w),
    )
    add(f"samples that do not collate, workers={w}", lambda D, w=w: D([1, None, 3], batch_size=1, num_workers=w))
    add(
        f"errors of a stream that goes on, workers={w}",
        lambda D, w=w: D(data.Breaks(9, [3, 7]), batch_size=2, num_workers=w),
    )
    add(
        f"errors of single samples of a stream, workers={w}",
        lambda D, w=w: D(data.Breaks(5, [0]), batch_size=None, num_workers=w),
    )
    add(f"empty, workers={w}", lambda D, w=w: D([], batch_size=2, num_workers=w))
    add(f"an empty stream, workers={w}", lambda D, w=w: D(data.Stream(0), batch_size=2, num_workers=w))
add("prefetch_factor=1", lambda D: D(data.Told(10), batch_size=2, shuffle=True, num_workers=2, prefetch_factor=1))
add(
    "prefetch_factor=5, drawn bit by bit",
    lambda D: D(data.Told(9), 2, num_workers=2, prefetch_factor=5, sampler=data.Lazy(9)),
)
add("worker_init_fn seeds", lambda D: D(data.Told(8), batch_size=2, num_workers=2, worker_init_fn=init_seeds))
add("timeout", lambda D: D(data.Told(6), batch_size=2, num_workers=2, timeout=30))
add("any order, one worker", lambda D: D(data.Told(9), batch_size=2, num_workers=1, in_order=False))
add("pin_memory without an accelerator", lambda D: D(only_tensors(4), batch_size=2, pin_memory=True))
add("fork by name", lambda D: D(data.Told(4), 2, num_workers=2, multiprocessing_context="fork"))
add("sequential, explicitly", lambda D: D(data.Told(4), 2, sampler=SequentialSampler(range(3)), num_workers=1))


def _fewer() -> list[str]:
    """Each program without workers and with one number of them: each number's turn comes."""
    numbers: dict[str, list[str]] = {}
    for name in CORPUS:
        numbers.setdefault(name.partition(", workers=")[0], []).append(name)
    fewer = []
    for turn, names in enumerate(numbers.values()):
        alone = [name for name in names if name.endswith("=0")]
        others = [name for name in names if name not in alone]
        fewer += [*alone, others[turn % len(others)]]
    return fewer


FEWER = _fewer()
"""Those of the reduced run."""
