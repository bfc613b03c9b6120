"""Ids: tokens are whole numbers within int32, the type of the arrays that rows are made of.

Numpy raises nothing when it puts other numbers into such an array: 2**40 + 5 becomes 5, 1.7 becomes 1, NaN any number.
So values are checked before, wherever their type can hold what int32 cannot.
"""

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption

LEAST, MOST = -(2**31), 2**31 - 1


def check_ids(values: NDArray[Any], whose: str) -> None:
    """Raise an error that begins with `whose` unless every value can be a token id."""
    dtype = values.dtype
    kind, size = dtype.kind, dtype.itemsize
    if (size <= 4 and kind in "ib") or (size < 4 and kind == "u") or not values.size:
        return
    if kind in "iu" and 0 <= np.bitwise_or.reduce(values) <= MOST:  # one quick look: no value has a bit above those
        return
    if kind not in "iu":
        raise BadOption(f"{whose} holds values of type {dtype}: token ids must be whole numbers within int32")
    low, high = int(values.min()), int(values.max())
    if low < LEAST or high > MOST:
        raise BadOption(
            f"{whose} has the token id {low if low < LEAST else high}: ids must be whole numbers within int32, "
            f"{LEAST} to {MOST}"
        )


def ids_of(values: Any, whose: str) -> NDArray[np.int32]:
    """These values as a new array of ids."""
    if isinstance(values, list):
        try:
            return np.array(array("i", values), np.int32)  # which takes whole numbers only, as fast as numpy any
        except (TypeError, OverflowError):
            pass  # said below
    found = np.asarray(values)
    check_ids(found, whose)
    return found.astype(np.int32)
