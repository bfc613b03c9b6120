"""What the verbs are tried on: written into a file of its own, as a user's would be.

A verb that runs inside the test imports that file: `forgotten` makes the interpreter forget it again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path) -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


TEXT = '''
"""A user's file."""
import random
import time

import numpy as np

from headrace import Loader, Pipe


def noisy(x):
    return np.array([x, random.random()])


def stream():
    return iter(range(60))


def fragile(x):
    if x in (17, 40, 41):
        raise ValueError(f"sample {x}")
    return x


def fragile_batch(batch):
    if 8 in batch:
        raise KeyError("the batch with 8")
    return batch


def clock(x):
    return time.perf_counter()


def train(batch):
    time.sleep(0.05)


pipe = Pipe.of(range(100)).shuffle().map(noisy).batch(8)
loader = Loader(pipe, workers=2, seed=7, prefetch=3)
singles = Pipe.of(range(30)).map(noisy)
bad = Loader(Pipe.of(range(60)).shuffle().map(fragile).batch(4).map(fragile_batch), seed=5, on_error="skip")
bad_stream = Loader(Pipe.of(stream).map(fragile).batch(4), seed=5, on_error="skip")
clocked = Pipe.of(range(20)).map(clock).batch(4)
empty = Pipe.of(range(0)).batch(4)
number = 3


def make():
    return Pipe.of(stream).shuffle(window=8).map(noisy).batch(4)


def needs(argument):
    return pipe


def broken():
    raise TypeError("inside")


class config:
    train = pipe


if __name__ == "__main__":
    raise SystemExit("it must not be run")
'''
