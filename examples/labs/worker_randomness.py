"""Where random values in workers come from, and how to have the same ones with any number of workers.

torch's DataLoader seeds `random`, numpy and torch once in each worker: with the epoch's base seed plus the worker's
number. From then on a worker carries its generators along, so what a sample gets depends on which worker reads it, and
on everything that this worker has drawn before. With another number of workers the same seed gives other values.

    python examples/labs/worker_randomness.py --workers 0 1 2 3

`reproducible=True` derives the seeds from the batch instead. `headrace.rng()` goes one step further: its values hang on
the sample's place in the epoch, and so do not even change with the batch size.
"""

import argparse
import random
import warnings
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

import headrace
from headrace import DataLoader


class Jittered(Dataset[tuple[float, float]]):
    """Each sample is its index with noise of the global generators, and with noise of `headrace.rng()`."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[float, float]:
        everyday = random.random() + float(np.random.rand()) + float(torch.rand(()))
        return index + everyday / 10, index + float(headrace.rng().random()) / 10


def epoch(workers: int, batch_size: int, **options: Any) -> tuple[list[float], list[float]]:
    """One epoch, from the same seed each time."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    loader = DataLoader(Jittered(), batch_size, num_workers=workers, **options)
    everyday: list[float] = []
    keyed: list[float] = []
    for noisy, quiet in loader:
        everyday += noisy.tolist()
        keyed += quiet.tolist()
    return everyday, keyed


def show(title: str, rows: dict[str, list[float]]) -> None:
    print(f"\n{title}")
    for name, values in rows.items():
        print(f"  {name:24}", " ".join(f"{v:.4f}" for v in values))
    print("  the same everywhere" if len(set(map(tuple, rows.values()))) == 1 else "  they differ")


def main() -> None:
    parser = argparse.ArgumentParser(description="random values in workers, torch's way and ours")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    counts = parser.parse_args().workers
    warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)

    carried = {f"{w} workers": epoch(w, 2)[0] for w in counts}
    show("global generators, seeded once in each worker (torch's rule, the default)", carried)
    keyed = {f"{w} workers": epoch(w, 2, reproducible=True)[0] for w in counts}
    show("global generators, seeded before each batch (reproducible=True)", keyed)
    sizes = {f"{w} workers, batches of {b}": epoch(w, b, reproducible=True)[1] for w in counts for b in (1, 3)}
    show("headrace.rng(), keyed by the sample's place in the epoch", sizes)


if __name__ == "__main__":
    main()
