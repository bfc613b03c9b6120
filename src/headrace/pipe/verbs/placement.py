"""Verbs that say where or how often ops run, and verbs between streams and tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.pipe.verbs.growing import Verbs, function, grow, start

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe
    from headrace.sources.listed import ItemsByEpoch

MULTIPROCESSING = 3
"""The sharding group of worker processes."""


class PlacementVerbs(Verbs):
    """What a Pipe can do with workers, caches and tables."""

    __slots__ = ()

    @staticmethod
    def listed(items: "ItemsByEpoch | Iterable[Any]") -> "Pipe[Any]":
        """Items that the training process lists itself, each epoch anew: indices of a sampler, names, prompts.

        Workers get one at a time, and whatever the list draws or holds stays where the loader is.
        """
        from headrace.sources.listed import ListedItems

        return start(ListedItems(items))

    def prefetch(self, buffer_size: int = 10) -> "Pipe[Any]":
        """Changes nothing: the engine reads ahead in every graph."""
        from headrace.ops.shape.same import Prefetch

        return grow(self, Prefetch(buffer_size))

    def in_memory_cache(self, size: int | None = None) -> "Pipe[Any]":
        """What stands before runs once per process; `size` bounds the memory, in megabytes."""
        from headrace.ops.shape.in_memory_cache import InMemoryCache
        from headrace.sources.table import CachedTable

        if self.indexed(0, 0) is not None:
            return start(CachedTable(self, size))
        return grow(self, InMemoryCache(size))

    def sharding_round_robin_dispatch(self, sharding_group_filter: object = None) -> "Pipe[Any]":
        """What stands before runs once, in one place; from here on, work is divided among workers."""
        from headrace.ops.shape.same import Dispatch

        if sharding_group_filter != MULTIPROCESSING:
            raise NotImplementedError(
                "`sharding_round_robin_dispatch` currently only supports `SHARDING_PRIORITIES.MULTIPROCESSING`. "
                "Please use `sharding_filter` for the other groups."
            )
        return grow(self, Dispatch(int(sharding_group_filter)))

    def fullsync(self, timeout: float = 1800) -> "Pipe[Any]":
        """All ranks stop after the same number of steps."""
        from headrace.ops.shape.same import FullSync

        return grow(self, FullSync(timeout))

    def pin_memory(self, device: object = None, pin_memory_fn: Callable[..., Any] | None = None) -> "Pipe[Any]":
        """Tensors in page-locked memory; runs where the training loop runs."""
        from headrace.ops.shape.pin_memory import PinMemory

        return grow(self, PinMemory(device, None if pin_memory_fn is None else function(pin_memory_fn)))

    def to_iter_datapipe(self, indices: Sequence[Any] | None = None) -> "Pipe[Any]":
        """The samples at `indices`, or at 0, 1, 2, ..., one after the other; needs random access."""
        from headrace.ops.order.pick import Pick

        if indices is None:
            return cast("Pipe[Any]", self)
        return grow(self, Pick(indices if isinstance(indices, Sequence) else list(cast(Iterable[Any], indices))))

    def to_map_datapipe(self, key_value_fn: Callable[[Any], Any] | None = None) -> "Pipe[Any]":
        """A table of (key, value) samples, read whole when the first is asked for: `pipe[key]`."""
        from headrace.pipe.verbs.keyed import Keyed
        from headrace.sources.table import KeyedTable

        source = cast("Pipe[Any]", self)
        return Keyed(KeyedTable(source, None if key_value_fn is None else function(key_value_fn)))
