"""Law 5: a view stays valid as long as it lives; a released slot is used again."""

import gc
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.engine.policy import STRETCH
from tests.depth import depth


class Arrays:
    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> np.ndarray:
        return np.full(self.size, i, np.int64)


def test_held_batches_are_never_overwritten() -> None:
    with Loader(
        Pipe.of(Arrays(200, 5000)).batch(2).collate(), workers=2, memory=1 << 20, start_method="fork"
    ) as loader:
        held = list(loader)
        assert loader.stats().copies > 0
    for i, batch in enumerate(held):
        assert (batch == np.array([[2 * i], [2 * i + 1]])).all()


@settings(max_examples=depth(15, 200))
@given(st.lists(st.integers(0, 3), min_size=30, max_size=60), st.sampled_from([1 << 19, 1 << 22, 1 << 28]))
def test_slices_keep_their_values_whatever_is_dropped(choices: list[int], memory: int) -> None:
    kept: list[tuple[int, Any]] = []
    with Loader(
        Pipe.of(Arrays(len(choices), 4000)).batch(1).collate(), workers=2, memory=memory, start_method="fork"
    ) as loader:
        for i, (batch, choice) in enumerate(zip(loader, choices, strict=True)):
            if choice == 1:
                kept.append((i, batch[0, 5:9]))
            elif choice == 2:
                kept.append((i, batch.reshape(-1)[::7].T))
            elif choice == 3 and kept:
                kept.pop(0)
            del batch
            assert all((view == number).all() for number, view in kept)
    assert all((view == number).all() for number, view in kept)


def test_released_slots_are_used_again() -> None:
    with Loader(Pipe.of(Arrays(400, 20_000)).batch(1).collate(), workers=2, start_method="fork") as loader:
        for batch in loader:
            del batch
        for batch in loader:
            del batch
        gc.collect()
        window = 2 * 2 * STRETCH  # these tickets are short
        assert loader.stats().slots <= 2 * window
        assert loader.stats().copies == 0


def test_batches_are_writable_and_private() -> None:
    with Loader(Pipe.of(Arrays(20, 5000)).batch(2).collate(), workers=1, start_method="fork") as loader:
        for i, batch in enumerate(loader):
            assert (batch[0] == 2 * i).all()
            batch += 1000


def test_a_tensor_over_a_slot_keeps_it() -> None:
    import torch

    def tensor(x: np.ndarray) -> Any:
        return torch.from_numpy(x)

    with Loader(Pipe.of(Arrays(50, 5000)).map(tensor).batch(1).collate(), workers=2, start_method="fork") as loader:
        kept = [batch[0, 10:20] for batch in loader]
    assert all((view == i).all() for i, view in enumerate(kept))


def test_samples_that_a_worker_keeps_for_itself_stay_as_they_were() -> None:
    def keep(samples: Any) -> bool:
        stash = keep.__dict__.setdefault("stash", [])
        stash.append((int(samples[0]), samples))
        return all((array == number).all() for number, array in stash)

    pipe = Pipe.of(Arrays(60, 4000)).filter(lambda a: a[0] % 2 == 0).batch(1).map(lambda b: b[0]).map(keep)
    with Loader(pipe, workers=1, memory=1 << 20, start_method="fork") as loader:
        assert all(loader)
