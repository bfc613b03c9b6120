"""Trainers of transformers and TRL that read packed rows without padding, straight from a Loader.

    from transformers import Trainer                    # or: from trl import SFTTrainer as Trainer
    from headrace.doors.trainer.fed import fed_by

    rows = Pipe.tokens("corpus").shuffle().pack(4096, how="fit", form="flat").batch(2)
    trainer = fed_by(Trainer, Loader(rows, workers=4))(model=model, args=args)
    trainer.train(resume_from_checkpoint=True)

Every batch is one row of all its documents, as `DataCollatorWithFlattening` and TRL's `padding_free` make it. The place
of the whole job is saved with each checkpoint (`headrace.json`), and a checkpoint is gone on from at that place, by any
number of ranks: the trainer skips no batches itself. Say `max_steps` in the arguments: how many batches an epoch has is
known only at its end.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, missing
from headrace.loader import Loader
from headrace.ops.text.labels import flattened

PLACE = "headrace.json"


class TrainerBatches:
    """Batches of flat rows as tensors; every `iter()` is an epoch. It has no `set_epoch`: a trainer calls that after it
    has loaded a checkpoint, and would begin the epoch anew."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import torch

        for rows in self._loader:
            batch = flattened(rows)
            yield {name: value if isinstance(value, int) else torch.as_tensor(value) for name, value in batch.items()}


def fed_by(base: type[Any], loader: Loader[Any]) -> type[Any]:
    """A class of trainers like `base` that trains on the flat rows of a loader."""
    try:
        callback: Any = import_module("transformers").TrainerCallback
        last_checkpoint = import_module("transformers.trainer_utils").get_last_checkpoint
    except ModuleNotFoundError as error:
        raise missing("torch", "transformers") from error

    class SavesPlace(callback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: object, **_: object) -> None:
            place = loader.state_dict()
            if state.is_world_process_zero:
                folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                (folder / PLACE).write_text(json.dumps(place))

    class FedTrainer(base):  # type: ignore[misc]
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)
            self.args.ignore_data_skip = True  # the loader goes on at its place by itself
            self.add_callback(SavesPlace())

        def get_train_dataloader(self) -> TrainerBatches:
            return TrainerBatches(loader)

        def train(self, resume_from_checkpoint: str | bool | None = None, **more: object) -> object:
            found = resume_from_checkpoint
            if found is True:
                found = last_checkpoint(self.args.output_dir)
            if found:
                place = Path(str(found)) / PLACE
                if not place.exists():
                    raise BadOption(f"{found} was saved without the place of its data ({PLACE}): begin anew")
                loader.load_state_dict(json.loads(place.read_text()))
            return super().train(resume_from_checkpoint=resume_from_checkpoint, **more)

    return FedTrainer
