"""The inline kind: tickets run in the caller's thread, one at a time, when the reply is asked for.

The user's exception arrives as it was raised, with the user's own frames, and the caller's global generators are given
back as they were.
"""

import time
from collections import deque
from typing import Any

from headrace.engine.executor import Executor
from headrace.engine.program import Program
from headrace.engine.wire.messages import Reply, Ticket
from headrace.plan.seed import BorrowedGlobals

STREAMED = 8
"""Tickets of a stream that may wait to be run together."""
TOGETHER = 1e-3
"""Seconds after which no further one is begun."""


class InlineWorkers:
    """The inline kind."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self.deaths = 0
        self.restarts: list[tuple[float, str]] = []

    def open(self, program: Program) -> None:
        self.program = program
        self._executor = Executor(program, seeds=True)
        self._borrowed = BorrowedGlobals()
        # A stream is read a little ahead anyway. Doing a few small batches of it together lends the caller's generators
        # once for all of them, which costs more than such a batch.
        self._together = STREAMED if program.stages[0].feed == "strand" else 1

    def submit(self, ticket: Ticket) -> bool:
        if len(self._tickets) >= self._together:
            return False
        self._tickets.append(ticket)
        return True

    def wait(self, timeout: float | None = None) -> list[Reply]:
        if not self.program.keyed:
            return [self._answer(self._tickets.popleft())]
        with self._borrowed:
            replies = [self._answer(self._tickets.popleft())]
            until = time.perf_counter() + TOGETHER
            while self._tickets and time.perf_counter() < until:
                replies.append(self._answer(self._tickets.popleft()))
            return replies

    def _answer(self, ticket: Ticket) -> Reply:
        try:
            return answer(self._executor, ticket)
        except Exception as error:
            op, position = self._executor.where()
            error.add_note(f"headrace: in {op}, at position {position}, in the consumer itself")
            reply = Reply(ticket)
            reply.error = error
            return reply

    def running(self) -> int:
        return len(self._tickets)

    def begin(self) -> None:
        pass

    def drop(self, owner: Any) -> None:
        self._tickets.clear()

    def release(self, slot: Any) -> None:
        pass

    def close(self) -> None:
        self._tickets.clear()


def answer(executor: Executor, ticket: Ticket) -> Reply:
    """Run a ticket where its samples are plain objects; errors go up as they are."""
    reply = Reply(ticket)
    started = time.perf_counter()
    stage = executor.program.stages[ticket.stage]
    if stage.feed == "strand":
        strand, state = ticket.payload
        reply.outputs, reply.ended, reply.state = executor.strand(ticket.epoch, strand, ticket.number, state)
    else:
        payload = ticket.payload
        if stage.feed == "refs":
            refs, base, stride = payload
            payload = ([s for block, first, stop in refs for s in block.outputs[first:stop]], base, stride)
        reply.outputs = executor.run(ticket.stage, ticket.epoch, ticket.number, payload, ticket.avoid)
    reply.count = len(reply.outputs)
    reply.skipped = tuple(executor.skipped)
    reply.seconds = (time.perf_counter() - started, executor.timings, started)
    return reply
