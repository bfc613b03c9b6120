"""What DataPipes need of torch: tensors out of batches, pinned memory, the seed that the user set, and its DataLoader.

Nothing here is imported unless torch is there and wanted.
"""

import sys
from collections.abc import Callable
from typing import Any

from headrace.nested import rebuilt
from headrace.plan.seed import ImportWatcher


def default_collate(batch: Any) -> Any:
    """A list of samples as tensors, by torch's own rules."""
    from torch.utils.data import default_collate as collate

    return collate(batch)


def tensors(value: object) -> object:
    """The same with every array as a tensor that looks at its memory."""
    import numpy as np
    import torch

    return torch.from_numpy(value) if isinstance(value, np.ndarray) else rebuilt(value, tensors)


def check_pinning() -> None:
    """Raise unless tensors can be pinned here."""
    try:
        import torch
    except ModuleNotFoundError:
        from headrace.errors import missing

        raise missing("torch", "torch") from None
    if not torch.cuda.is_available():
        raise RuntimeError("``pin_memory`` can only be used when CUDA is available.")


def drawn_seed() -> int | None:
    """A number out of torch's own generator, which moves on; None while torch is not loaded."""
    torch: Any = sys.modules.get("torch")
    if getattr(torch, "default_generator", None) is None:
        return None
    return int(torch.empty((), dtype=torch.int64).random_().item())


class TorchClasses:
    """torch's own IterDataPipe and MapDataPipe, once torch's data module is imported; None before."""

    stream: Any = None
    table: Any = None


def is_torchs(thing: object) -> bool:
    """Whether a thing is a pipe of torch's classes (ours answer to them too, once both are there)."""
    return TorchClasses.stream is not None and isinstance(thing, TorchClasses.stream | TorchClasses.table)


def is_torchs_table(thing: object) -> bool:
    return TorchClasses.table is not None and isinstance(thing, TorchClasses.table)


def torchs_verb(thing: object, name: str) -> Any:
    """The function that somebody has registered with torch under a name, or None."""
    cls = TorchClasses.table if is_torchs_table(thing) else TorchClasses.stream
    return None if cls is None else cls.functions.get(name)


def reduced_for_torch(pipe: object, sources: Callable[[], list[Any]]) -> tuple[Any, ...] | None:
    """What torch's graph functions want to know of a pipe while they look at it: its sources, nothing that it holds.

    torch finds the pipes in a graph by pickling it with a hook on its own classes.
    """
    hook = getattr(TorchClasses.stream, "reduce_ex_hook", None)
    if hook is None:
        return None
    try:
        return hook(pipe)  # type: ignore[no-any-return]
    except NotImplementedError:
        return (list, (), None, iter(sources()))


def announce(stream: type, table: type) -> None:
    """From now on our two classes answer to torch's of the same names; torch itself is not imported."""

    def tell() -> None:
        data: Any = sys.modules["torch.utils.data"]
        TorchClasses.stream, TorchClasses.table = data.IterDataPipe, data.MapDataPipe
        data.IterDataPipe.register(stream)
        data.MapDataPipe.register(table)

    if hasattr(sys.modules.get("torch.utils.data"), "MapDataPipe"):
        tell()
    else:
        ImportWatcher.watch("torch.utils.data", tell)


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
