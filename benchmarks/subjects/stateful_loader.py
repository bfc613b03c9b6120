"""torchdata's StatefulDataLoader: torch's subject on the loader that can be saved."""

# mypy: disable-error-code="import-not-found, import-untyped"

from contextlib import AbstractContextManager
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader

from benchmarks.case import Dataset, Resumable
from benchmarks.subjects.torch_loader import TorchLoader


class Stateful(TorchLoader):
    loader = StatefulDataLoader

    def resumable(
        self, dataset: Dataset, *, size: int, workers: int, state: Any = None
    ) -> AbstractContextManager[Resumable]:
        return self._resumable(dataset, size, workers, state)


SUBJECT = Stateful()
