"""`headrace.DataLoader`: torch's subject with one import changed; `reproducible=True` where samples are uneven."""

from contextlib import AbstractContextManager
from typing import Any

from benchmarks.case import Dataset, Epochs, Resumable
from benchmarks.subjects.torch_loader import TorchLoader
from headrace import DataLoader, share


class TorchDoor(TorchLoader):
    loader = DataLoader
    share = staticmethod(share)

    def uneven(self, dataset: Dataset, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        """Work is stolen only where random values do not hang on the worker."""
        return self._running(dataset, size, workers, "fork", reproducible=True)

    def resumable(
        self, dataset: Dataset, *, size: int, workers: int, state: Any = None
    ) -> AbstractContextManager[Resumable]:
        return self._resumable(dataset, size, workers, state)


SUBJECT = TorchDoor()
