"""Random graphs of DataPipes, with branches, and the ways to run them."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import headrace
from headrace.datapipes.iter import IterableWrapper, IterDataPipe
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.services import MultiProcessingReadingService


def value_of(x: Any) -> int:
    if isinstance(x, list | tuple):
        return sum(map(value_of, x))
    return 0 if x is None else int(x)


def double(x: Any) -> Any:
    return (x, 2 * value_of(x))


def keyed(x: Any) -> Any:
    return (x, round(1000 * float(headrace.rng().random())))


def odd(x: Any) -> bool:
    return value_of(x) % 2 == 1


def some(x: Any) -> list[Any]:
    return [x] * (value_of(x) % 3)


def half(x: Any) -> int:
    return value_of(x) % 2


def third(x: Any) -> int:
    return value_of(x) % 3


class Pairs(IterDataPipe[Any]):
    """A pipe of the user's: neighbours together, and its source once more at the end."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.length = 3  # a name that pipes use themselves

    def __iter__(self) -> Iterator[Any]:
        last = None
        for x in self.source:
            if last is not None:
                yield (last, x)
            last = x
        if last is not None:
            yield last


class Counted:
    """A stream without random access."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


SOURCES: list[Callable[[int], Any]] = [
    lambda n: IterableWrapper(list(range(n))),
    lambda n: IterableWrapper(Counted(n)),
    lambda n: IterableWrapper(range(n)).concat(IterableWrapper(Counted(5))),
]
STEPS: list[Callable[[Any], Any]] = [
    lambda p: p.map(double),
    lambda p: p.map(keyed),
    lambda p: p.filter(odd),
    lambda p: p.flatmap(some),
    lambda p: p.shuffle(),
    lambda p: p.shuffle(buffer_size=4),
    lambda p: p.batch(3),
    lambda p: p.batch(2).unbatch(),
    lambda p: p.in_memory_cache(),
    lambda p: p.in_memory_cache().shuffle(),
    lambda p: p.enumerate(),
    lambda p: p.header(11),
    lambda p: p.cycle(2),
    lambda p: p.prefetch(2),
    lambda p: p.repeat(2),
    lambda p: p.groupby(third, group_size=2),
    lambda p: p.shuffled_flatmap(some, buffer_size=3),
    lambda p: p.batch(4).in_batch_shuffle(),
    lambda p: Pairs(p),
    lambda p: (lambda a, b: a.map(keyed).zip(b))(*p.fork(2)),
    lambda p: (lambda a, b: a.filter(odd).zip(b.shuffle(buffer_size=3)))(*p.fork(2)),
    lambda p: (lambda a, b: a.mux_longest(b.map(double)))(*p.demux(2, half)),
    lambda p: (lambda a, b: a.zip_longest(b))(*p.round_robin_demux(2)),
    lambda p: (lambda a, b: b.concat(a))(*p.fork(2)),
    lambda p: p.zip(IterableWrapper(Counted(17)).shuffle(buffer_size=5)),
    lambda p: p.mux(IterableWrapper(range(9)).shuffle()),
    lambda p: p.mux_longest(IterableWrapper(Counted(6)), IterableWrapper(range(3))),
    lambda p: p.random_split({"a": 2, "b": 1}, seed=5, total_length=10)[0],
]


def graph(seed: int) -> Any:
    """Graph number `seed`: up to six steps, a shard point somewhere, sometimes a batch at the end."""
    draw = random.Random(seed)
    pipe = draw.choice(SOURCES)(draw.randint(0, 25))
    steps = [draw.choice(STEPS) for _ in range(draw.randint(1, 6))]
    mark = draw.randint(0, len(steps))
    for number, step in enumerate(steps):
        if number == mark:
            pipe = pipe.sharding_filter()
        pipe = step(pipe)
    if mark == len(steps):
        pipe = pipe.sharding_filter().map(keyed)
    return pipe.batch(4) if draw.random() < 0.5 else pipe


def loader(pipe: Any, workers: int, context: str | None = "fork") -> DataLoader2[Any]:
    service = MultiProcessingReadingService(workers, context) if workers else None
    dl: DataLoader2[Any] = DataLoader2(pipe, reading_service=service)
    dl.seed(0)
    return dl


def read(pipe: Any, workers: int, context: str | None = "fork", epochs: int = 2) -> list[list[str]]:
    with loader(pipe, workers, context) as dl:
        return [[repr(sample) for sample in dl] for _ in range(epochs)]
