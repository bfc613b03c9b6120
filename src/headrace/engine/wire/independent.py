"""Independent: a sample that stays as it is whatever user code does next.

A dataset or a map may fill the same buffer for every sample and return it each time. Where samples of one ticket are
handed on one by one, each is made independent before the next is asked for: arrays, tensors and containers of them are
copied (in a worker process straight into the slot, where they have to go anyway), numbers and text are as they are.
Objects of other classes are handed on as they are: an object that is used again must be copied by whoever returns it.
"""

import copy
import sys
from typing import Any

from headrace.op import place
from headrace.ops.copies import copier


def _array(array: Any) -> Any:
    if type(array) is not sys.modules["numpy"].ndarray:
        return array.copy()
    if array.dtype.hasobject:
        return copy.deepcopy(array)
    if not array.flags.c_contiguous or array.dtype.metadata is not None:
        return array.copy(order="K")
    same = place.empty(array.shape, array.dtype)
    same[...] = array
    return same


def _tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.is_contiguous():
        try:
            return torch.from_numpy(_array(tensor.numpy()))
        except (RuntimeError, TypeError):
            pass  # of a type or in a place that numpy does not know
    return tensor.clone()


independent = copier(_array, _tensor)
"""The sample, or a copy of what could still be changed in it."""
