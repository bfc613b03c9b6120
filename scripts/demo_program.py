"""The demo: a small image-like data set on disk, loaded for two epochs by two worker processes.

Proves what it says while it runs: every sample comes exactly once an epoch, the epochs differ, and the stream (order,
labels and the pixels after random augmentation) is the same without any worker, with workers that are killed on
purpose, and after a stop in the middle that is resumed with another number of workers. Run it through scripts/demo.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Loader, Pipe

SAMPLES = 2_000
SIZE = 64
BATCH = 32
EPOCHS = 2
WORKERS = 2
SEED = 7

Sample = dict[str, Any]


class Pictures:
    """One .npy file a picture, and the labels in one more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.labels = np.load(folder / "labels.npy")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return {"id": index, "image": np.load(self.folder / f"{index:05}.npy"), "label": self.labels[index]}


class Augmented:
    """The same samples with the augmentation inside, as loaders without a pipe want it."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Sample:
        return augment(self.pictures[index])


def make(folder: Path) -> Pictures:
    random = np.random.default_rng(SEED)
    for index in range(SAMPLES):
        np.save(folder / f"{index:05}.npy", random.integers(0, 256, (SIZE, SIZE, 3), np.uint8))
    np.save(folder / "labels.npy", random.integers(0, 10, SAMPLES))
    return Pictures(folder)


def augment(sample: Sample) -> Sample:
    """A random flip and a random shift. Plain numpy.random: the loader seeds it, the same for any number of workers."""
    image = sample["image"]
    if np.random.random() < 0.5:
        image = image[:, ::-1]
    shift = tuple(np.random.randint(-4, 5, 2))
    return {**sample, "image": np.roll(image, shift, (0, 1))}


@dataclass
class Epoch:
    ids: list[int]
    digest: str
    seconds: float


def load(batches: Iterable[Sample], say: Callable[[int, float], None]) -> Epoch:
    ids: list[int] = []
    digest = hashlib.sha256()
    start = time.perf_counter()
    for batch in batches:
        ids += batch["id"].tolist()
        # A grid of pixels is enough to see another flip or shift.
        for part in (batch["id"], batch["label"], batch["image"][:, ::16, ::16]):
            digest.update(np.ascontiguousarray(part).tobytes())
        say(len(ids), time.perf_counter() - start)
    return Epoch(ids, digest.hexdigest(), time.perf_counter() - start)


def progress(name: str) -> Callable[[int, float], None]:
    """One line, redrawn at most twenty times; only its last state where the output is not a terminal."""
    live = sys.stdout.isatty()
    step = SAMPLES // 20
    drawn = 0

    def say(done: int, seconds: float) -> None:
        nonlocal drawn
        last = done == SAMPLES
        if last or (live and done - drawn >= step):
            drawn = done
            line = f"{name}  {done:>5,} / {SAMPLES:,} samples  {done / seconds:>8,.0f} samples/s"
            print(f"\r{line}" if live else line, end="\n" if last else "", flush=True)

    return say


def silent(done: int, seconds: float) -> None:
    pass


def check(condition: bool, told: str) -> None:
    if not condition:
        raise SystemExit(f"FAILED: {told}")
    print(f"ok  {told}")


def headrace_epochs(
    pictures: Pictures, workers: int, say: Callable[[str], Callable[[int, float], None]]
) -> list[Epoch]:
    pipe = Pipe.of(pictures).shuffle().map(augment).batch(BATCH).collate()
    with Loader(pipe, workers=workers, kind="process" if workers else None, seed=SEED) as loader:
        return [load(loader, say(f"epoch {number}")) for number in range(EPOCHS)]


def killed_and_resumed(pictures: Pictures) -> tuple[Epoch, int]:
    """An epoch whose workers are killed on purpose, that stops in the middle and goes on with other workers."""
    pipe = Pipe.of(pictures).shuffle().map(augment).batch(BATCH).collate()
    parts: list[Sample] = []
    with Loader(pipe, workers=WORKERS, seed=SEED) as loader:
        for number, batch in enumerate(loader):
            parts.append(batch)
            if number % 10 == 5:
                os.kill(loader.worker_pids()[number % WORKERS], signal.SIGKILL)
            if number == 30:
                break_off = loader.state_dict()
                break
        killed = loader.stats().retries
    snapshot = json.dumps(break_off)
    with Loader(pipe, workers=WORKERS + 1, seed=SEED) as loader:
        loader.load_state_dict(json.loads(snapshot))
        parts += loader
    print(f"    the snapshot, {len(snapshot)} bytes: {snapshot}")
    return load(parts, silent), killed


def torch_epochs(pictures: Pictures) -> list[Epoch]:
    from torch.utils.data import DataLoader

    loader: DataLoader[Sample] = DataLoader(
        Augmented(pictures),  # type: ignore[arg-type]
        batch_size=BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
    )
    return [load(loader, progress(f"torch {number}")) for number in range(EPOCHS)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--with-torch", action="store_true", help="also load it with torch.utils.data.DataLoader")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        print(f"making {SAMPLES:,} pictures of {SIZE} x {SIZE} x 3 in {folder}")
        pictures = make(Path(folder))

        print(f"loading with {WORKERS} worker processes, batches of {BATCH}")
        epochs = headrace_epochs(pictures, WORKERS, progress)
        alone = headrace_epochs(pictures, 0, lambda name: silent)

        everything = list(range(SAMPLES))
        check(all(sorted(epoch.ids) == everything for epoch in epochs), "every sample came exactly once in each epoch")
        check(epochs[0].ids != epochs[1].ids, "the two epochs have different orders")
        same = [epoch.digest for epoch in epochs] == [epoch.digest for epoch in alone]
        check(same, f"the stream is the same without workers: sha256 {epochs[0].digest[:16]}, {epochs[1].digest[:16]}")

        print("killing workers on purpose, stopping in the middle, resuming with another number of workers")
        again, killed = killed_and_resumed(pictures)
        told = f"{killed} workers were killed, the run was stopped and resumed, and the stream is the same"
        check(killed > 0 and again.digest == epochs[0].digest, told)

        rate = SAMPLES / epochs[-1].seconds
        print(f"throughput: {rate:,.0f} samples/s, {rate * SIZE * SIZE * 3 / 1e6:,.0f} MB/s (epoch {EPOCHS - 1})")
        if options.with_torch:
            theirs = SAMPLES / torch_epochs(pictures)[-1].seconds
            print(
                f"torch.utils.data.DataLoader: {theirs:,.0f} samples/s; headrace is {rate / theirs:.2f} times as fast"
            )


if __name__ == "__main__":
    main()
