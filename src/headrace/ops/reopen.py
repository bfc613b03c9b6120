"""Reopen: the input of an op from its start, once more.

An op is given its inputs opened. Some must read them again: a cache that wants the stream of another epoch, an object
of the user's that iterates its source twice. That is possible wherever the whole input can be opened here; what workers
deliver to the consumer comes only once.
"""

import copy
from typing import Any


def reopened(cursor: Any, *, epoch: int | None = None, turn: int = 0) -> Any:
    """A new cursor over the same input, or None if it cannot be had."""
    if not _whole(cursor):
        return None
    opening = copy.copy(cursor._opening)
    opening.opened = {}
    if epoch is not None:
        opening.epoch = epoch
    return opening.open(cursor.node, None, turn)


def _whole(cursor: Any) -> bool:
    """Whether everything under a cursor was opened here."""
    return hasattr(cursor, "_opening") and all(_whole(below) for below in cursor.inputs)
