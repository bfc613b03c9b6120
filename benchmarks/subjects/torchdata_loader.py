"""TorchData's DataLoader2 (torchdata 0.9.0, the last with DataPipes): an optional subject, for graphs only.

Install it with `pip install --no-deps torchdata==0.9.0`; cases that know it leave it out where it is not installed.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.case import Epochs


def installed() -> bool:
    """Whether there is a torchdata that still has DataPipes; looks without importing it."""
    found = importlib.util.find_spec("torchdata")
    places = found.submodule_search_locations if found is not None else None
    return any(Path(place, "dataloader2").is_dir() for place in places or ())


class TorchDataLoader:
    @contextmanager
    def csv(self, paths: Sequence[str], parse: Any, *, size: int, workers: int) -> Iterator[Epochs]:
        from torchdata.dataloader2 import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
            DataLoader2,
            InProcessReadingService,
            MultiProcessingReadingService,
        )
        from torchdata.datapipes.iter import IterableWrapper  # type: ignore[import-not-found, import-untyped, unused-ignore]

        graph = IterableWrapper(list(paths)).open_files(encoding="utf-8").parse_csv()
        graph = graph.shuffle().sharding_filter().map(parse).batch(size)
        service = MultiProcessingReadingService(num_workers=workers) if workers else InProcessReadingService()
        loader = DataLoader2(graph, reading_service=service)
        try:
            yield loader
        finally:
            loader.shutdown()


SUBJECT = TorchDataLoader()
