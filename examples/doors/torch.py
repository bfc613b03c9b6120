"""Through torch's door: a training loop of PyTorch, with one import changed.

    pip install 'headrace[torch]'
    python examples/doors/torch.py

Trains a small classifier on pictures made up on the spot, stops in the middle of an epoch, and goes on from the saved
state with another number of workers: the batches are those that an undisturbed run would have seen.
"""

import sys

sys.path.pop(0)  # this folder has a file torch.py: `import torch` shall find the package

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from headrace import DataLoader  # was: from torch.utils.data import DataLoader

Sample = tuple[torch.Tensor, int]


class Pictures(Dataset[Sample]):
    """Squares of noise, brighter on the left or on the right."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Sample:
        picture = np.random.default_rng(index).random((16, 16), np.float32)
        side = index % 2
        picture[:, 8 * side : 8 * side + 8] += 0.5
        return torch.from_numpy(picture), side


def loader(workers: int) -> DataLoader[Sample]:
    order = torch.Generator().manual_seed(7)
    return DataLoader(Pictures(), batch_size=50, shuffle=True, num_workers=workers, generator=order)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(pictures: torch.Tensor, sides: torch.Tensor) -> float:
        loss = nn.functional.cross_entropy(model(pictures), sides)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    batches = loader(workers=2)
    for epoch in range(2):
        losses = [step(pictures, sides) for pictures, sides in batches]
        print(f"epoch {epoch}: loss {losses[0]:.3f} -> {losses[-1]:.3f}")

    iterator = iter(batches)
    for _ in range(5):
        step(*next(iterator))
    saved = batches.state_dict()
    rest = [sides for _, sides in iterator]

    again = loader(workers=0)
    again.load_state_dict(saved)
    resumed = [sides for _, sides in again]
    assert all(torch.equal(a, b) for a, b in zip(rest, resumed, strict=True))
    print(f"resumed after 5 batches of epoch 2: the {len(resumed)} that were left, and no other")


if __name__ == "__main__":
    main()
