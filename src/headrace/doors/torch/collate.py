"""torch's `default_collate`, the same results by shorter ways.

Numbers go through numpy, which is ten times as fast, and tensors are stacked straight into the memory that travels to
the consumer, where the loader itself collates (`light`). What user code collates in a worker may be kept there, so it
gets memory of its own, by other functions in the table that `default_collate` looks them up in. What is unusual in any
way is left to torch's own function; an entry that somebody has changed stays.
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
    """The batch collated here, where torch is."""
    return numpy_collate.collated(batch, torch.from_numpy, _rest) if unchanged() else torchs.default_collate(batch)


def _rest(batch: Any) -> Any:
    """What consists neither of numbers nor of arrays."""
    if isinstance(batch, list | tuple) and batch and _stackable(batch[0]):
        first = batch[0]
        nbytes = first.numel() * first.element_size() * len(batch)
        if nbytes >= place.worth:
            room = torch.frombuffer(place.empty((nbytes,), "u1"), dtype=first.dtype).view(len(batch), *first.shape)
            return torch.stack(batch, out=room)
    return torchs.default_collate(batch)


def shorter(collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function itself, or ours for torch's."""
    return numpy_collate.default_collate if collate_fn is torchs.default_collate else collate_fn


def use_everywhere() -> None:
    """User code that calls torch's `default_collate` gets shorter ways too. For worker processes only."""
    table = torchs.default_collate_fn_map
    table.update({kind: ours for kind, ours in _OURS.items() if table.get(kind) is _TORCHS[kind]})


def unchanged() -> bool:
    """Nobody has registered functions of their own with torch's."""
    return torchs.default_collate_fn_map in (_WITH_OURS, _TORCHS)


def _by_numpy(kind: object, array: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """The function for this entry: through `array`, or torch's own."""

    def made(batch: Sequence[Any], *, collate_fn_map: Table | None = None) -> Any:
        # (Of arrays torch makes tensors, and collates those: by another function, if somebody has given one.)
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
    """It is a plain tensor, in a worker."""
    return (
        type(tensor) is torch.Tensor
        and get_worker_info() is not None
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
    )


_TORCHS: Table = dict(torchs.default_collate_fn_map)
_OURS: Table = {
    **{kind: _by_numpy(kind, numpy_collate.numbers) for kind in (_SCALARS, float, int)},
    np.ndarray: _by_numpy(np.ndarray, partial(numpy_collate.stacked, travels=False)),
    torch.Tensor: _tensors,
}
_WITH_OURS: Table = _TORCHS | _OURS
