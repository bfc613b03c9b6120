"""The byte-level model of text_pretrain.py, trained by Lightning; killed, it goes on with another number of ranks.

    pip install 'headrace[torch]' lightning
    python examples/text_lightning.py --folder run --ranks 2 --steps 20 --die-at 12     # killed at step 12
    python examples/text_lightning.py --folder run --ranks 4 --steps 20                 # goes on, and ends

The loader's state is saved with the model. It is the place of the whole job, so any number of ranks can load it.
Lightning fetches a batch ahead of the one that it trains on (it cannot know which is the last), so the state goes along
with each batch: a state asked for when the model is saved would be that of the batch after.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint

from headrace import Loader, World

sys.path.insert(0, str(Path(__file__).parent))
from text_pretrain import GLOBAL_BATCH, Model, corpus, rows


class WithPlaces:
    """Batches, each with where the job stands behind it."""

    def __init__(self, loader: Loader[dict[str, torch.Tensor]]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.loader:
            yield {**batch, "place": json.dumps(self.loader.state_dict())}


class Pretraining(pl.LightningModule):
    def __init__(self, folder: Path, sources: list[str], die_at: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = Model()
        self.folder, self.sources, self.die_at = folder, sources, die_at
        self.place = ""

    def train_dataloader(self) -> WithPlaces:
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        pipe = rows(self.sources, GLOBAL_BATCH // ranks)
        loader = Loader(pipe, seed=7, world=World(rank=rank, ranks=ranks), ends="drop")
        if self.place:
            loader.load_state_dict(json.loads(self.place))
        return WithPlaces(loader)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["data"] = self.place

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.place = checkpoint["data"]

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        self.place = batch["place"]
        torch.manual_seed(self.global_step * self.trainer.world_size + self.global_rank)  # dropout: nothing to save
        tokens, labels = torch.as_tensor(batch["input"]), torch.as_tensor(batch["labels"])
        logits = self.model(tokens, torch.as_tensor(batch["positions"]))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        counted = (labels != -100).sum()
        dist.all_reduce(counted)  # ranks have different numbers of labels: divide by those of the whole step
        trained_on = [hashlib.sha256(row.numpy().tobytes()).hexdigest()[:12] for row in tokens]
        name = f"rows-{self.global_step:04}-{self.global_rank}-of-{self.trainer.world_size}.json"
        (self.folder / name).write_text(json.dumps(trained_on))
        return loss * self.trainer.world_size / counted

    def on_train_batch_end(self, *_: object) -> None:
        if self.global_step == self.die_at:
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--die-at", type=int)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    sources = corpus(args.folder)
    saved = args.folder / "last.ckpt"
    trainer = pl.Trainer(
        max_steps=args.steps, accelerator="cpu", devices=args.ranks, strategy="ddp_spawn", logger=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[ModelCheckpoint(args.folder, filename="last", every_n_train_steps=5, enable_version_counter=False)],
    )  # fmt: skip
    trainer.fit(Pretraining(args.folder, sources, args.die_at), ckpt_path=str(saved) if saved.exists() else None)
    print(f"trained to step {args.steps} on {args.ranks} ranks")


if __name__ == "__main__":
    main()
