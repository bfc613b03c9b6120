"""Lightning Fabric: two processes train one model, and share one dataset through SwiftLoader.

    pip install 'headrace[torch]' lightning
    python examples/fabric_example.py

Fabric starts the processes and averages the gradients; each process is a consumer with workers of its own, which build
the dataset from its class. No sampler is needed: in every epoch the two shares are disjoint and complete, and both
processes make the same number of steps. (`fabric.setup_dataloaders` is for torch's DataLoader; a batch of SwiftLoader
is on its device already.)
"""

import lightning as L
import torch

from headrace import SwiftLoader

EPOCHS = 3


class Line:
    """Points of y = 3x, with their numbers."""

    def __init__(self, size: int) -> None:
        self.x = torch.linspace(-1, 1, size)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"number": torch.tensor([index]), "x": self.x[index].view(1), "y": 3 * self.x[index].view(1)}


def train(fabric: L.Fabric) -> None:
    model = torch.nn.Linear(1, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.2))
    with SwiftLoader(
        dataset_class=Line,
        dataset_kwargs={"size": 230},
        batch_size=8,
        nb_consumer=fabric.world_size,
        worker_per_consumer=1,
        shuffle=True,
        seed=7,
    ) as loader:
        loader.start(consumer_index=fabric.global_rank, device=fabric.device)
        for epoch in range(EPOCHS):
            seen = torch.zeros(230, device=fabric.device)
            steps = 0
            for batch in loader:
                loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
                fabric.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                seen[batch["number"].view(-1)] += 1
                steps += 1
            every = torch.equal(torch.as_tensor(fabric.all_reduce(seen, reduce_op="sum")), torch.ones_like(seen))
            fabric.print(f"epoch {epoch}: {steps} steps in each of {fabric.world_size}, every sample once: {every}")
    weight = next(model.parameters()).detach()
    fabric.print(f"y = {weight.item():.1f}x, learnt by {fabric.world_size} processes")


def main() -> None:
    fabric = L.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(1, verbose=False)
    train(fabric)


if __name__ == "__main__":
    main()
