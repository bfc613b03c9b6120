"""Tar shards: samples a second from eight archives, each sample decoded to an array and a label.

The files are read before, so that they lie in the page cache: what is measured is parsing, decoding and transport.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.tarfiles import decode, write_shards

SHARDS = 8
SAMPLES = 1000
SIZE = 32
WORKERS = 2
CASE = Case(
    name="tar",
    question="How many samples of 12 kB a second, from 8 tar shards, in batches of 32, with 2 workers?",
    targets=(
        Target("tar shards", "samples/s", "samples/s", ("headrace", "torch"), at_least=2),
        Target("tar shards, WebDataset", "samples/s", "samples/s", ("headrace", "webdataset"), at_least=1.5),
        Target("tar shards, our DataLoader", "samples/s", "samples/s", ("headrace", "torch_door"), at_least=1),
    ),
    needs="tar",
    why={
        "*": "Headrace reads samples by their place (`Pipe.stored`), which it finds once and keeps beside each "
        "archive, so any worker makes any batch; the others read archives from front to back."
    },
)


def measure(subject: Subject, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        samples = effort.count(SAMPLES, least=WORKERS * SIZE)
        paths = write_shards(Path(folder), SHARDS, samples)
        with subject.tar(paths, decode, size=SIZE, workers=WORKERS) as loader:
            whole_epoch(loader, SHARDS * samples)
            epochs = 0
            began = time.perf_counter()
            while (seconds := time.perf_counter() - began) < effort.seconds or not epochs:
                whole_epoch(loader, SHARDS * samples)
                epochs += 1
    return {"samples/s": epochs * SHARDS * samples / seconds}


def whole_epoch(loader: Any, count: int) -> None:
    """Loaders may end a worker's share with a short batch, and in any order: labels are what is checked."""
    seen: list[int] = []
    for images, labels in loader:
        if len(images) != len(labels):
            raise AssertionError("a batch has not as many images as labels")
        seen += labels.tolist()
    if sorted(seen) != list(range(count)):
        raise AssertionError(
            f"an epoch gave {len(seen)} samples, {len(set(seen))} of them different, instead of {count}"
        )
