"""SPDL's own stand-in for torch's DataLoader, which fetches in a pool of processes."""

# mypy: disable-error-code="import-not-found, import-untyped"

from contextlib import nullcontext
from typing import Any

from spdl.dataloader import get_pytorch_dataloader

from benchmarks.case import Dataset, Start
from benchmarks.subjects.spdl_loader import Spdl

METHOD: dict[Start, str] = {"fork": "fork", "spawn": "spawn", "clean": "spawn"}


class SpdlProcesses(Spdl):
    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        if not workers:
            return super().batches(dataset, size=size, workers=0)
        loader = get_pytorch_dataloader(
            dataset,  # type: ignore[arg-type, unused-ignore]
            size,
            num_workers=workers,
            multiprocessing_context=METHOD[start],
            in_order=True,
        )
        return nullcontext(loader)


SUBJECT = SpdlProcesses()
