"""How far counts are from what is expected, as a number of standard deviations."""

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def chi2(counts: ArrayLike, expected: ArrayLike, freedom: int | None = None) -> float:
    """Pearson's statistic, brought to a standard normal one by Wilson and Hilferty's cube root.

    Negative: the counts are closer to the expectation than chance would have them, which is just as wrong.
    """
    seen: Any = np.asarray(counts, dtype=np.float64)
    meant: Any = np.broadcast_to(np.asarray(expected, dtype=np.float64), seen.shape)
    freedom = freedom or seen.size - 1
    statistic = float(((seen - meant) ** 2 / meant).sum())
    deviation: float = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / sqrt(2 / (9 * freedom))
    return deviation
