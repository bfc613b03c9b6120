"""Watch: a loader run under the profiler, batch by batch, in anybody's training loop.

    with Watch(loader) as watched:
        for batch in watched: train(batch)
    print(watched.profile().text())

It runs the loader's own program with its own policy, in workers of its own, with a clock around every op. Epochs follow
each other from the loader's next one; the loader itself is left as it was.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.epoch import Epoch
from headrace.engine.policy import Policy
from headrace.engine.pool import Pool
from headrace.engine.program import Program
from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.observe.meter import RUN, Meter
from headrace.observe.profile.record import MOST, MemoryLevel, Recorder, Turn

CPU_SECONDS = 0.5
"""How long single-threaded work is looked at to tell computing from waiting."""


@dataclass(slots=True)
class Record:
    """All that was seen."""

    program: Program
    policy: Policy
    recorder: Recorder
    began: float
    turns: list[Turn] = field(default_factory=list)
    levels: list[MemoryLevel] = field(default_factory=list)
    ended: float = 0.0
    """When the last step of the training loop was over."""
    retries: int = 0
    busy: float | None = None
    """Of the seconds that the pipe's work takes, the part in which it computes."""

    def steps(self) -> list[tuple[Turn, float]]:
        """Every turn, and when the step of the training loop that followed it was over."""
        over = [turn.asked for turn in self.turns[1:]] + [self.ended]
        return list(zip(self.turns, over, strict=False))


class Watch(Iterator[Any]):
    """Iterates a loader and notes what happens: one epoch, or as many as it takes for `seconds` or `batches`."""

    def __init__(self, loader: Loader[Any], *, seconds: float | None = None, batches: int | None = None) -> None:
        if not isinstance(loader, Loader):
            raise BadOption(f"a Loader can be profiled, not a {type(loader).__name__}; write Loader(pipe, workers=...)")
        self._loader = loader
        self._seconds, self._batches, self._most = seconds, batches, MOST
        self._endless = seconds is None and batches is None
        program = replace(loader.program, timed=1)
        self.record = Record(program, loader.policy, Recorder(), time.perf_counter())
        self._pool = Pool(program, loader.policy)
        self._number = loader.epoch
        self._epoch: Epoch[Any] | None = None
        self._in_epoch = 0

    def __next__(self) -> Any:
        record, recorder = self.record, self.record.recorder
        if recorder.full:
            return self._next()
        asked = time.perf_counter()
        record.ended = asked
        if record.turns and self._enough(asked):
            raise StopIteration
        recorder.full = len(record.turns) >= self._most
        waited, tail = recorder.waited, self._tail()
        batch = self._next()
        if not recorder.full:
            got = record.ended = time.perf_counter()
            record.turns.append(Turn(asked, got, recorder.waited - waited, self._tail() - tail))
            record.levels.append(self._level(got))
        return batch

    def _enough(self, now: float) -> bool:
        turns = self.record.turns
        if self._endless:
            return False
        if len(turns) >= (self._most if self._batches is None else self._batches):
            return True
        return self._seconds is not None and now - turns[0].got >= self._seconds

    def _next(self) -> Any:
        """The next batch, of the next epoch if need be; a pipe without batches ends at once."""
        while True:
            if self._epoch is None:
                self._epoch = Epoch(
                    self._pool, self.record.recorder, self._number, self._loader.world, ends=self._loader.ends
                )
                self._number, self._in_epoch = self._number + 1, 0
            for batch in self._epoch:
                self._in_epoch += 1
                return batch
            self._epoch = None
            if not self._in_epoch or self._endless:
                raise StopIteration

    def _tail(self) -> float:
        clock: dict[int, float] = self.record.recorder.tail
        return sum(spent for op, spent in clock.items() if op != RUN)

    def _level(self, now: float) -> MemoryLevel:
        arenas = [workers.arena for workers in self._pool.all()]
        recorder, last = self.record.recorder, self.record.program.last
        waiting = recorder.answered.get(last.number, 0) - len(self.record.turns) if last.single else 0
        return MemoryLevel(now, sum(a.total for a in arenas), sum(a.slots for a in arenas), max(0, waiting))

    def close(self) -> None:
        """Stop the workers. What was seen stays."""
        self.record.retries = sum(len(w.restarts) for w in self._pool.all())
        if self._epoch is not None:
            self._epoch.close()
            self._epoch = None
        self._pool.close()
        if self.record.busy is None and self.record.turns:
            self.record.busy = self._computing()

    def _computing(self) -> float:
        """How much of the pipe's work is computing: the part that more workers than cores cannot make faster."""
        inline = replace(self.record.policy, workers=0, kind="inline", start_method=None)
        pool = Pool(self.record.program, inline)
        until = time.perf_counter() + CPU_SECONDS
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            for _ in Epoch(pool, Meter(), self._loader.epoch, self._loader.world, ends=self._loader.ends):
                if time.perf_counter() > until:
                    break
        finally:
            pool.close()
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        return min(1.0, cpu / wall) if wall > 0 else 1.0

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(watch: Watch, consumer: Callable[[Any], Any] | None) -> Record:
    """Read until the watch has seen enough, with `consumer` in the place of the training step."""
    with watch:
        for batch in watch:
            if consumer is not None:
                consumer(batch)
            del batch  # not held while the next one is fetched: its slot is free
    return watch.record
