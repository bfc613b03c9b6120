"""The thread kind: tickets run in threads of this process and hand objects over as they are.

Threads never touch the global generators; `headrace.rng()` is keyed as everywhere.
"""

import contextlib
import os
import queue
import sys
import threading
import time

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire.failures import without_exit
from headrace.engine.wire.messages import WHOLE, Reply, Ticket
from headrace.engine.workers.inline import answer
from headrace.engine.workers.protocol import Busy, Workers
from headrace.engine.workers.task import Task
from headrace.errors import Closed
from headrace.tracebacks import short_stack


class ThreadWorkers(Workers):
    """The thread kind."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self._out: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._threads: list[tuple[threading.Thread, queue.SimpleQueue[Ticket | None]]] = []
        """Each with the queue that it reads from."""
        self._running = 0
        self._closed = False
        self._now: dict[int, tuple[int, Task, Ticket]] = {}
        """By the thread's number: its identity, and what it runs."""

    def open(self, program: Program) -> None:
        self.program = program
        # One queue that all threads read from; pinned tickets (strands) go to a thread of their own.
        self._shared: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._pinned: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        feeds = [self._shared] * self.policy.workers
        if program.stages[0].feed == "strand":
            feeds.append(self._pinned)
        for number, feed in enumerate(feeds):
            thread = threading.Thread(target=self._serve, args=(number, feed), name=f"headrace-{number}", daemon=True)
            self._threads.append((thread, feed))
            thread.start()

    def _serve(self, number: int, feed: "queue.SimpleQueue[Ticket | None]") -> None:
        task = Task(self.program, f"thread {number}", seeds=False, packed=False)
        failed: BaseException | None = None
        try:
            if self.policy.worker_init is not None and number < self.policy.workers:
                self.policy.worker_init(number)
        except BaseException as error:
            failed = error
        while (ticket := feed.get()) is not None:
            try:
                if failed is not None:
                    raise failed
                self._now[number] = (threading.get_ident(), task, ticket)
                reply = answer(task, ticket)
                task.end_copy()
            except BaseException as error:
                task.end_copy(error)  # (as it was raised: a copy that ends by sys.exit() says nothing)
                task.note(error)
                reply = Reply(ticket)
                reply.faults = ((0, WHOLE, without_exit(error)),)
            self._now.pop(number, None)
            reply.worker = number
            self._out.put(reply)
            del ticket, reply

    def submit(self, ticket: Ticket) -> bool:
        if self._running >= self.policy.prefetch * self.policy.workers:
            return False
        self._running += 1
        (self._shared if ticket.strand is None else self._pinned).put(ticket)
        return True

    def collect(self) -> list[Reply]:
        replies: list[Reply] = []
        while not self._out.empty() and (reply := self._out.get_nowait()) is not None:
            replies.append(reply)
        self._running -= len(replies)
        return replies

    def wait(self, timeout: float | None = None) -> list[Reply]:
        try:
            first = None if self._closed else self._out.get(timeout=timeout)
        except queue.Empty:
            return []
        if first is None:
            raise Closed("this loader was closed while it was being read")
        self._running -= 1
        return [first, *self.collect()]

    def stuck(self) -> list[Busy]:
        told = []
        for number, (_, task, ticket) in sorted(self._now.items()):
            told.append(Busy(number, os.getpid(), f"{task.executor.where()}, {ticket}"))
        return told

    def stack(self, number: int) -> str:
        ident, *_ = self._now.get(number, (0,))
        frame = sys._current_frames().get(ident)
        return "the thread has gone on" if frame is None else short_stack(frame)

    def running(self) -> int:
        return self._running

    def close(self) -> None:
        for feed in (self._shared, self._pinned):
            with contextlib.suppress(queue.Empty):  # (A thread may be faster.)
                while True:
                    feed.get_nowait()  # nobody waits for these any more
        for _, feed in self._threads:
            feed.put(None)
        # A thread cannot be ended from outside: one that is inside a long sample ends after it.
        until = time.monotonic() + 0.5
        for thread, _ in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=max(0.0, until - time.monotonic()))
        self._threads.clear()
        self._closed = True
        self._out.put(None)  # for whoever waits in another thread
