"""`headrace.share(obj)`: freeze data into shared memory once, for every worker to read without a copy.

    items = headrace.share([{"path": ..., "label": ...}, ...])        # do this once, then forget the plain list

Worker processes that read a plain list of Python objects copy it, page by page: reading writes reference counts. What
`share` returns has none. It is in anonymous memory, written once and sealed, and costs a worker nothing, however it
was started: forked workers have it already, and others get an address of a few bytes.

    list        SharedList, a Sequence             str bytes int float complex bool None    themselves, decoded anew
    dict        SharedDict, a Mapping              numpy scalars                            themselves
    tuple       tuple; above 16 items SharedTuple  numpy array                              read-only array, no copy
    namedtuple  itself                             torch tensor                             tensor, no copy

Anything else is refused with its place, for example `[17]['label'][2] is a set`. Changing a view is a TypeError;
`copy.deepcopy(view)` is a plain object again. A tensor cannot be made read-only: a write to one is seen by this
process only. A bare array or tensor that is pickled travels by copy, as all arrays do; put it into a list or a dict.

The memory is freed when the last view of it, in any process, is gone. Workers that are not forked open it through the
process that called `share`: keep the object alive there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from headrace.memory.freeze import freeze
from headrace.memory.layout import column
from headrace.memory.views import SharedDict, SharedList, SharedTuple
from headrace.tracebacks import short_errors

__all__ = ["SharedDict", "SharedList", "SharedTuple", "share"]

T = TypeVar("T")
K = TypeVar("K")


@overload
def share(obj: list[T]) -> Sequence[T]: ...
@overload
def share(obj: dict[K, T]) -> Mapping[K, T]: ...
@overload
def share(obj: T) -> T: ...
@short_errors
def share(obj: object) -> Any:
    """Freeze `obj` into shared memory; what comes back is equal to it."""
    if isinstance(obj, (SharedDict, SharedList, SharedTuple)):
        return obj
    segment = freeze(obj)
    return column(segment, len(segment.contents) - 1).read(0)
