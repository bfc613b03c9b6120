"""Pipelines with one thing that is slow, each a different one."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headrace.loader import Loader
from headrace.pipe.graph import Pipe

SLOW = 0.01
BIG = np.ones(40_000_000, np.uint8)


class SlowRead:
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, i: int) -> np.ndarray[Any, Any]:
        time.sleep(SLOW / 4)
        return np.full(100, i)


def cheap(sample: Any) -> Any:
    return sample


def slow_map(sample: Any) -> Any:
    time.sleep(SLOW / 4)
    return sample


def slow_collate(samples: list[Any]) -> Any:
    time.sleep(SLOW)
    return np.array(samples)


def big(sample: Any) -> Any:
    return BIG[: -1 - sample % 7]


def step(batch: Any) -> None:
    time.sleep(2 * SLOW)


def cheap_collate(samples: list[Any]) -> Any:
    return np.array(samples)


SLEEPS = {"here": 0.0}


def one_is_slow(worker: int) -> None:
    SLEEPS["here"] = 3 * SLOW if worker == 1 else 0.001


def as_slow_as_the_worker(sample: Any) -> Any:
    time.sleep(SLEEPS["here"])
    return sample


def stream() -> Iterator[int]:
    for i in range(100_000):
        time.sleep(SLOW / 8)
        yield i


def slow_tail(batch: Any) -> Any:
    time.sleep(SLOW)
    return batch


def always(sample: Any) -> bool:
    return True


Planted = tuple[Callable[[], Loader[Any]], Callable[[Any], None] | None, str, str]
"""The loader, the consumer, and the room and the name that must be named."""

NUMBERS = range(100_000)


def plain(fn: Callable[[Any], Any] = cheap, collate: Callable[[Any], Any] = cheap_collate) -> Pipe[Any]:
    return Pipe.of(NUMBERS).shuffle().map(fn).batch(4).collate(collate)


PLANTED: dict[str, Planted] = {
    "slow read": (
        lambda: Loader(Pipe.of(SlowRead()).map(cheap).batch(4).collate(), workers=2),
        None, "work", "SlowRead",
    ),
    "slow map": (lambda: Loader(plain(fn=slow_map), workers=2), None, "work", "slow_map"),
    "slow collate": (lambda: Loader(plain(collate=slow_collate), workers=2), None, "work", "slow_collate"),
    "big transport": (
        lambda: Loader(Pipe.of(NUMBERS).map(cheap).batch(1).collate(lambda batch: big(batch[0])), workers=1),
        None, "transport", "packing",
    ),
    "slow consumer": (lambda: Loader(plain(), workers=2), step, "step", "training loop"),
    "one slow worker": (
        lambda: Loader(plain(fn=as_slow_as_the_worker), workers=3, worker_init=one_is_slow),
        None, "worker", "worker 1",
    ),
    "slow stream": (
        lambda: Loader(Pipe.of(stream).shuffle(window=4).sharding_filter().map(cheap).batch(4), workers=2),
        None, "head", "stream",
    ),
    "slow tail": (
        lambda: Loader(
            Pipe.of(NUMBERS).sharding_filter().filter(always).batch(4).enumerate().map(slow_tail), workers=2
        ),
        None, "tail", "slow_tail",
    ),
    "no workers": (lambda: Loader(plain(fn=slow_map)), None, "work", "slow_map"),
    "no workers, slow consumer": (lambda: Loader(plain()), step, "step", "training loop"),
}  # fmt: skip
