"""Together: a data set that reads many samples in one call is asked for those of a ticket at once.

The call is torch's: `__getitems__`, which takes a list of indices and returns a list of samples. What comes out is what
`[i]` gives, sample by sample: `ahead(positions)` reads the samples that are asked for next, and `get` hands them out.

    `__getitems__` raises          the samples are read by `[i]`: the one at fault is named
    ... and `[i]` reads them all   a warning; after VAIN such calls in a row it is not asked again in this epoch
    another number of samples      an error
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.errors import BadPipe
from headrace.op import Here

VAIN = 3
SUBSET = "torch.utils.data.dataset"
"""The module of torch's Subset, which hands `__getitems__` on, or else reads one by one."""
log = logging.getLogger("headrace")


def reads_together(data: Any) -> Callable[[list[int]], Any] | None:
    """`__getitems__` of a data set, where it says the same as `[i]` in fewer calls."""
    owners = [base.__dict__.keys() & {"__getitem__", "__getitems__"} for base in type(data).__mro__]
    # (A class that says anew what `[i]` is would be passed over by the `__getitems__` of one that it extends.)
    if "__getitems__" not in next(filter(None, owners), ()):
        return None
    inner = data
    while getattr(getattr(type(inner), "__getitems__", None), "__module__", None) == SUBSET:
        inner = inner.dataset
    found: Callable[[list[int]], Any] = data.__getitems__
    return found if inner is data or reads_together(inner) is not None else None


class Together:
    """Samples of one opened source that were read in one call, until `get` hands them out."""

    def __init__(self, many: Callable[[list[int]], Any], read: Callable[[int], Any], here: Here) -> None:
        self._many, self._read, self._here = many, read, here
        self._kept: dict[int, list[Any]] = {}
        self._vain = 0

    def get(self, position: int) -> Any:
        kept = self._kept.get(position)
        if not kept:
            return self._read(position)
        spot = self._here.spot
        spot.here, spot.made = self._here, None
        spot.position = spot.index = position
        return kept.pop()

    def ahead(self, positions: Sequence[int]) -> None:
        self._kept = {}
        if len(positions) < 2 or self._vain == VAIN:
            return
        spot = self._here.spot
        spot.here = None  # (`rng()` belongs to one sample, so it raises here: the samples are then read one by one)
        try:
            found = self._many(list(positions))
        except (Exception, SystemExit) as error:
            self._read_each(positions, error)
            return
        finally:
            spot.here, spot.position = self._here, positions[0]
        self._check(found, positions)
        self._vain = 0
        for position, sample in zip(positions, found, strict=True):
            self._kept.setdefault(position, []).append(sample)

    def _check(self, found: Any, positions: Sequence[int]) -> None:
        whose = f"{type(self._many.__self__).__name__}.__getitems__()"  # type: ignore[attr-defined]
        if isinstance(found, Mapping | str | bytes) or not hasattr(found, "__len__"):
            raise BadPipe(f"{whose} returned a {type(found).__name__}: it must return a list of samples")
        if len(found) != len(positions):
            raise BadPipe(f"{whose} returned {len(found)} samples for {len(positions)} indices, from {positions[0]} on")

    def _read_each(self, positions: Sequence[int], error: BaseException) -> None:
        """Read the samples one by one, as far as they can be read: `get` meets an error of one again, and names it."""
        for position in positions:
            try:
                sample = self._read(position)
            except (Exception, SystemExit):
                return
            self._kept.setdefault(position, []).append(sample)
        self._vain += 1
        end = ", so it is not asked again in this epoch" if self._vain == VAIN else ""
        log.warning("__getitems__ raised %r, and each of its samples could be read by itself%s", error, end)
