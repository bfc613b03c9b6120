"""Async map: a coroutine function over the samples of one batch, many at a time, in order."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from headrace.op import Each
from headrace.ops.counts import positive
from headrace.tables.ops.columns import check_arity, check_columns, pick, put


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
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    # The caller's thread runs a loop already (a notebook does): ours needs a thread of its own.
    done: list[Any] = []
    failed: list[BaseException] = []

    def aside() -> None:
        try:
            done.extend(asyncio.run(work))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=aside, name="headrace async map")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done
