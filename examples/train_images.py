"""Image training with torch on several ranks: PNG files, random augmentation, DistributedDataParallel.

    headrace run --num-instances 2 python examples/train_images.py
    torchrun --nproc-per-node 2 examples/train_images.py

Every rank gets whole batches in turn, all take equally many steps, and together they see every picture once an epoch.
Rank 0 saves a snapshot of the loader with the model; it loads on any number of ranks. Needs `headrace[torch,media]`.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import headrace
from headrace import Loader, Pipe, World
from headrace.device import ahead

PICTURES = 203  # not a multiple of anything
SIZE = 24
Sample = dict[str, Any]


class Pictures:
    """One PNG file a picture; the label is in its name."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.png"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        path = self.paths[index]
        return {"id": index, "image": np.asarray(Image.open(path)), "label": int(path.stem.split("-")[1])}


def make(folder: Path) -> None:
    """Noise, with more red or with more blue in it; the label says which."""
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    for number in range(PICTURES):
        picture = draw.integers(0, 200, (SIZE, SIZE, 3), np.uint8)
        label = number % 2
        picture[:, :, 2 * label] += 30
        Image.fromarray(picture).save(folder / f"{number:04}-{label}.png")


def augment(sample: Sample) -> Sample:
    """A random flip, the same for any number of workers and ranks; and channels first."""
    image = sample["image"][:, :: headrace.rng().choice([1, -1])]
    return {**sample, "image": np.ascontiguousarray(image.transpose(2, 0, 1))}


def main(folder: Path) -> None:
    world = World.detect()
    dist.init_process_group("gloo")
    with world.first() as mine:  # one process of each machine makes the data, the others wait
        if mine and not any(folder.glob("*.png")):
            make(folder)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    pipe = Pipe.of(Pictures(folder)).shuffle().map(augment).batch(16).collate()
    with Loader(pipe, workers=2, seed=7, world=world) as loader:
        for epoch in range(3):
            seen: list[int] = []
            right = steps = 0
            for batch in ahead(loader, "cpu"):  # "cuda" where there is one: arrays become tensors on the device
                scores = model(batch["image"].float() / 255)
                loss = nn.functional.cross_entropy(scores, batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += int((scores.argmax(1) == batch["label"]).sum())
                seen += batch["id"].tolist()
                steps += 1
            everywhere: list[Any] = [None] * world.ranks
            dist.all_gather_object(everywhere, (seen, steps, right))
            if world.rank == 0:
                ids = sorted(i for ids, _, _ in everywhere for i in ids)
                assert ids == list(range(PICTURES)), "every picture once"
                assert len({steps for _, steps, _ in everywhere}) == 1, "equal steps on all ranks"
                hits = sum(right for _, _, right in everywhere) / PICTURES
                print(f"epoch {epoch}: {world.ranks} ranks, {steps} steps each, every picture once, {hits:.0%} right")
        if world.rank == 0:
            snapshot = {"model": net.state_dict(), "loader": json.dumps(loader.state_dict())}
            torch.save(snapshot, folder / "snapshot.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.gettempdir(), "headrace-pictures")))
