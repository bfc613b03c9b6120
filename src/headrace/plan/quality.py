"""Quality: how far an order is from a uniform permutation, in figures that `explain()` shows.

Real data is often stored sorted (by class, day, source), so what matters is how well a batch mixes rows that are stored
far from each other. The figures come from the positions of some batches; no data is read.
"""

from typing import NamedTuple

import numpy as np

from headrace.plan.order import Ints, Order

BATCH = 256
BATCHES = 64
STRETCHES = 10
"""The stored rows are cut into so many stretches, as if each were a class."""


class Quality(NamedTuple):
    """Of an order over stored rows, in batches of `batch`."""

    travel: float
    """How far a row is from where it is stored, as a part of all rows: a third in a uniform order."""
    units: float
    """Units that a batch holds rows of."""
    uniform_units: float
    """The same in a uniform order."""
    spread: float
    """Chi-square over its degrees of freedom, of how many rows of each stretch a batch holds: 1 in a uniform order."""
    batch: int

    def __str__(self) -> str:
        return (
            f"a row travels {self.travel:.2f} of the data (uniform: 0.33), a batch of {self.batch} holds rows of "
            f"{self.units:.0f} units (uniform: {self.uniform_units:.0f}), chi-square of a batch {self.spread:.2f} "
            "(uniform: 1, stored order: far above)"
        )


def quality(order: Order, ends: Ints, batch: int = BATCH) -> Quality:
    """The figures of an order whose units end at `ends`."""
    length = order.length
    batch = max(1, min(batch, length))
    if not length:
        return Quality(0.0, 0.0, 0.0, 0.0, batch)
    starts = np.linspace(0, length - batch, min(BATCHES, length // batch)).astype(np.int64)
    positions = starts[:, None] + np.arange(batch)  # shape: (batches, batch)
    rows = order(positions.reshape(-1)).reshape(positions.shape)
    travel = float(np.abs(rows - positions).mean()) / length
    unit = np.searchsorted(ends, rows, side="right")
    mixed = float(np.mean([len(np.unique(of_batch)) for of_batch in unit]))
    # The chance that none of a batch's rows is one of a unit, for rows drawn without looking.
    share = np.diff(ends, prepend=0) / length
    uniform = float((1 - (1 - share) ** batch).sum())
    counts = np.stack([(rows * STRETCHES // length == number).sum(axis=1) for number in range(STRETCHES)], axis=1)
    expected = batch / STRETCHES
    spread = float(((counts - expected) ** 2 / expected).sum(axis=1).mean()) / (STRETCHES - 1)
    return Quality(travel, mixed, uniform, spread, batch)
