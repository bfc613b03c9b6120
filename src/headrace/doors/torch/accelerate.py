"""Accelerate's way with the state of a loader that dispatches batches.

With `dispatch_batches=True` rank 0 takes a batch for every rank at each step, and asks for the state before each of
them; the state that it saves is the last one, taken back by the batches of the other ranks. It does that by a key of
torchdata's state, so such a caller gets that key. (Without `dispatch_batches` it would take too much back, and a state
without the key is the right one.)
"""

from dataclasses import replace
from types import FrameType
from typing import Any

from headrace.doors.torch.state import UNCOUNTED, LoaderPlace, StreamPlace

TAKEN = "_num_yielded"
"""Of torchdata's state: batches delivered."""
FINISHED = "_iterator_finished"
"""Of torchdata's state: the next iterator begins the next epoch."""


def dispatches(caller: FrameType) -> bool:
    """Whether this is a loader of Accelerate's that takes the batches of all ranks."""
    if caller.f_globals.get("__name__") != "accelerate.data_loader":
        return False
    owner: Any = caller.f_locals["self"]
    kinds = [kind.__name__ for kind in type(owner).__mro__]
    return "DataLoaderDispatcher" in kinds and not owner.split_batches and owner.submesh_tp is None


def go_back(at: LoaderPlace, batches: object, size: int) -> LoaderPlace:
    """The place in the epoch after so many batches, if that is an earlier one."""
    if not isinstance(batches, int) or not 0 <= batches < at.batches:
        return at
    if isinstance(at, StreamPlace):
        return replace(at, batches=batches, place=None)
    samples = UNCOUNTED if at.size == 0 else max(0, at.samples - (at.batches - batches) * size)
    return replace(at, batches=batches, samples=samples, done=(), iterator=None)
