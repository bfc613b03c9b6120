"""What DataPipes need of torch: tensors out of batches, pinned memory, the seed that the user set, and its DataLoader.

Nothing here is imported unless torch is there and wanted.
"""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

from headrace.nested import rebuilt


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


class _Arrival(MetaPathFinder):
    """Notices when torch's data module is imported."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._looking = False

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != "torch.utils.data" or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            run: Any = spec.loader.exec_module

            def run_and_tell(module: object) -> None:
                run(module)
                self._tell(module)

            spec.loader.exec_module = run_and_tell  # type: ignore[method-assign]
        return spec


def announce(stream: type, table: type) -> None:
    """From now on our two classes answer to torch's of the same names; torch itself is not imported."""

    def tell(data: Any) -> None:
        TorchClasses.stream, TorchClasses.table = data.IterDataPipe, data.MapDataPipe
        data.IterDataPipe.register(stream)
        data.MapDataPipe.register(table)

    data: Any = sys.modules.get("torch.utils.data")
    if data is not None and hasattr(data, "MapDataPipe"):
        tell(data)
    else:
        sys.meta_path.insert(0, _Arrival(tell))


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
