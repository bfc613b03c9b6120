"""The same pairs in a module that imports torch, as many data sets do; workers that load it pay for that import."""

import torch

from benchmarks.data import Pairs


class TorchPairs(Pairs):
    """`(int, float32)`, from a class that cannot be loaded without torch."""

    needs = torch.Tensor
