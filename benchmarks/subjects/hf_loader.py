"""HF datasets: an Arrow table in torch's DataLoader, and streaming mode with a shuffle buffer over files."""

# mypy: disable-error-code="import-not-found, import-untyped"

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import datasets
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from benchmarks.case import Dataset, Epochs, Start
from benchmarks.stored import Files, Storage
from benchmarks.subjects.torch_loader import METHOD, Running
from benchmarks.tarfiles import Decode, FromDict
from benchmarks.text import Encode, Joined

datasets.disable_progress_bars()


class Samples:
    """A table's rows made samples again, many at once."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __call__(self, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        return {"sample": [self.storage.sample(row) for row in rows]}


def of_samples(rows: list[dict[str, Any]]) -> Any:
    from torch.utils.data import default_collate

    return default_collate([row["sample"] for row in rows])


def write(folder: str, storage: Storage) -> None:
    columns: dict[str, list[Any]] = {name: [] for name in storage.fields(0)}
    for index in range(len(storage)):
        for name, value in storage.fields(index).items():
            columns[name].append(value)
    datasets.Dataset.from_dict(columns).save_to_disk(folder)


class HuggingFace:
    def __init__(self) -> None:
        self.files = Files(write)

    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        folder, storage = self.files.of(dataset)
        data = datasets.load_from_disk(folder).with_transform(Samples(storage))
        options: dict[str, Any] = {}
        if workers:
            options = {
                "num_workers": workers,
                "multiprocessing_context": METHOD[start],
                "persistent_workers": True,
            }
        return closing(Running(DataLoader(data, batch_size=size, collate_fn=of_samples, **options)))

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        import pyarrow

        frame = datasets.Dataset(datasets.table.InMemoryTable(pyarrow.table(data))).with_format("torch")
        loader: DataLoader[Any] = DataLoader(
            frame,
            batch_size=None,
            sampler=BatchSampler(RandomSampler(frame), size, drop_last=False),
            num_workers=workers,
            multiprocessing_context=METHOD[start],
            persistent_workers=True,
        )
        return closing(Running(loader))

    def packed(
        self, sources: Any, weights: Any, tokenizer: Any, *, length: int, size: int, workers: int, how: str = "split"
    ) -> AbstractContextManager[Epochs]:
        parts = [datasets.Dataset.from_dict({"text": texts}) for texts in sources]
        if weights is None:
            data = parts[0].to_iterable_dataset(num_shards=max(1, workers))
        else:
            shuffled = [part.shuffle(seed=1).to_iterable_dataset(num_shards=max(1, workers)) for part in parts]
            shares = [weight / sum(weights) for weight in weights]
            data = datasets.interleave_datasets(shuffled, probabilities=shares, seed=1)
        data = data.map(Encode(tokenizer).many, batched=True, remove_columns=["text"])
        data = data.map(Joined(length), batched=True).with_format("torch")
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if workers else {}
        return closing(Running(DataLoader(data, batch_size=size, **options)))

    @contextmanager
    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> Iterator[Any]:
        with tempfile.TemporaryDirectory(prefix="headrace-hf-") as cache:
            data = datasets.load_dataset("parquet", data_files=paths, split="train", streaming=True, cache_dir=cache)
            yield data.shuffle(seed=1, buffer_size=max(rows, size)).with_format("numpy").iter(batch_size=size)

    @contextmanager
    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Iterator[Any]:
        with tempfile.TemporaryDirectory(prefix="headrace-hf-") as cache:
            data = datasets.load_dataset(
                "webdataset", data_files={"train": list(paths)}, split="train", streaming=True, cache_dir=cache
            )
            running = Running(
                DataLoader(
                    data.map(Unpacked(decode), remove_columns=list(data.features or ())),
                    batch_size=size,
                    num_workers=workers,
                    persistent_workers=True,
                    collate_fn=of_samples,
                )
            )
            try:
                yield running
            finally:
                running.close()


class Unpacked:
    def __init__(self, decode: Decode) -> None:
        self.decode = FromDict(decode)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"sample": self.decode(row)}


SUBJECT = HuggingFace()
