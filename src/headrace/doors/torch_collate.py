"""Stacking tensors straight into the memory that travels to the consumer.

torch's `default_collate` looks its functions up by type in a table. In a worker of ours the entry for tensors is this
module's: what can be stacked as raw memory is, once, in its place; all the rest is left to torch's own function. A table
that somebody has changed is left as it is.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data._utils import collate as torchs

from headrace.op import place

_own = torchs.collate_tensor_fn


def stack_in_place() -> None:
    """From now on `default_collate` in this process stacks into the travelling memory. For worker processes only."""
    if torchs.default_collate_fn_map.get(torch.Tensor) is _own:
        torchs.default_collate_fn_map[torch.Tensor] = stack


def stack(batch: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    """The tensors on top of each other, in the type of the first one (that is torch's rule inside workers)."""
    first = batch[0]
    if not _plain(first):
        return _own(batch, collate_fn_map=collate_fn_map)  # type: ignore[no-any-return]
    nbytes = first.numel() * first.element_size() * len(batch)
    shape = (len(batch), *first.shape)
    if nbytes < place.worth:
        return torch.stack(batch, out=torch.empty(shape, dtype=first.dtype))  # type: ignore[arg-type]
    room = torch.frombuffer(place.empty((nbytes,), "u1"), dtype=first.dtype).view(shape)
    return torch.stack(batch, out=room)  # type: ignore[arg-type]


def _plain(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
