"""Datasets whose module does not import torch."""

import sys
from typing import Any

import numpy as np


class Numbers:
    """Samples that say whether torch has been imported where they were made."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return index, np.full(3000, index, "f4"), "torch" in sys.modules


class Asking(Numbers):
    """Samples that need torch after all."""

    def __getitem__(self, index: int) -> Any:
        import torch.utils.data

        info = torch.utils.data.get_worker_info()
        return index, info.id if info else -1, torch.rand(2), torch.get_num_threads()
