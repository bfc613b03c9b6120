"""Lightning: the trainer saves the loader's state with the model, and goes on in the middle of an epoch.

pip install 'headrace[torch]' lightning
python examples/lightning_trainer.py
"""

import tempfile
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import TensorDataset

from headrace import DataLoader

INPUTS = torch.linspace(-1, 1, 95).view(-1, 1)


def loader(workers: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    data = TensorDataset(INPUTS, 3 * INPUTS)
    return DataLoader(data, 10, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(7))


class Line(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.seen: list[list[float]] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], number: int) -> torch.Tensor:
        inputs, outputs = batch
        self.seen.append(inputs[:, 0].tolist())
        return torch.nn.functional.mse_loss(self.line(inputs), outputs)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.3)


def fit(folder: Path, workers: int, resume: str | None = None) -> Line:
    saving = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[] if resume else [saving],
        enable_checkpointing=not resume,
    )
    line = Line()
    trainer.fit(line, loader(workers), ckpt_path=resume)
    return line


def main(folder: Path) -> None:
    whole = fit(folder, workers=2)
    again = fit(folder, workers=0, resume=str(folder / "step=7.ckpt"))
    assert again.seen == whole.seen[7:]
    print(f"{len(whole.seen)} steps; from step 7 on, with other workers, the same {len(again.seen)} batches")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
