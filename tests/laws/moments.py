"""Moments: an exception at the n-th moment at which Python would hear a signal.

A real signal is heard where Python looks for one: at the beginning of a function, after a call, and when a loop turns.
A profile function is called at just these moments, the same ones in every run, so it can raise at the n-th of them.
"""

import gc
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from tests.laws.pipes import shown

T = TypeVar("T")
FINALIZE = weakref.finalize.__call__.__code__


class Interrupt(Exception):
    """What a signal handler of the user's raises."""


class Moment:
    """Raises at the n-th moment, counted over all calls of one test; profile functions are of the thread at hand."""

    def __init__(self, left: float, error: BaseException) -> None:
        self.seen = 0
        self._left = left
        self._error = error
        self._depth = 0
        self._process = os.getpid()

    def of(self, call: Callable[[], T]) -> T:
        self._depth = 0
        # (A name of its own: the interpreter drops the function while it is being called, once it has raised.)
        look = self._look
        # No exception leaves a callback of the collector either, and test tools install such callbacks.
        # Nor does one leave what the collector finalizes, such as the loader of an earlier round.
        callbacks, gc.callbacks[:] = gc.callbacks[:], []
        gc.disable()
        sys.setprofile(look)
        try:
            return call()
        finally:
            sys.setprofile(None)
            gc.enable()
            gc.callbacks[:] = callbacks

    def _look(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            self._depth += 1
        elif event == "return":
            self._depth -= 1
        # Outside: what has been returned by then is the caller's. And no exception leaves a finalizer.
        if self._depth < 2 or _is_spared(frame) or _held_back() or os.getpid() != self._process:
            return
        if event == "c_call" and getattr(arg, "__name__", "") in ("release", "__exit__"):
            return  # no signal is heard between the last store and a call that is about to begin, or the end of `with`
        self.seen += 1
        if self.seen > self._left:
            self._left = float("inf")
            raise self._error


def _held_back() -> bool:
    """While processes are started no handler of the user's runs: it is called when they are known (`signals_held`)."""
    start = sys.modules.get("headrace.engine.workers.process.start")
    return start is not None and bool(start._handlers)


def _is_spared(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "_freed", "_exit", "_remove") or frame.f_code is FINALIZE:
            return True
        if frame.f_code.co_filename == logging.__file__:
            return True  # a handler's lock would stay taken: CPython's own gap, in any program that logs
        frame = frame.f_back
    return False


def read_until(moment: Moment, samples: Any, got: list[str], limit: int | None = None) -> None:
    while True:
        try:
            if limit is not None and got and len(got) % limit == 0:
                samples.resume()
            sample = moment.of(lambda: next(samples))
        except StopIteration:
            return
        got.append(shown(sample))


def moments_of(samples: Iterator[Any], limit: int | None = None) -> tuple[int, list[str]]:
    """How many moments one epoch has, and what it delivers."""
    counter, whole = Moment(float("inf"), Interrupt()), []
    read_until(counter, samples, whole, limit)
    return counter.seen, whole
