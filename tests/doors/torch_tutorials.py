"""Programs as torch's own pages and tutorials write them: each gets the class `DataLoader`, and returns what it saw.

They were written from torch's documentation of `torch.utils.data`, its notes on reproducibility, and the tutorials that
are named beside them. Whoever calls them gives torch's loader, then ours, and compares.
"""

import collections
import csv
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler

Program = Callable[[Any, Path], object]


def plain(value: Any) -> Any:
    """Batches as something that can be compared: type, shape and numbers."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), tuple(value.shape), value.tolist())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return (type(value).__name__, {k: plain(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return (type(value).__name__, [plain(v) for v in value])
    return value


# --- "Datasets & DataLoaders" -----------------------------------------------------------------------------------------


class CustomImageDataset(Dataset):  # type: ignore[type-arg]
    def __init__(self, annotations_file: Path, img_dir: Path, transform: Any = None, target_transform: Any = None):
        with open(annotations_file) as file:
            self.img_labels = [(row[0], int(row[1])) for row in csv.reader(file)]
        self.img_dir = img_dir
        self.transform = transform
        self.target_transform = target_transform

    def __len__(self) -> int:
        return len(self.img_labels)

    def __getitem__(self, idx: int) -> Any:
        image = torch.from_numpy(np.load(os.path.join(self.img_dir, self.img_labels[idx][0])))
        label = self.img_labels[idx][1]
        if self.transform:
            image = self.transform(image)
        if self.target_transform:
            label = self.target_transform(label)
        return image, label


def to_float(image: torch.Tensor) -> torch.Tensor:
    return image.to(torch.float32) / 255


def one_hot(label: int) -> torch.Tensor:
    return torch.zeros(3).scatter_(0, torch.tensor(label), 1.0)


def data_tutorial(DataLoader: Any, folder: Path) -> object:
    rows = []
    for i in range(22):
        np.save(folder / f"{i}.npy", np.full((1, 4, 4), i, np.uint8))
        rows.append((f"{i}.npy", i % 3))
    with open(folder / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    torch.manual_seed(0)
    training_data = CustomImageDataset(folder / "labels.csv", folder, to_float)
    train_dataloader = DataLoader(training_data, batch_size=8, shuffle=True)
    train_features, train_labels = next(iter(train_dataloader))
    seen = [plain(train_features), plain(train_labels), len(train_dataloader), train_dataloader.batch_size]
    hot = DataLoader(CustomImageDataset(folder / "labels.csv", folder, None, one_hot), batch_size=8, num_workers=2)
    for _, (X, y) in enumerate(hot):
        seen.append((plain(X), plain(y)))
    return seen


# --- "Writing Custom Datasets, DataLoaders and Transforms" ------------------------------------------------------------


class FaceLandmarks(Dataset):  # type: ignore[type-arg]
    def __init__(self, transform: Any = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 13

    def __getitem__(self, idx: Any) -> Any:
        if torch.is_tensor(idx):
            idx = idx.tolist()
        image = np.arange(64 * 3).reshape(8, 8, 3) + idx
        landmarks = np.array([[idx, idx + 1], [idx + 2, idx + 3]], dtype=float)
        sample = {"image": image, "landmarks": landmarks}
        return self.transform(sample) if self.transform else sample


class RandomCrop:
    def __init__(self, output_size: int) -> None:
        self.output_size = output_size

    def __call__(self, sample: Any) -> Any:
        image, landmarks = sample["image"], sample["landmarks"]
        top, left = torch.randint(0, 8 - self.output_size + 1, (2,))
        image = image[top : top + self.output_size, left : left + self.output_size]
        return {"image": image, "landmarks": landmarks - [left, top]}


class ToTensor:
    def __call__(self, sample: Any) -> Any:
        image = sample["image"].transpose((2, 0, 1))
        return {"image": torch.from_numpy(image.copy()), "landmarks": torch.from_numpy(sample["landmarks"])}


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, sample: Any) -> Any:
        for transform in self.transforms:
            sample = transform(sample)
        return sample


def custom_dataset_tutorial(DataLoader: Any, folder: Path) -> object:
    torch.manual_seed(1)
    dataset = FaceLandmarks(Compose([RandomCrop(5), ToTensor()]))
    seen = []
    for workers in (0, 2):
        dataloader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers)
        for i_batch, sample_batched in enumerate(dataloader):
            seen.append((i_batch, plain(sample_batched)))
            if i_batch == 2:
                break
    return seen


# --- torch.utils.data: iterable-style datasets, both examples of the page ---------------------------------------------


class MyIterableDataset(IterableDataset):  # type: ignore[type-arg]
    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[int]:
        worker_info = get_worker_info()
        if worker_info is None:
            return iter(range(self.start, self.end))
        per_worker = -(-(self.end - self.start) // worker_info.num_workers)
        first = self.start + worker_info.id * per_worker
        return iter(range(first, min(first + per_worker, self.end)))


class Unsplit(MyIterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))


def worker_init_fn(worker_id: int) -> None:
    worker_info = get_worker_info()
    assert worker_info is not None
    dataset: Any = worker_info.dataset
    overall_start, overall_end = dataset.start, dataset.end
    per_worker = -(-(overall_end - overall_start) // worker_info.num_workers)
    dataset.start = overall_start + worker_id * per_worker
    dataset.end = min(dataset.start + per_worker, overall_end)


def iterable_datasets(DataLoader: Any, folder: Path) -> object:
    ds = MyIterableDataset(start=3, end=20)
    seen = [[plain(b) for b in DataLoader(ds, num_workers=n)] for n in (0, 1, 2)]
    seen += [[plain(b) for b in DataLoader(ds, num_workers=2, batch_size=4, drop_last=drop)] for drop in (False, True)]
    ds = Unsplit(start=3, end=11)
    seen += [[plain(b) for b in DataLoader(ds, num_workers=n)] for n in (0, 2)]  # two copies of everything
    seen.append([plain(b) for b in DataLoader(ds, num_workers=2, worker_init_fn=worker_init_fn)])
    chained = ChainDataset([MyIterableDataset(0, 3), MyIterableDataset(10, 14)])
    seen.append([plain(b) for b in DataLoader(chained, batch_size=None)])
    return seen


# --- torch.utils.data: loading order, batching ------------------------------------------------------------------------


class AccedingSequenceLengthBatchSampler(Sampler[list[int]]):
    def __init__(self, data: list[str], batch_size: int) -> None:
        self.data, self.batch_size = data, batch_size

    def __len__(self) -> int:
        return (len(self.data) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        sizes = torch.tensor([len(x) for x in self.data])
        for batch in torch.chunk(torch.argsort(sizes, stable=True), len(self)):
            yield batch.tolist()


def samplers(DataLoader: Any, folder: Path) -> object:
    torch.manual_seed(3)
    dataset = TensorDataset(torch.arange(20), torch.arange(20) * 0.5)
    words = ["a" * (7 * i % 5 + 1) for i in range(11)]
    weights = WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 5, replacement=True)
    train, rest = random_split(dataset, [0.7, 0.3], generator=torch.Generator().manual_seed(42))
    loaders = [
        DataLoader(dataset, batch_size=6, sampler=SubsetRandomSampler(list(range(3, 15)))),
        DataLoader(dataset, sampler=weights, num_workers=2),
        DataLoader(dataset, batch_size=4, sampler=RandomSampler(dataset, num_samples=9, replacement=True)),
        DataLoader(words, batch_sampler=AccedingSequenceLengthBatchSampler(words, 3)),
        DataLoader(words, batch_sampler=BatchSampler(SequentialSampler(words), 4, drop_last=True), num_workers=2),
        DataLoader(ConcatDataset([train, rest]), batch_size=5, shuffle=True, drop_last=True),
        DataLoader(Subset(dataset, [5, 3, 8]), batch_size=2),
        DataLoader(dataset, 4, True, generator=torch.Generator().manual_seed(9)),
    ]
    return [([plain(batch) for batch in loader], len(loader)) for loader in loaders for _ in range(2)]


class Bulk(Dataset):  # type: ignore[type-arg]
    """Reads many samples at once, by a list of indices."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, indices: Any) -> Any:
        return np.array(indices) * 10

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [np.float32(i) for i in indices]


def without_automatic_batching(DataLoader: Any, folder: Path) -> object:
    dataset = Bulk()
    sampler = BatchSampler(SequentialSampler(dataset), batch_size=4, drop_last=False)
    seen = [[plain(b) for b in DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=n)] for n in (0, 2)]
    seen.append([plain(b) for b in DataLoader(dataset, batch_size=4)])  # __getitems__
    seen.append([plain(b) for b in DataLoader([{"a": np.ones(2), "b": "x"}, {"a": 3, "b": None}], batch_size=None)])
    return seen


# --- torch.utils.data: collate functions, pinning, custom batches -----------------------------------------------------

Point = collections.namedtuple("Point", ["x", "y"])


class SimpleCustomBatch:
    def __init__(self, data: Any) -> None:
        transposed_data = list(zip(*data, strict=True))
        self.inp = torch.stack(transposed_data[0], 0)
        self.tgt = torch.stack(transposed_data[1], 0)

    def pin_memory(self) -> "SimpleCustomBatch":
        self.inp = self.inp.pin_memory()
        self.tgt = self.tgt.pin_memory()
        return self


def collate_wrapper(batch: Any) -> SimpleCustomBatch:
    return SimpleCustomBatch(batch)


def pad(batch: Any) -> Any:
    texts, labels = zip(*batch, strict=True)
    lengths = torch.tensor([len(text) for text in texts])
    return pad_sequence(list(texts), batch_first=True, padding_value=-1), lengths, torch.tensor(labels)


def collating(DataLoader: Any, folder: Path) -> object:
    inps = torch.arange(10 * 5, dtype=torch.float32).view(10, 5)
    dataset = TensorDataset(inps, inps + 1)
    custom = DataLoader(dataset, batch_size=4, collate_fn=collate_wrapper, num_workers=2)
    seen: list[Any] = [(type(batch).__name__, plain(batch.inp), plain(batch.tgt)) for batch in custom]
    sentences = [(torch.arange(i % 4 + 1), i) for i in range(9)]
    for workers in (0, 2):
        seen += [plain(batch) for batch in DataLoader(sentences, 3, collate_fn=pad, num_workers=workers)]
    nested = [{"p": Point(i, [i, float(i)]), "s": f"{i}", "b": b"x", "t": (np.int16(i), True)} for i in range(5)]
    for batch in DataLoader(nested, batch_size=2, num_workers=1):  # type: ignore[arg-type]
        seen.append((plain(batch), type(batch["p"]).__name__))
    seen.append(plain(default_collate([{"a": 0, "b": 1}, {"a": 2, "b": 3}])))
    return seen


# --- notes: reproducibility; the quickstart ---------------------------------------------------------------------------


class Noise(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return i, random.random(), np.random.rand(), torch.rand(1)


def seed_worker(worker_id: int) -> None:
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


def reproducibility(DataLoader: Any, folder: Path) -> object:
    g = torch.Generator()
    g.manual_seed(0)
    train_loader = DataLoader(
        Noise(), batch_size=3, shuffle=True, num_workers=2, worker_init_fn=seed_worker, generator=g
    )
    seen = [[plain(batch) for batch in train_loader] for _ in range(2)]
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    seen.append([plain(batch) for batch in DataLoader(Noise(), batch_size=3, shuffle=True)])
    return [*seen, torch.rand(1).item(), random.random()]


def quickstart(DataLoader: Any, folder: Path) -> object:
    torch.manual_seed(0)
    X = torch.randn(60, 8)
    y = (X.sum(1) > 0).long()
    training_data, test_data = TensorDataset(X[:40], y[:40]), TensorDataset(X[40:], y[40:])
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=1e-1)
    train_dataloader = DataLoader(training_data, batch_size=16, shuffle=True, num_workers=1)
    test_dataloader = DataLoader(test_data, batch_size=16)
    printed = []
    for _ in range(2):
        size = len(train_dataloader.dataset)
        model.train()
        for batch, (xs, ys) in enumerate(train_dataloader):
            loss = loss_fn(model(xs), ys)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            printed.append((loss.item(), batch, size))
        model.eval()
        with torch.no_grad():
            printed.append((sum(loss_fn(model(a), b).item() for a, b in test_dataloader), len(test_dataloader), 0))
    return printed


# --- DistributedDataParallel ------------------------------------------------------------------------------------------


def distributed(DataLoader: Any, folder: Path) -> object:
    dataset = TensorDataset(torch.arange(23))
    seen = []
    for rank in range(2):
        sampler: DistributedSampler[Any] = DistributedSampler(dataset, num_replicas=2, rank=rank, shuffle=True)
        loader = DataLoader(dataset, batch_size=4, shuffle=(sampler is None), sampler=sampler, num_workers=1)
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            seen.append([plain(batch) for batch in loader])
    return seen


# --- multi-process loading: workers that stay, what they know, what fails ---------------------------------------------


class Remembers(Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        self.calls += 1
        info = get_worker_info()
        assert info is not None
        return i, self.calls, info.id, info.num_workers, info.dataset is self


class Fails(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> int:
        if i == 5:
            raise KeyError("no sample 5")
        return i


def workers_that_stay(DataLoader: Any, folder: Path) -> object:
    seen: list[Any] = []
    for stay in (False, True):
        loader = DataLoader(Remembers(), batch_size=2, num_workers=2, persistent_workers=stay, prefetch_factor=3)
        seen.append([[plain(batch) for batch in loader] for _ in range(2)])
        seen.append((loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.timeout))
    for options in ({"num_workers": 1}, {}):
        got = []
        try:
            got.extend(map(plain, DataLoader(Fails(), batch_size=2, **options)))
        except KeyError as error:
            got.append((type(error).__name__, "no sample 5" in str(error)))
        seen.append(got)
    for wrong in (
        {"batch_size": 0}, {"num_workers": -1}, {"shuffle": True, "sampler": [0]}, {"prefetch_factor": 2},
        {"timeout": -1}, {"batch_sampler": [[0]], "batch_size": 3}, {"batch_size": None, "drop_last": True},
        {"persistent_workers": True}, {"multiprocessing_context": "no such"},
    ):  # fmt: skip
        try:
            DataLoader([1, 2], **wrong)
            seen.append("accepted")
        except Exception as error:
            seen.append((sorted(wrong), isinstance(error, ValueError), isinstance(error, TypeError)))
    with_length = DataLoader(MyIterableDataset(0, 5))
    try:
        seen.append(len(with_length))
    except TypeError as error:
        seen.append("has no len()" in str(error))
    return seen


PROGRAMS: list[Program] = [
    data_tutorial,
    custom_dataset_tutorial,
    iterable_datasets,
    samplers,
    without_automatic_batching,
    collating,
    reproducibility,
    quickstart,
    distributed,
    workers_that_stay,
]
