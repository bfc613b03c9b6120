"""Verbs that say where or how often something runs."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from headrace.pipe.verbs.callables import function
from headrace.pipe.verbs.growing import grow, start

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe
    from headrace.sources.listed import ListOfItems

MULTIPROCESSING = 3
"""The sharding group of worker processes."""


class PlaceVerbs:
    """What a Pipe can say about places."""

    __slots__ = ()

    @staticmethod
    def listed(items: "ListOfItems | Iterable[Any]") -> "Pipe[Any]":
        """Items that the training process lists itself, each epoch anew: indices of a sampler, names, prompts.

        Workers get one at a time, and whatever the list draws or holds stays where the loader is.
        """
        from headrace.sources.listed import Listing

        return start(Listing(items))

    def prefetch(self, buffer_size: int = 10) -> "Pipe[Any]":
        """A mark: reading ahead is done by the engine in every graph."""
        from headrace.ops.shape.same import Prefetch

        return grow(self, Prefetch(buffer_size))

    def in_memory_cache(self, size: int | None = None) -> "Pipe[Any]":
        """What stands before runs once per process; `size` bounds the memory, in megabytes."""
        from headrace.ops.shape.in_memory_cache import InMemoryCache
        from headrace.sources.table import CachedTable

        if cast("Pipe[Any]", self).indexed(0, 0) is not None:
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
