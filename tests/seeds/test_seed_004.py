"""Seed 004: the quick start of SwiftLoader as written, and every argument in its list."""

import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import SwiftLoader

pytestmark = pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")


class Dataset:
    """A user's dataset: it has __getitem__ and __len__."""

    def __init__(self, size: int = 64) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        return np.full((3, 8, 8), index, np.uint8), index


dataset_kwargs = {"size": 64}


def collate(samples: list[Any]) -> dict[str, Any]:
    return {"images": np.stack([image for image, _ in samples]), "labels": [label for _, label in samples]}


def squeeze(batch: Any) -> bytes:
    return zlib.compress(pickle.dumps(batch))


def unsqueeze(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))


def labels(loader: SwiftLoader, consumer_index: int = 0, **start: Any) -> list[int]:
    loader.start(consumer_index, **start)
    with loader:
        return [int(label) for _, batch in loader for label in batch]


def quick_start(nb_gpu: int, **kwargs: Any) -> SwiftLoader:
    loader = SwiftLoader(
        dataset_class=Dataset,
        dataset_kwargs=dataset_kwargs,  # keyword-arguments for dataset construction,
        batch_size=32,  # integer defining batch size
        nb_consumer=nb_gpu,  # should be the number of GPUs used for training
        worker_per_consumer=4,  # number of child processes that loads & batch data for a consumer (a GPU)
        shuffle=True,
        **kwargs,
    )
    return loader


def test_the_quick_start_works_as_written() -> None:
    with quick_start(1) as loader:
        loader.start(0)
        assert len(loader) == 4
        for _ in range(2):
            seen = [label for images, batch in loader for label in batch.tolist() if images.shape[1:] == (3, 8, 8)]
            assert sorted(seen) == list(range(64))
            assert seen != list(range(64))


def test_each_of_four_gpus_gets_a_quarter() -> None:
    shares = [labels(quick_start(4), gpu) for gpu in range(4)]
    assert [len(share) for share in shares] == [16] * 4
    assert sorted(i for share in shares for i in share) == list(range(64))


def test_a_device_moves_every_array() -> None:
    torch = pytest.importorskip("torch")
    with quick_start(1) as loader:
        loader.start(consumer_index=0, device=torch.device("cpu"), to_device=None)
        for images, batch in loader:
            assert isinstance(images, torch.Tensor)
            assert isinstance(batch, torch.Tensor)


def test_a_function_may_move_the_batch() -> None:
    with quick_start(1) as loader:
        loader.start(0, device="npu:0", to_device=lambda batch, device: (device, batch[1].tolist()))
        assert sorted(i for _, batch in loader for i in batch) == list(range(64))
        assert {device for device, _ in [next(loader), next(loader)]} == {"npu:0"}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"seed_numer": 5},
        {"data_queue_size": 3},
        {"message_queue_size": 2},
        {"batch_encoder": squeeze, "batch_decoder": unsqueeze},
        {"nearby_shuffle": 7},
        {"benchmark": False},
        {"validate": False},
        {"multithread": False},
        {"max_nb_batch_on_device": 3},
        {"max_buffer_size": 4},
    ],
    ids=lambda kwargs: next(iter(kwargs)),
)
def test_every_argument_of_the_list_is_taken(kwargs: dict[str, Any]) -> None:
    loader = quick_start(1, **kwargs)
    assert sorted(labels(loader)) == list(range(64))
    shown = loader.stats().arguments
    for name, value in kwargs.items():
        assert shown[{"seed_numer": "seed"}.get(name, name)] == value


def test_collate_fn_makes_the_batch() -> None:
    with quick_start(1, collate_fn=collate) as loader:
        loader.start(0)
        assert {tuple(batch) for batch in loader} == {("images", "labels")}


@pytest.mark.parametrize("as_dict", [False, True])
def test_logger_takes_a_prefix_or_a_dict(tmp_path: Path, as_dict: bool) -> None:
    prefix = str(tmp_path / "log")
    labels(quick_start(1, logger={"path": prefix, "stdout": False, "level": "INFO"} if as_dict else prefix))
    lines = [json.loads(line) for line in (tmp_path / "log_Worker-3-child.json").read_text().splitlines()]
    assert lines[0]["event"] == "dataset"
    assert any(line["event"] == "batch" for line in lines) == (not as_dict)


def test_benchmark_results_are_written_to_the_benchmark_file(tmp_path: Path) -> None:
    file = tmp_path / "benchmark"
    labels(quick_start(1, benchmark=True, benchmark_file=str(file), data_queue_size=1))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {"collect batch data", "collate batch data", "injection"} <= {line["benchmark_task"] for line in lines}
    assert {line["unit"] for line in lines} == {"batches/s"}
