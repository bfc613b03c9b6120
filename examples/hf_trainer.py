"""The Hugging Face Trainer: it builds its own loader, of the class that `headrace.install()` puts in torch's place.

pip install 'headrace[torch]' transformers accelerate
python examples/hf_trainer.py
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

import headrace

INPUTS = torch.linspace(-1, 1, 60)


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": INPUTS[index : index + 1], "labels": 3 * INPUTS[index : index + 1]}


class Line(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.seen: list[list[float]] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        self.seen.append(x[:, 0].tolist())
        return {"loss": torch.nn.functional.mse_loss(self.line(x), labels)}


def fit(folder: Path, workers: int, resume: str | None = None) -> list[list[float]]:
    line = Line()
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=10,
        dataloader_num_workers=workers,
        save_strategy="no" if resume else "steps",
        save_steps=4,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Trainer(model=line, args=arguments, train_dataset=Rows())
    print("the trainer reads through", type(trainer.get_train_dataloader().base_dataloader).__module__)
    trainer.train(resume_from_checkpoint=resume)
    return line.seen


def main(folder: Path) -> None:
    headrace.install()
    whole = fit(folder, workers=2)
    again = fit(folder, workers=0, resume=str(folder / "checkpoint-8"))
    assert again == whole[8:]
    print(f"{len(whole)} steps; from step 8 on the same {len(again)} batches")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(Path(made))
