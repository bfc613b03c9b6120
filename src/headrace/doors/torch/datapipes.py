"""What DataPipes need of torch: tensors out of batches, pinned memory, the seed that the user set, and its DataLoader.

Nothing here is imported unless torch is there and wanted.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

from headrace.pipe.graph import Pipe


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
    """The seed of torch's own generator, if torch is loaded: what `torch.manual_seed` was given, or one of its own."""
    generator: Any = getattr(sys.modules.get("torch"), "default_generator", None)
    return None if generator is None else int(generator.initial_seed())


def torch_worker() -> tuple[int, int, int] | None:
    """Inside a worker of torch's own DataLoader: its number, how many there are, and the seed that they share."""
    data: Any = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else (info.id, info.num_workers, (info.seed - info.id) % 2**63)


class _Arrival(MetaPathFinder):
    """Notices when torch's data module is imported."""

    looking = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != "torch.utils.data" or _Arrival.looking:
            return None
        _Arrival.looking = True
        try:
            spec = find_spec(fullname)
        finally:
            _Arrival.looking = False
        if spec is not None and spec.loader is not None:
            run: Any = spec.loader.exec_module

            def run_and_tell(module: Any) -> None:
                run(module)
                module.IterableDataset.register(Pipe)

            spec.loader.exec_module = run_and_tell  # type: ignore[method-assign]
        return spec


def announce() -> None:
    """From now on torch's DataLoader sees every pipe as an iterable-style dataset; torch itself is not imported."""
    data: Any = sys.modules.get("torch.utils.data")
    if data is not None and hasattr(data, "IterableDataset"):
        data.IterableDataset.register(Pipe)
    elif not any(isinstance(finder, _Arrival) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Arrival())


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
