"""Random pipes over all verbs of the house, and the ways to run them."""

import random
from typing import Any

import numpy as np
from hypothesis import strategies as st

import headrace
from headrace import Loader, Pipe
from headrace.observe.digest import digest

KINDS: dict[str, dict[str, Any]] = {
    "inline": {},
    "thread1": {"workers": 1, "kind": "thread"},
    "thread3": {"workers": 3, "kind": "thread"},
    "fork1": {"workers": 1, "start_method": "fork"},
    "fork2": {"workers": 2, "start_method": "fork"},
    "fork5": {"workers": 5, "start_method": "fork"},
    "server3": {"workers": 3, "start_method": "server"},
    "forkserver2": {"workers": 2, "start_method": "forkserver"},
    "spawn2": {"workers": 2, "start_method": "spawn"},
}
SEEDED = tuple(name for name, how in KINDS.items() if how.get("kind") != "thread")
"""Those in which the global generators are seeded for each ticket."""
CHEAP = ("inline", "thread3", "fork1", "fork2", "fork5", "server3")


class Numbers:
    """A map-style dataset."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> int:
        if not 0 <= i < self.size:
            raise IndexError(i)
        return i


def value_of(x: Any) -> float:
    """Some number out of whatever a pipe has made."""
    if isinstance(x, np.ndarray):
        return float(x.sum())
    if isinstance(x, list | tuple):
        return sum(value_of(v) for v in x)
    return float(x)


def double(x: Any) -> Any:
    return (x, 2 * value_of(x))


def keyed(x: Any) -> Any:
    return (x, float(headrace.rng().random()))


def drawn(x: Any) -> Any:
    """Uses all global generators there are."""
    return (x, random.random(), float(np.random.rand()))


def odd(x: Any) -> bool:
    return int(value_of(x)) % 2 == 1


def some(x: Any) -> list[Any]:
    return [x] * (int(value_of(x)) % 3)


def stream(size: int) -> Any:
    return lambda: iter(range(size))


STEPS = [
    lambda p: p.map(double),
    lambda p: p.map(keyed),
    lambda p: p.filter(odd),
    lambda p: p.flatmap(some),
    lambda p: p.batch(3),
    lambda p: p.batch(4, drop_last=True),
    lambda p: p.batch(2).unbatch(),
    lambda p: p.shuffle(),
    lambda p: p.shuffle(window=5),
    lambda p: p.shuffle(buffer_size=4),
    lambda p: p.sharding_filter(),
    lambda p: p.header(17),
    lambda p: p.enumerate(),
    lambda p: p.cycle(2),
    lambda p: p.zip(Pipe.of(Numbers(19)).shuffle()),
    lambda p: p.concat(Pipe.of(Numbers(5))),
    lambda p: p.mix(Pipe.of(Numbers(6)), weights=(2, 1)),
    lambda p: p.map(value_of).batch(4).collate().map(value_of),
]
RANDOM_STEPS = [*STEPS, lambda p: p.map(drawn)]

SOURCES = [
    lambda n: Pipe.of(Numbers(n)),
    lambda n: Pipe.of(list(range(n))),
    lambda n: Pipe.of(stream(n)),
    lambda n: Pipe.of(Numbers(n)).zip(Pipe.of(Numbers(n + 3)).map(double)),
    lambda n: Pipe.of(stream(n)).concat(Pipe.of(stream(4))),
]


@st.composite
def pipes(draw: st.DrawFn, steps: list[Any] = STEPS, most: int = 5) -> Pipe[Any]:
    """A source of up to 40 samples and up to `most` verbs."""
    pipe = draw(st.sampled_from(SOURCES))(draw(st.integers(0, 40)))
    for step in draw(st.lists(st.sampled_from(steps), max_size=most)):
        pipe = step(pipe)
    return pipe


def shown(sample: Any) -> str:
    """A sample as text that is equal exactly when all its values are. (`repr` leaves out the middle of arrays.)"""
    return digest(sample).hex()


def read(pipe: Pipe[Any], epochs: int = 1, seed: int = 3, **how: Any) -> list[str]:
    """What a loader delivers, as text that compares bit by bit."""
    with Loader(pipe, seed=seed, **how) as loader:
        return [shown(sample) for _ in range(epochs) for sample in loader]
