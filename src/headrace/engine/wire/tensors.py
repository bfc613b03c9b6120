"""Tensors on their way: the memory they look into, and how they look at it.

Two tensors over one memory are still that where they arrive, and strides stay as they are (`channels_last`, transposed,
expanded). A tensor that is a small part of its memory, such as one row of a dataset, travels alone, with its strides if
they leave no gaps: nobody wants a whole dataset to travel with each of its rows.
"""

import pickle
import sys
from types import ModuleType
from typing import Any

MOST = 4
"""Times its own size that the memory behind a tensor may have to travel whole."""
ALWAYS = 4096
"""Bytes that always may."""


def travels_whole(memory: int, tensor: int) -> bool:
    """Whether a memory of so many bytes travels whole when a tensor of so many bytes looks into it."""
    return memory <= max(MOST * tensor, ALWAYS)


class _Memory:
    """The memory behind one or more tensors; pickle writes it once."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __reduce__(self) -> Any:
        return _arrived, (pickle.PickleBuffer(self.raw.numpy()),)


class Memories:
    """The memories that tensors of one object look into."""

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}

    def clear(self) -> None:
        """The next object begins."""
        self._known.clear()

    def reduce(self, tensor: Any) -> Any:
        """A tensor for pickle."""
        torch: Any = sys.modules["torch"]
        plain = (
            tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
            and not tensor.is_conj() and not tensor.is_neg() and not tensor.is_nested
        )  # fmt: skip
        if not plain:
            return tensor.__reduce_ex__(5)
        dtype, grad = str(tensor.dtype)[6:], tensor.requires_grad
        if tensor.numel() == 0:
            return _empty, (dtype, tuple(tensor.shape), grad)
        tensor = tensor.detach()
        if not travels_whole(tensor.untyped_storage().nbytes(), tensor.nbytes):
            tensor = tensor.clone()  # keeps strides that have no gaps
        layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return _view, (self._memory(torch, tensor), dtype, *layout, grad)

    def _memory(self, torch: ModuleType, tensor: Any) -> _Memory:
        storage = tensor.untyped_storage()
        known = self._known.get(storage.data_ptr())
        if known is None:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            # (It holds the memory, so that nothing else can come to lie there before the object is written.)
            known = self._known[storage.data_ptr()] = _Memory(raw)
        return known


def _arrived(raw: object) -> Any:
    import torch

    return torch.frombuffer(raw, dtype=torch.uint8)


def _view(memory: Any, dtype: str, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], grad: bool) -> Any:
    import torch

    tensor = torch.empty(0, dtype=getattr(torch, dtype)).set_(memory.untyped_storage(), offset, shape, stride)
    return tensor.requires_grad_() if grad else tensor


def _empty(dtype: str, shape: tuple[int, ...], grad: bool) -> Any:
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype), requires_grad=grad)
