"""torch's own DataLoader, with its default options; where a case says so, with workers that stay."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Generator
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from benchmarks.case import Dataset, Epochs, Start
from benchmarks.media import FileSet, Job, by_pillow
from benchmarks.tables import ManyRows, Rows, same
from benchmarks.tarfiles import Decode, read

METHOD: dict[Start, str] = {"fork": "fork", "spawn": "spawn", "clean": "spawn"}


class Running:
    """A DataLoader that ends its workers when it is closed and not when it is collected."""

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def state(self) -> Any:
        """Of those that have one."""
        return self.loader.state_dict()  # type: ignore[attr-defined]

    def close(self) -> None:
        # DataLoader has no close of its own: its iterator's end is the only way to stop persistent workers now.
        running = self.loader._iterator
        self.loader._iterator = None
        if running is not None and hasattr(running, "_shutdown_workers"):
            running._shutdown_workers()


class Filtered(IterableDataset[Any]):
    """The samples to keep, dealt to the workers in turn."""

    def __init__(self, dataset: Dataset, keep: Callable[[Any], bool]) -> None:
        self.dataset = dataset
        self.keep = keep

    def __iter__(self) -> Iterator[Any]:
        here = get_worker_info()
        first, step = (here.id, here.num_workers) if here else (0, 1)
        for index in range(first, len(self.dataset), step):
            sample = self.dataset[index]
            if self.keep(sample):
                yield sample


class Shards(IterableDataset[Any]):
    """The samples of tar files, which are dealt to the workers in turn."""

    def __init__(self, paths: Sequence[str], decode: Decode) -> None:
        self.paths = list(paths)
        self.decode = decode

    def __iter__(self) -> Iterator[Any]:
        here = get_worker_info()
        for path in self.paths[here.id :: here.num_workers] if here else self.paths:
            for content, label in read(path):
                yield self.decode(content, label)


class TorchLoader:
    loader: Any = DataLoader
    photo: Callable[[bytes], Any] | None = staticmethod(by_pillow)  # as torchvision's ImageFolder does it
    stays = False

    def staying(self) -> "TorchLoader":
        """The same with workers that stay from epoch to epoch."""
        twin = copy(self)
        twin.stays = True
        return twin

    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return self._running(dataset, size, workers, start)

    def filtered(
        self, dataset: Dataset, keep: Callable[[Any], bool], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        return self._running(Filtered(dataset, keep), size, workers, "fork")

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        dataset: Any = ManyRows(data) if whole else Rows(data)
        return self._running(dataset, size, workers, start, shuffle=True, collate_fn=same if whole else None)

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        return self._running(Shards(paths, decode), size, workers, "fork")

    def media(self, job: Job, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        if job.kind == "photos" and self.photo is not None:
            job = replace(job, sample=self.photo)
        return self._running(FileSet(job), size, workers, "fork", shuffle=True)

    def _resumable(self, dataset: Dataset, size: int, workers: int, state: Any) -> "closing[Running]":
        """For loaders of this kind that can be saved."""
        generator = Generator().manual_seed(7)
        loading = self._running(dataset, size, workers, "fork", shuffle=True, generator=generator)
        if state is not None:
            loading.thing.loader.load_state_dict(state)  # type: ignore[attr-defined]
        return loading

    def _running(self, dataset: Any, size: int, workers: int, start: Start, **options: Any) -> "closing[Running]":
        if workers:
            options |= {
                "num_workers": workers,
                "multiprocessing_context": METHOD[start],
                "persistent_workers": self.stays,
            }
        return closing(Running(self.loader(dataset, batch_size=size, **options)))


SUBJECT = TorchLoader()
