"""torch's `default_collate`, the same results by shorter ways.

`default_collate` looks its functions up by type in a table. Here are other functions for some entries: numbers go
through numpy, which is ten times as fast, and tensors are stacked straight into the memory that travels to the
consumer, where the loader itself collates. What user code collates in a worker may be kept there, so it gets memory of
its own. What is unusual in any way is left to torch's own function; an entry that somebody has changed stays.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import collate as torchs

from headrace.doors.torch import light as torch_light
from headrace.op import place

Table = dict[Any, Callable[..., Any]]

_SCALARS = (np.bool_, np.number, np.object_)


def with_torch(batch: object) -> Any:
    """The batch collated here, where torch is."""
    return torchs.collate(batch, collate_fn_map=_Latest.table())


def shorter(collate_fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function itself, or ours for torch's."""
    return torch_light.default_collate if collate_fn is torchs.default_collate else collate_fn


def use_everywhere() -> None:
    """User code that calls torch's `default_collate` gets shorter ways too. For worker processes only."""
    torchs.default_collate_fn_map.update(_replaced(_KEPT))


def unchanged() -> bool:
    """Nobody has registered functions of their own with torch's."""
    table = torchs.default_collate_fn_map
    return table.keys() == _TORCHS.keys() and all(f is _TORCHS[k] or f is _KEPT.get(k) for k, f in table.items())


def _by_numpy(kind: object, array: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
    """The function for this entry: through `array`, or torch's own."""

    def collate(batch: Sequence[Any], *, collate_fn_map: object = None) -> Any:
        try:
            return torch.from_numpy(array(batch))
        except torch_light.Unusual:
            return _TORCHS[kind](batch, collate_fn_map=collate_fn_map)

    return collate


def _stacking(travels: bool) -> Table:
    """The functions for arrays and tensors; their results lie in the travelling memory, or not."""

    def arrays(batch: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
        by_torch = collate_fn_map is None or collate_fn_map.get(torch.Tensor) not in (tensors, _TORCHS[torch.Tensor])
        try:
            if not by_torch:
                return torch.from_numpy(torch_light.stacked(batch, travels))
        except torch_light.Unusual:
            pass
        return _TORCHS[np.ndarray](batch, collate_fn_map=collate_fn_map)  # type: ignore[no-any-return]

    def tensors(batch: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
        """The tensors on top of each other, in a worker in the type of the first one; that is torch's rule too."""
        first = batch[0]
        if get_worker_info() is None or not _plain(first):
            return _TORCHS[torch.Tensor](batch, collate_fn_map=collate_fn_map)  # type: ignore[no-any-return]
        nbytes = first.numel() * first.element_size() * len(batch)
        shape = (len(batch), *first.shape)
        if not travels or nbytes < place.worth:
            room = torch.empty(shape, dtype=first.dtype)
        else:
            room = torch.frombuffer(place.empty((nbytes,), "u1"), dtype=first.dtype).view(shape)
        return torch.stack(batch, out=room)  # type: ignore[arg-type]

    return {torch.Tensor: tensors, np.ndarray: arrays}


def _plain(tensor: object) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
    )


_TORCHS: Table = dict(torchs.default_collate_fn_map)
_NUMBERS_OF: Table = {
    _SCALARS: _by_numpy(_SCALARS, torch_light.scalars),
    float: _by_numpy(float, torch_light.floats),
    int: _by_numpy(int, torch_light.ints),
}
_TRAVELLING: Table = _NUMBERS_OF | _stacking(travels=True)
_KEPT: Table = _NUMBERS_OF | _stacking(travels=False)


class _Latest:
    """The table for our own collate_fn, made again only when torch's was changed."""

    made_of: Table | None = None
    made: Table

    @classmethod
    def table(cls) -> Table:
        if cls.made_of != torchs.default_collate_fn_map:
            cls.made_of, cls.made = dict(torchs.default_collate_fn_map), _replaced(_TRAVELLING)
        return cls.made


def _replaced(ours: Table) -> Table:
    """torch's table as it is now, in its own order, with ours where it is still torch's (or, in a worker, ours)."""
    table = {}
    for kind, function in torchs.default_collate_fn_map.items():
        own = _TORCHS.get(kind)
        table[kind] = ours.get(kind, function) if function is own or function is _KEPT.get(kind) else function
    return table
