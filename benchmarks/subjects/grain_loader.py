"""Grain: a MapDataset in batches, repeated, and read by one iterator for all epochs, with worker processes or threads.

Its iterators start their workers anew; `repeat()` is how its users have workers that outlive an epoch.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import grain

from benchmarks.case import Dataset, Start
from benchmarks.media import FileSet, Job
from benchmarks.text import Encode


class Running:
    """Epochs cut out of an endless iterator."""

    def __init__(self, data: Any, batches: int, state: Any = None) -> None:
        self.running = iter(data)
        self.batches = batches
        if state is not None:
            self.running.set_state(state)

    def __iter__(self) -> Iterator[Any]:
        return islice(self.running, self.batches)

    def state(self) -> Any:
        return self.running.get_state()

    def close(self) -> None:
        close = getattr(self.running, "close", None)
        if close is not None:
            close()


BINS = 256
"""Rows that are filled at a time where documents stay whole: its users say how many."""


class Grain:
    def __init__(self, processes: bool) -> None:
        self.processes = processes

    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        return self._running(grain.MapDataset.source(dataset), size, workers, None)

    def media(self, job: Job, *, size: int, workers: int) -> Any:
        return self._running(grain.MapDataset.source(FileSet(job)).shuffle(seed=7), size, workers, None)

    def resumable(self, dataset: Dataset, *, size: int, workers: int, state: Any = None) -> Any:
        return self._running(grain.MapDataset.source(dataset).shuffle(seed=7), size, workers, state)

    @contextmanager
    def packed(
        self, sources: Any, weights: Any, tokenizer: Any, *, length: int, size: int, workers: int, how: str = "split"
    ) -> Iterator[Any]:
        parts = [grain.MapDataset.source(texts) for texts in sources]
        if weights is not None:
            parts = [grain.MapDataset.mix([part.shuffle(seed=i) for i, part in enumerate(parts)], weights)]
        data = parts[0].repeat().map(Encode(tokenizer)).to_iter_dataset()
        lengths = {"tokens": length}
        if how == "split":
            data = grain.experimental.ConcatThenSplitIterDataset(data, length_struct=lengths)
        else:
            data = grain.experimental.BestFitPackIterDataset(data, length_struct=lengths, num_packing_bins=BINS)
        data = data.map(masked).batch(size)
        running = iter(data.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers)) if workers else data)
        try:
            yield running
        finally:
            running.close()

    @contextmanager
    def _running(self, data: Any, size: int, workers: int, state: Any) -> Iterator[Running]:
        batches = -(-len(data) // size)
        data = data.batch(size).repeat()
        if self.processes or not workers:
            data = data.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
            if workers:
                options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
                data = data.mp_prefetch(options)
        else:
            data = data.to_iter_dataset(grain.ReadOptions(num_threads=workers, prefetch_buffer_size=8 * workers))
        running = Running(data, batches, state)
        try:
            yield running
        finally:
            running.close()


def masked(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row that a model is trained on."""
    segments = row["tokens_segment_ids"]
    return {
        "tokens": row["tokens"], "positions": row["tokens_positions"], "documents": segments, "mask": segments > 0
    }  # fmt: skip


SUBJECT = Grain(processes=True)
