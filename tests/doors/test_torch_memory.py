"""Whatever a dataset, a transform, a collate function or a sampler remembers, batches are torch's, bit for bit.

torch runs the same program in the same test. Other samples are slow in each run, so a batch that is made by the worker
that is free, instead of the one that torch would ask, shows here; so does a batch that is made ahead in a worker that
stays, of an epoch that was left.
"""

import zlib
from typing import Any

import pytest
import torch

from headrace.doors.torch.loader import DataLoader, TorchLoader
from headrace.errors import SnapshotRefused
from tests.depth import depth
from tests.doors.torch_memory import KINDS, NoState, NoStreamState, OddState, OddStreamState, story

HOW = ((0, False), (1, False), (2, False), (3, False), (1, True), (2, True), (3, True))
"""Numbers of workers, and whether they stay."""
ALL = [(name, *how) for name, one in KINDS.items() for how in HOW if how[0] in one.workers]


def reduced() -> list[tuple[str, int, bool]]:
    """Each kind once, each way to run it with every seventh kind."""
    return [
        next((name, *how) for how in HOW[place % len(HOW) :] + HOW if how[0] in one.workers)
        for place, (name, one) in enumerate(KINDS.items())
    ]


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 40
    assert {(workers, stay) for _, workers, stay in reduced()} == {*HOW}


@pytest.fixture(autouse=True)
def settings_are_put_back() -> object:
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("name", "workers", "stay"), depth(reduced(), ALL))
def test_what_is_remembered_is_as_with_torch(name: str, workers: int, stay: bool) -> None:
    stop = 2 + zlib.crc32(f"{name} {workers} {stay}".encode()) % 5
    make = KINDS[name].make
    theirs = story(make, TorchLoader, stop, num_workers=workers, persistent_workers=stay)
    ours = story(make, DataLoader, stop, num_workers=workers, persistent_workers=stay)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [NoState, OddState, NoStreamState, OddStreamState])
def test_a_state_that_cannot_be_told_is_refused_when_it_is_asked_for(dataset: Any, workers: int) -> None:
    loader = DataLoader(dataset(), num_workers=workers)
    batches = iter(loader)
    next(batches)
    with pytest.raises(SnapshotRefused, match=r"state_dict|a snapshot holds|not JSON"):
        loader.state_dict()
    next(batches)
