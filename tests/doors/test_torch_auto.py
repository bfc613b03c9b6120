"""`num_workers="auto"`: the number of workers is found over epochs; the batches are the same."""

import time
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from headrace import DataLoader


class Sleepy(Dataset[int]):
    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> int:
        time.sleep(0.001)
        return index


@pytest.mark.parametrize("persistent", [False, True])
def test_each_epoch_is_whole_and_in_order_while_numbers_are_tried(persistent: bool) -> None:
    loader: Any = DataLoader(Sleepy(), 4, num_workers="auto", persistent_workers=persistent)
    numbers = []
    for _ in range(8):
        assert torch.cat(list(loader)).tolist() == list(range(240))
        numbers.append(loader.num_workers)
        if loader._tuner.settled:
            break
    assert len(loader._tuner.rates) >= 2
    assert loader._tuner.settled
    assert numbers[-1] in loader._tuner.rates


def test_it_may_be_given_by_position() -> None:
    loader: Any = DataLoader(Sleepy(), 4, None, None, None, "auto")
    assert loader.num_workers >= 1
    assert len(loader) == 60
