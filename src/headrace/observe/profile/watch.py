"""A loader run under the profiler, batch by batch, in any training loop.

    with Watch(loader) as watched:
        for batch in watched: train(batch)
    print(Profile(watched.record).text())

It runs the loader's own program with its own policy, in workers of its own, with a clock around every op. Epochs follow
each other from the loader's next one; the loader itself is left as it was.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headrace.engine.epoch import Epoch
from headrace.engine.pool import Pool
from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.observe.meter import RUN
from headrace.observe.profile.record import MOST, BatchTiming, MemoryLevel, Record


class Watch(Iterator[Any]):
    """Iterates a loader and notes what happens: one epoch, or as many as it takes for `seconds` or `batches`."""

    def __init__(self, loader: Loader[Any], *, seconds: float | None = None, batches: int | None = None) -> None:
        if not isinstance(loader, Loader):
            raise BadOption(f"a Loader can be profiled, not a {type(loader).__name__}; write Loader(pipe, workers=...)")
        self._loader = loader
        self._seconds, self._batches = seconds, batches
        self._one_epoch = seconds is None and batches is None
        program = replace(loader.program, timed=1)
        self.record = Record(program, loader.policy)
        self._pool = Pool(program, loader.policy)
        self._next_epoch = loader.epoch
        self._epoch: Epoch[Any] | None = None

    def __next__(self) -> Any:
        record = self.record
        if record.full:
            return self._next()
        asked = record.ended = time.perf_counter()
        if record.timings and self._enough(asked):
            raise StopIteration
        record.full = len(record.timings) >= MOST
        waited, tail = record.waited, self._tail()
        batch = self._next()
        if not record.full:
            got = record.ended = time.perf_counter()
            record.timings.append(BatchTiming(asked, got, record.waited - waited, self._tail() - tail))
            record.levels.append(self._level(got))
        return batch

    def _enough(self, now: float) -> bool:
        batches = self.record.timings
        if self._one_epoch:
            return False
        if len(batches) >= (MOST if self._batches is None else self._batches):
            return True
        return self._seconds is not None and now - batches[0].got >= self._seconds

    def _next(self) -> Any:
        """The next batch, of the next epoch if need be; a pipe without batches ends at once."""
        while True:
            if self._epoch is None:
                world, ends = self._loader.world, self._loader.ends
                self._epoch = Epoch(self._pool, self.record, self._next_epoch, world, ends=ends)
                self._next_epoch += 1
            for batch in self._epoch:
                return batch
            empty = not self._epoch.received
            self._epoch = None
            if empty or self._one_epoch:
                raise StopIteration

    def _tail(self) -> float:
        """Seconds so far in ops that run in the training process."""
        clock: dict[int, float] = self.record.tail
        return sum(spent for op, spent in clock.items() if op != RUN)

    def _level(self, now: float) -> MemoryLevel:
        arenas = [workers.arena for workers in self._pool.all()]
        record, last = self.record, self.record.program.last
        waiting = record.answered.get(last.number, 0) - len(record.timings) if last.single else 0
        return MemoryLevel(now, sum(a.total for a in arenas), sum(a.slots for a in arenas), max(0, waiting))

    def close(self) -> None:
        """Stop the workers. What was seen stays."""
        self.record.retries = sum(len(w.restarts) for w in self._pool.all())
        if self._epoch is not None:
            self._epoch.close()
            self._epoch = None
        self._pool.close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
