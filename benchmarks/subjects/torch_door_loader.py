"""`headrace.DataLoader`: torch's subject with one import changed."""

from contextlib import AbstractContextManager
from typing import Any

from benchmarks.case import Dataset, Resumable
from benchmarks.subjects.torch_loader import TorchLoader
from headrace import DataLoader, share


class TorchDoor(TorchLoader):
    loader = DataLoader
    photo = None  # the faster decoder
    share = staticmethod(share)

    def resumable(
        self, dataset: Dataset, *, size: int, workers: int, state: Any = None
    ) -> AbstractContextManager[Resumable]:
        return self._resumable(dataset, size, workers, state)


SUBJECT = TorchDoor()
