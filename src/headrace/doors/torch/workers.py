"""What a worker of torch's DataLoader finds of torch around it: worker info, seed, one thread."""

from typing import Any

import torch
from torch.utils.data._utils import worker as torchs

from headrace.doors.torch.collate import use_everywhere
from headrace.doors.torch.context import WorkerContext


def enter(context: WorkerContext, number: int) -> None:
    """Make this process a worker (see `context`)."""
    torch.set_num_threads(1)
    use_everywhere()
    torch.manual_seed(context.base_seed + number)
    torchs._worker_info = _info(context, number, context.dataset)


def _info(context: WorkerContext, number: int, dataset: Any) -> Any:
    """The worker info; only what every version of torch has is given."""
    place, count = (0, 1) if context.single_reader and number == 0 else (number, context.count)
    return torchs.WorkerInfo(id=place, num_workers=count, seed=context.base_seed + number, dataset=dataset)
