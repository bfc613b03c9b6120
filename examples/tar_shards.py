"""Tar shards in the manner of WebDataset: files of one name are one sample, shards are read by any worker.

    python examples/tar_shards.py

Writes shards, reads them with two worker processes, stops in the middle and goes on with three: every sample comes
once, in an order that the seed alone decides, also when samples are left out on the way.
"""

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Loader, Pipe

SHARDS, EACH = 6, 50
Sample = dict[str, Any]


def make(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard:03}.tar", "w") as archive:
            for number in range(shard * EACH, (shard + 1) * EACH):
                picture = io.BytesIO()
                np.save(picture, draw.integers(0, 256, (8, 8), np.uint8))
                files = {
                    f"{number:05}.npy": picture.getvalue(),
                    f"{number:05}.json": json.dumps({"n": number}).encode(),
                }
                for name, data in files.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


def decoded(sample: Sample) -> Sample:
    return {"n": json.loads(sample[".json"])["n"], "image": np.load(io.BytesIO(sample[".npy"]))}


def wanted(sample: Sample) -> bool:
    return sample["n"] % 10 != 0


def main(folder: Path) -> None:
    make(folder)
    shards = Pipe.shards(str(folder / "train-{000..005}.tar"))
    pipe = shards.shuffle(buffer_size=100).sharding_filter().map(decoded).filter(wanted).batch(16).collate()
    print(pipe.explain())

    with Loader(pipe, workers=2, seed=7) as loader:
        whole = [batch["n"].tolist() for batch in loader]
    numbers = [n for batch in whole for n in batch]
    assert sorted(numbers) == [n for n in range(SHARDS * EACH) if n % 10]
    print(f"{len(whole)} batches, each of the {len(numbers)} wanted samples once")

    begun = []
    with Loader(pipe, workers=2, seed=7) as loader:
        for batch in loader:
            begun.append(batch["n"].tolist())
            if len(begun) == 5:
                break
        saved = json.dumps(loader.state_dict())
    with Loader(pipe, workers=3, seed=7) as loader:
        loader.load_state_dict(json.loads(saved))
        rest = [batch["n"].tolist() for batch in loader]
    assert begun + rest == whole
    print(f"stopped after 5 batches, went on from {len(saved)} bytes with 3 workers: the same batches")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
