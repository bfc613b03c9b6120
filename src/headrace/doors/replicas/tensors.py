"""Tensors for users of torch: what the workers collated into numpy arrays, as torch's own loader would give it.

torch is used only where the user's process has loaded it. Workers collate into numpy arrays unless the samples are
tensors already, so they need no torch; here an array becomes a tensor that looks at the same memory.
"""

import sys
from typing import Any

from headrace.doors.replicas.tree import mapped


def torch_loaded() -> bool:
    return "torch" in sys.modules


def tensors(batch: object) -> Any:
    """The batch with every array as a tensor and every plain tuple as a list, as torch's default_collate has it."""
    return mapped(batch, _tensor, list)


def concatenate(parts: list[Any]) -> Any:
    """Tensors, or arrays, one behind the other."""
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat(parts)
    import numpy as np

    return np.concatenate(parts)


def seed_torch(seed: int) -> None:
    """Seed torch's generators, if torch is loaded."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def _tensor(leaf: object) -> Any:
    import numpy as np
    import torch

    if not isinstance(leaf, np.ndarray):
        return leaf
    try:
        # torch has no tensors that cannot be written to.
        return torch.from_numpy(leaf if leaf.flags.writeable else leaf.copy())
    except TypeError:
        return leaf  # strings, dates: torch has no such tensors
