"""Tensors for users of torch: what the workers collated into numpy arrays, as torch's own loader would give it.

torch is used only where the user's process has loaded it. Workers collate into numpy arrays unless the samples are
tensors already, so they need no torch; here an array becomes a tensor that looks at the same memory.
"""

import sys
from typing import Any

from headrace.doors.replicas.tree import mapped


class AsTorchHasIt:
    """Batches as torch's default_collate has them: every array is a tensor, every plain tuple a list.

    That is so from the first batch on, if torch is loaded by then.
    """

    def __init__(self) -> None:
        self._convert: bool | None = None

    def __call__(self, batch: object) -> Any:
        if self._convert is None:
            self._convert = "torch" in sys.modules
        return mapped(batch, _tensor, list) if self._convert else batch


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
