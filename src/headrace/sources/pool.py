"""Pool: threads that wait for stores, a few of them for all files of a process.

`REQUESTS` runs single requests, which wait for nothing but the store. `UNITS` runs what is read ahead of its use; it
waits for requests, so it has threads of its own. A thread ends when there was nothing to do for a while. What a task
reads of files is counted where its result is taken.
"""

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from headrace.observe.meter import Reads, files

T = TypeVar("T")
IDLE = 5.0
"""Seconds without work after which a thread ends."""
LAST = 5.0
"""Seconds that the end of the process waits for requests that are under way: a thread may not be cut off in one."""


class Coming(Generic[T]):
    """What a task will give."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._process = os.getpid()
        self._future: Future[T] = Future()
        self._reads: Reads | None = None
        self._done = False

    def result(self) -> T:
        """Wait for it. What it has read of files counts as read by this thread."""
        if self._process != os.getpid() and not self._done:
            return self._work()  # (the thread that was at work has stayed in the process that this one was forked from)
        try:
            return self._future.result()
        finally:
            reads, self._reads = self._reads, None
            if reads is not None:
                files.add(reads)

    def finished(self) -> bool:
        """Whether it has come; an error has not, and is raised by `result`."""
        return self._done and self._future.exception() is None

    def cancel(self) -> None:
        self._future.cancel()

    def run(self) -> None:
        if not self._future.set_running_or_notify_cancel():
            return
        try:
            value = self._work()
        except BaseException as error:
            self._reads = files.taken()
            self._future.set_exception(error)
        else:
            self._reads = files.taken()
            self._future.set_result(value)
        self._done = True


class ThreadPool:
    """At most `most` threads at a time."""

    def __init__(self, most: int, name: str) -> None:
        self.most = most
        self._name = name
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self._close)

    def _reset(self) -> None:
        """No thread comes along when a process is forked."""
        self._waiting: deque[Coming[Any]] = deque()
        self._changed = threading.Condition()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Coming[T]:
        coming = Coming(work)
        with self._changed:
            if self._closed:
                coming.cancel()
                return coming
            self._waiting.append(coming)
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self.most:
                thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
        return coming

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                found = self._changed.wait_for(lambda: self._waiting or self._closed, IDLE)
                self._idle -= 1
                if not found or self._closed:
                    self._threads.discard(threading.current_thread())
                    return
                coming = self._waiting.popleft()
            coming.run()
            del coming

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            threads = list(self._threads)
            self._changed.notify_all()
        end = time.monotonic() + LAST
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


REQUESTS = ThreadPool(16, "headrace-requests")
UNITS = ThreadPool(8, "headrace-units")


def at_once(work: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    """`work(item)` of each, several at a time where they wait for stores: in threads of their own, as they ask it."""
    items = list(items)
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(REQUESTS.most, len(items))) as pool:
        done = list(pool.map(lambda item: (work(item), files.taken()), items))
    for _, reads in done:
        if reads is not None:
            files.add(reads)
    return [value for value, _ in done]
