"""A worker that is killed: every batch arrives, in the same order, and one warning says what may differ."""

import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, RandomSampler, get_worker_info

from headrace.doors.torch.loader import DataLoader
from headrace.errors import PoisonSample
from tests.depth import depth
from tests.doors.torch_corpus import plain, seeded

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def die_once(mark: Path) -> None:
    """Kill this very process, the first time."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Dataset[Any]):
    """Map-style: reading index 5 is deadly, once."""

    def __init__(self, mark: Path, drawn: bool = False) -> None:
        self.mark = mark
        self.drawn = drawn

    def __len__(self) -> int:
        return 17

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            die_once(self.mark)
        return (index, random.random(), float(torch.rand(()))) if self.drawn else index


class DeadlyBatch(Deadly):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[i] for i in indices]


class DeadlyStream(IterableDataset[Any]):
    """Iterable-style: the sixth sample of worker 0 is deadly, once."""

    def __init__(self, mark: Path, drawn: bool = False) -> None:
        self.mark = mark
        self.drawn = drawn

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        for number in range(11 - 2 * worker):
            if (worker, number) == (0, 5):
                die_once(self.mark)
            yield (worker, number, random.random()) if self.drawn else (worker, number)


class DeadlyState(DeadlyStream):
    """With a state of its own."""

    def __init__(self, mark: Path) -> None:
        super().__init__(mark)
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < 11:
            if self.at == 5:
                die_once(self.mark)
            self.at += 1
            yield self.at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


Make = Callable[[Path], Any]
CONFIGS: dict[str, Make] = {
    "one worker": lambda m: DataLoader(Deadly(m), 2, num_workers=1),
    "two workers": lambda m: DataLoader(Deadly(m), 2, num_workers=2),
    "three workers": lambda m: DataLoader(Deadly(m), 2, num_workers=3),
    "shuffled": lambda m: DataLoader(Deadly(m), 3, shuffle=True, num_workers=2, generator=seeded()),
    "one by one": lambda m: DataLoader(Deadly(m), batch_size=None, num_workers=2),
    "drop_last": lambda m: DataLoader(Deadly(m), 4, drop_last=True, num_workers=2),
    "persistent": lambda m: DataLoader(Deadly(m), 2, num_workers=2, persistent_workers=True),
    "deep prefetch": lambda m: DataLoader(Deadly(m), 2, num_workers=2, prefetch_factor=6),
    "no prefetch": lambda m: DataLoader(Deadly(m), 2, num_workers=2, prefetch_factor=1),
    "whole batches": lambda m: DataLoader(DeadlyBatch(m), 3, num_workers=2),
    "with replacement": lambda m: DataLoader(
        Deadly(m), 3, sampler=RandomSampler(range(17), True, 40, seeded()), num_workers=2
    ),
    "batch sampler": lambda m: DataLoader(Deadly(m), batch_sampler=[[1], [5, 2], [3], [5]], num_workers=2),
    "timeout": lambda m: DataLoader(Deadly(m), 2, num_workers=2, timeout=40),
    "new interpreters": lambda m: DataLoader(Deadly(m), 2, num_workers=2, multiprocessing_context="spawn"),
    "reproducible, with random values": lambda m: DataLoader(
        Deadly(m, drawn=True), 2, num_workers=2, reproducible=True, generator=seeded()
    ),
    "stream, one worker": lambda m: DataLoader(DeadlyStream(m), 2, num_workers=1),
    "stream, three workers": lambda m: DataLoader(DeadlyStream(m), 2, num_workers=3),
    "stream, one by one": lambda m: DataLoader(DeadlyStream(m), batch_size=None, num_workers=2),
    "stream, drop_last, persistent": lambda m: DataLoader(
        DeadlyStream(m), 3, drop_last=True, num_workers=2, persistent_workers=True
    ),
    "stream, random values": lambda m: DataLoader(DeadlyStream(m, drawn=True), 2, num_workers=2, generator=seeded()),
    "stream with a state": lambda m: DataLoader(DeadlyState(m), 2, num_workers=1),
    "stream, shuffled": lambda m: DataLoader(DeadlyStream(m), 2, num_workers=2, shuffle_window=4, generator=seeded()),
    "stream, divided": lambda m: DataLoader(DeadlyStream(m), 2, num_workers=3, shard="auto"),
    "stream, new interpreters": lambda m: DataLoader(
        DeadlyStream(m), 2, num_workers=2, multiprocessing_context="forkserver"
    ),
}


def epochs(loader: Any, count: int) -> tuple[list[Any], list[str]]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        got = [[plain(batch) for batch in loader] for _ in range(count)]
    return got, [str(w.message) for w in warned if issubclass(w.category, RuntimeWarning)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_batch_arrives_in_order(name: str, tmp_path: Path) -> None:
    (tmp_path / "spared").touch()
    count = depth(2 if "persistent" in name else 1, 2)
    whole, warned = epochs(CONFIGS[name](tmp_path / "spared"), count)
    assert not warned
    got, warned = epochs(CONFIGS[name](tmp_path / "killed"), count)
    assert (tmp_path / "killed").exists()
    assert got == whole
    if "reproducible" in name:
        assert not warned
    else:
        assert len(warned) == 1
        assert "was killed by SIGKILL and was replaced; all batches arrive, in order" in warned[0]


def test_the_configurations_are_many() -> None:
    assert len(CONFIGS) >= 20


def test_any_order_loses_nothing_either(tmp_path: Path) -> None:
    got, _ = epochs(DataLoader(Deadly(tmp_path / "killed"), batch_size=None, num_workers=2, in_order=False), 1)
    assert sorted(got[0]) == [("int", i) for i in range(17)]


class Always(Dataset[int]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.filterwarnings("ignore:a worker of this DataLoader:RuntimeWarning")
def test_a_sample_that_kills_every_worker_is_named() -> None:
    loader = DataLoader(Always(), num_workers=1)
    with pytest.raises(PoisonSample, match=r"the sample at position 3 .* its worker twice"):
        list(loader)


class DeadlyCount(Deadly):
    """Has a state in each worker."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


def test_the_warning_says_that_the_state_of_a_dataset_is_lost_with_its_worker(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="what its copy of DeadlyCount had in its state is lost"):
        assert [int(n) for b in DataLoader(DeadlyCount(tmp_path / "mark"), 2, num_workers=2) for n in b] == [*range(17)]
