"""torchdata.nodes: a sampler, a parallel map that fetches and collates, and its Loader."""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from torch import Generator
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate
from torchdata.nodes import Loader, Mapper, ParallelMapper, SamplerWrapper

from benchmarks.case import Dataset, Start
from benchmarks.collate import Fetch

METHOD: dict[Start, str] = {"fork": "fork", "spawn": "spawn", "clean": "spawn"}


class Running:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def state(self) -> Any:
        return self.loader.state_dict()


class Nodes:
    def __init__(self, method: Literal["process", "thread"]) -> None:
        self.method = method

    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        return self._running(dataset, SequentialSampler(dataset), size, workers, start, None)

    def resumable(self, dataset: Dataset, *, size: int, workers: int, state: Any = None) -> Any:
        sampler = RandomSampler(dataset, generator=Generator().manual_seed(7))
        return self._running(dataset, sampler, size, workers, "fork", state)

    @contextmanager
    def _running(
        self, dataset: Dataset, sampler: Any, size: int, workers: int, start: Start, state: Any
    ) -> Iterator[Running]:
        positions: Any = SamplerWrapper(BatchSampler(sampler, size, drop_last=False))
        fetch = Fetch(dataset, default_collate)
        if workers:
            context = METHOD[start] if self.method == "process" else None
            node: Any = ParallelMapper(positions, fetch, workers, method=self.method, multiprocessing_context=context)
        else:
            node = Mapper(positions, fetch)
        loader = Loader(node)
        if state is not None:
            loader.load_state_dict(state)
        try:
            yield Running(loader)
        finally:
            if workers and node._it is not None:
                node._it._it._shutdown()  # it has no close of its own: threads and processes live until it is collected


SUBJECT = Nodes("process")
