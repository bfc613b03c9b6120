"""torch's `default_collate`, the same results by faster ways.

Numbers go through numpy, which is ten times as fast. Where the loader itself collates (`numpy_collate`), tensors are
stacked straight into the memory that travels to the consumer. User code that calls `default_collate` in a worker may
keep the result there, so it gets new memory, by other functions in the table that `default_collate` looks them up in.
What is unusual in any way is left to torch's function, and an entry of the table that the user has changed stays.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate

from headrace.doors.torch import numpy_collate as numpy_collate
from headrace.op import place

torchs: Any = collate
Table = dict[Any, Callable[..., Any]]

_SCALARS = (np.bool_, np.number, np.object_)


def with_torch(batch: object) -> Any:
    """The batch as tensors, where torch is imported."""
    return numpy_collate.collated(batch, torch.from_numpy, _rest) if unchanged() else torchs.default_collate(batch)


def _rest(batch: Any) -> Any:
    """Collate what consists neither of numbers nor of arrays."""
    if isinstance(batch, list | tuple) and batch and _stackable(batch[0]):
        first = batch[0]
        nbytes = first.numel() * first.element_size() * len(batch)
        if nbytes >= place.worth:
            room = torch.frombuffer(place.empty((nbytes,), "u1"), dtype=first.dtype).view(len(batch), *first.shape)
            return torch.stack(batch, out=room)
    return torchs.default_collate(batch)


def shorter(collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function itself, or ours in place of torch's `default_collate`."""
    return numpy_collate.default_collate if collate_fn is torchs.default_collate else collate_fn


def use_everywhere() -> None:
    """Let user code that calls torch's `default_collate` have the faster ways too. For worker processes only."""
    table = torchs.default_collate_fn_map
    table.update({kind: ours for kind, ours in _OURS.items() if table.get(kind) is _TORCHS[kind]})


def unchanged() -> bool:
    """Whether the user has registered no collate functions with torch."""
    return torchs.default_collate_fn_map in (_WITH_OURS, _TORCHS)


def _by_numpy(kind: object, array: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """The function for this entry: through `array`, or torch's own."""

    def made(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
        # (Of arrays torch makes tensors, and collates those: by the user's function, if there is one.)
        by_tensors = (collate_fn_map or {}).get(torch.Tensor)
        if kind is not np.ndarray or by_tensors in (_tensors, _TORCHS[torch.Tensor]):
            try:
                return torch.from_numpy(array(batch))
            except numpy_collate.LeaveToTorch:
                pass
        return _TORCHS[kind](batch, collate_fn_map=collate_fn_map)

    return made


def _tensors(batch: Sequence[Any], *, collate_fn_map: object = None) -> Any:
    """The tensors on top of each other, in the type of the first one, which is torch's rule in a worker too."""
    first = batch[0]
    if not _stackable(first):
        return _TORCHS[torch.Tensor](batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, out=torch.empty((len(batch), *first.shape), dtype=first.dtype))  # type: ignore[arg-type]


def _stackable(tensor: object) -> bool:
    """Whether it is a plain tensor, in a worker."""
    return (
        type(tensor) is torch.Tensor
        and get_worker_info() is not None
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_nested
    )


_TORCHS: Table = dict(torchs.default_collate_fn_map)
_OURS: Table = {
    **{kind: _by_numpy(kind, numpy_collate.numbers) for kind in (_SCALARS, float, int)},
    np.ndarray: _by_numpy(np.ndarray, partial(numpy_collate.stacked, travels=False)),
    torch.Tensor: _tensors,
}
_WITH_OURS: Table = _TORCHS | _OURS
