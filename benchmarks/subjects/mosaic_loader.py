"""MosaicML Streaming: the data set as local MDS shards, in its StreamingDataLoader.

Streaming imports two names of torchvision, for data sets that are not used here. Where the torchvision that came with
it was built for another torch, it cannot be imported, and two empty names stand in.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

from benchmarks.case import Dataset, Start
from benchmarks.formats import from_row
from benchmarks.stored import Files, Storage
from benchmarks.subjects.torch_loader import METHOD, Running


def stand_in() -> None:
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("", ".datasets", ".transforms", ".transforms.functional"):
            module = sys.modules[f"torchvision{name}"] = types.ModuleType(f"torchvision{name}")
            module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules["torchvision.datasets"].VisionDataset = type("VisionDataset", (), {})  # type: ignore[attr-defined]
        sys.modules["torchvision.transforms.functional"].to_tensor = None  # type: ignore[attr-defined]


stand_in()
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402

ENCODINGS = {int: "int", float: "float64", bytes: "bytes"}


class Samples(StreamingDataset):  # type: ignore[misc, unused-ignore]
    def __init__(self, storage: Storage, **options: Any) -> None:
        super().__init__(**options)
        self.storage = storage

    def __getitem__(self, at: Any) -> Any:
        return self.storage.sample(super().__getitem__(at))


class Pictures(StreamingDataset):  # type: ignore[misc, unused-ignore]
    def __getitem__(self, at: Any) -> Any:
        return from_row(super().__getitem__(at))


KEPT = {"multiprocessing_context": "fork", "persistent_workers": True}


def write(folder: str, storage: Storage) -> None:
    columns = {name: ENCODINGS[type(value)] for name, value in storage.fields(0).items()}
    with MDSWriter(out=folder, columns=columns) as out:
        for index in range(len(storage)):
            out.write(storage.fields(index))


class Mosaic:
    def __init__(self) -> None:
        self.files = Files(write)

    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        return self._running(dataset, size, workers, start, shuffle=False, state=None)

    def resumable(self, dataset: Dataset, *, size: int, workers: int, state: Any = None) -> Any:
        return self._running(dataset, size, workers, "fork", shuffle=True, state=state)

    def stored(self, name: str, path: str, *, size: int, workers: int) -> Any:
        clean_stale_shared_memory()
        data = Pictures(local=path, batch_size=size, shuffle=True, shuffle_seed=7)
        return closing(Running(StreamingDataLoader(data, batch_size=size, num_workers=workers, **KEPT)))

    @contextmanager
    def _running(
        self, dataset: Dataset, size: int, workers: int, start: Start, *, shuffle: bool, state: Any
    ) -> Iterator[Running]:
        folder, storage = self.files.of(dataset)
        clean_stale_shared_memory()  # two loaders over one folder, one after the other, count as a clash otherwise
        data = Samples(storage, local=folder, batch_size=size, shuffle=shuffle, shuffle_seed=7)
        options: dict[str, Any] = {}
        if workers:
            options = {"multiprocessing_context": METHOD[start], "persistent_workers": True}
        loader = StreamingDataLoader(data, batch_size=size, num_workers=workers, **options)
        if state is not None:
            loader.load_state_dict(state)
        running = Running(loader)
        try:
            yield running
        finally:
            running.close()


SUBJECT = Mosaic()
