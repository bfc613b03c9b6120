"""The inline kind: tickets run in the caller's thread, one at a time, when the reply is asked for.

The user's exception arrives as it was raised, with the user's own frames, and the caller's global generators are given
back as they were.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from headrace.engine.feeds.block import Block
from headrace.engine.program import Program
from headrace.engine.wire.failures import without_exit
from headrace.engine.wire.messages import WHOLE, Reply, Ticket
from headrace.engine.workers.protocol import Workers
from headrace.engine.workers.task import Task
from headrace.plan.seed import BorrowedGlobals

STREAMED = 8
"""Tickets of a stream that may wait to be run together."""
TOGETHER = 1e-3
"""Seconds after which no further one is begun."""


class InlineWorkers(Workers):
    """The inline kind."""

    concurrent = False

    def __init__(self) -> None:
        super().__init__()
        self._tickets: deque[Ticket] = deque()

    def open(self, program: Program) -> None:
        self.program = program
        self._task = Task(program, "", packed=False, inline=True)
        streamed = program.stages[0].feed == "strand"
        self._borrowed = BorrowedGlobals(goes_on=streamed)  # the executor seeds before every other ticket
        # A stream is read a little ahead anyway. Doing a few small batches of it together lends the caller's generators
        # once for all of them, which costs more than such a batch.
        self._together = STREAMED if streamed else 1

    def submit(self, ticket: Ticket) -> bool:
        if len(self._tickets) >= self._together:
            return False
        self._tickets.append(ticket)
        return True

    def wait(self, timeout: float | None = None) -> list[Reply]:
        if not self.program.keyed:
            return [self._answer(self._tickets.popleft())]
        return self._borrowed.run(self._answers)

    def _answers(self) -> list[Reply]:
        replies = [self._answer(self._tickets.popleft())]
        until = time.perf_counter() + TOGETHER
        while self._tickets and time.perf_counter() < until:
            replies.append(self._answer(self._tickets.popleft()))
        return replies

    def _answer(self, ticket: Ticket) -> Reply:
        try:
            return answer(self._task, ticket)
        except Exception as error:
            # (Only of an Exception: Ctrl-C, which may arrive at any moment here, must reach the caller at once.)
            self._task.note(error)
            reply = Reply(ticket)
            reply.faults = ((0, WHOLE, error),)
            return reply

    def running(self) -> int:
        return len(self._tickets)

    def drop(self, owner: object) -> None:
        self._tickets.clear()

    def close(self) -> None:
        self._tickets.clear()
        self._task.executor.close()


def answer(task: Task, ticket: Ticket) -> Reply:
    """Run a ticket where its samples are plain objects; errors go up as they are."""
    reply = Reply(ticket)
    outputs = task.run(ticket.stage, ticket.epoch, ticket.number, ticket.payload, ticket.avoid, _referred)
    reply.outputs, reply.count, reply.skipped = outputs, len(outputs), tuple(task.executor.skipped)
    reply.faults = [(before, position, without_exit(error)) for before, position, error in task.executor.faults]
    reply.counts, task.executor.faults = task.executor.counts, []
    if task.strand is not None:
        reply.ended, reply.state = task.strand
    reply.seconds = task.seconds()
    return reply


def _referred(refs: Sequence[tuple[Block, int, int]]) -> list[Any]:
    """The samples of the stage before that a ticket refers to."""
    return [sample for block, first, stop in refs for sample in block.outputs[first:stop]]
