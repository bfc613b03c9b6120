"""What DataPipes need of torch: tensors out of batches, pinned memory, the seed that the user set, and its DataLoader.

Nothing here is imported unless torch is there and wanted.
"""

import sys
from typing import Any

UNSEEDED = 67280421310721
"""The seed that torch starts with: nobody has set another."""


def default_collate(batch: Any) -> Any:
    """A list of samples as tensors, by torch's own rules."""
    from torch.utils.data import default_collate as collate

    return collate(batch)


def check_pinning() -> None:
    """Raise unless tensors can be pinned here."""
    try:
        import torch
    except ModuleNotFoundError:
        from headrace.errors import missing

        raise missing("torch", "torch") from None
    if not torch.cuda.is_available():
        raise RuntimeError("``pin_memory`` can only be used when CUDA is available.")


def told_seed() -> int | None:
    """What the user gave to `torch.manual_seed`, if torch is loaded and that has happened."""
    torch: Any = sys.modules.get("torch")
    generator = getattr(torch, "default_generator", None)
    seed = None if generator is None else generator.initial_seed()
    return None if seed == UNSEEDED else seed


def is_table(thing: Any) -> bool:
    """Whether something is a map-style pipe of torch's."""
    torch: Any = sys.modules.get("torch")
    data = getattr(getattr(torch, "utils", None), "data", None)
    return data is not None and isinstance(thing, data.MapDataPipe)


def check_distributed(initialized: bool) -> None:
    """Raise unless torch.distributed is there and, if asked for, running."""
    try:
        import torch.distributed as dist
    except ModuleNotFoundError:
        raise RuntimeError("Torch Distributed is required to be available") from None
    if not dist.is_available():
        raise RuntimeError("Torch Distributed is required to be available")
    if initialized and not dist.is_initialized():
        raise RuntimeError("Torch Distributed is required to be initialized: call init_process_group() in every rank")
