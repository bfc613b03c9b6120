"""Batch map: a function on many samples of a batch at the same time, in threads or as coroutines; results in order."""

from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from headrace.op import Each, Spot, place
from headrace.ops.counts import positive
from headrace.tables.ops.columns import check_arity, check_columns, pick, put


@dataclass(frozen=True, slots=True)
class ThreadMap(Each[list[Any], list[Any]]):
    """The results of `fn` for every sample of a batch; at most `max_workers` of them run at the same time."""

    fn: Callable[..., Any]
    input_col: Any = None
    output_col: Any = None
    max_workers: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    """More arguments for the ThreadPoolExecutor."""
    user = True
    verb = "threadpool_map"

    def __post_init__(self) -> None:
        check_columns(self.input_col, self.output_col)
        check_arity(self.fn, self.input_col)
        if isinstance(self.output_col, list | tuple):
            object.__setattr__(self, "output_col", self.output_col[0])

    def apply(self, sample: list[Any]) -> list[Any]:
        here, first = place.spot.here, place.spot.position * len(sample)

        def one(number: int) -> Any:
            if here is not None:
                # So that rng() in this thread is keyed by this very sample.
                of_thread = copy(here)
                of_thread.spot = Spot()
                place.at(of_thread, first + number)
            item = sample[number]
            if self.input_col is None:
                return self.fn(item)
            return put(item, self.input_col, self.output_col, self.fn(*pick(item, self.input_col)))

        with ThreadPoolExecutor(self.max_workers, **dict(self.options)) as pool:
            return list(pool.map(one, range(len(sample))))


@dataclass(frozen=True, slots=True)
class AsyncMap(Each[list[Any], list[Any]]):
    """The results of `fn` for every sample of a batch; at most `max_concurrency` of them run at the same time."""

    fn: Callable[..., Awaitable[Any]]
    input_col: Any = None
    output_col: Any = None
    max_concurrency: int = 32
    user = True

    def __post_init__(self) -> None:
        if not iscoroutinefunction(self.fn):
            raise ValueError(f"Expected a corotine function with an async def syntax, but got a {type(self.fn)}")
        check_columns(self.input_col, self.output_col)
        check_arity(self.fn, self.input_col)
        positive(self.max_concurrency, f"'max_concurrency' must be a positive number, not {self.max_concurrency!r}")
        if isinstance(self.output_col, list | tuple):
            object.__setattr__(self, "output_col", self.output_col[0])

    def apply(self, sample: list[Any]) -> list[Any]:
        return run(self._all(sample))

    async def _all(self, batch: list[Any]) -> list[Any]:
        import asyncio

        room = asyncio.Semaphore(self.max_concurrency)

        async def one(sample: object) -> Any:
            async with room:
                if self.input_col is None:
                    return await self.fn(sample)
                value = await self.fn(*pick(sample, self.input_col))
                return put(sample, self.input_col, self.output_col, value)

        return list(await asyncio.gather(*[one(sample) for sample in batch]))


def run(work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """The result of the coroutine, in an event loop of its own."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # The caller's thread runs an event loop already (as in a notebook): this one needs another thread.
    with ThreadPoolExecutor(1, "headrace async map") as pool:
        return pool.submit(asyncio.run, work).result()
