"""Workers that follow a script: they run tickets in this process, and answer in whatever order the script says.

So the loop, its feeds, its window and its regrouping are proved without a process: every order of answers that real
workers could give can be written down, or drawn from a seed.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace import World
from headrace.engine.places import RunPlace, plain_epoch_place
from headrace.engine.policy import Policy
from headrace.engine.program import Program, cut
from headrace.engine.run import Run
from headrace.engine.wire.messages import WHOLE, Reply, Ticket
from headrace.engine.workers.inline import answer
from headrace.engine.workers.protocol import Workers
from headrace.engine.workers.task import Task
from headrace.observe.meter import Meter
from headrace.pipe.graph import Pipe
from headrace.plan.seed import BorrowedGlobals
from tests.laws.pipes import shown


@dataclass
class Script:
    """What these workers do."""

    seed: int = 0
    room: int = 6
    """Tickets that they take before somebody has to wait."""
    together: int = 3
    """The most replies that come at once."""
    fails: dict[int, BaseException] = field(default_factory=dict)
    """Raised out of `wait()` instead of the reply number so and so: trouble of the engine's own."""


class ScriptedWorkers(Workers):
    """Tickets of one strand are answered in order, as one worker would; all others in any order."""

    concurrent = False

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script
        self.tickets: list[Ticket] = []
        self.answered = 0
        self.most = 0
        """The most tickets there were at one time."""
        self._chance = random.Random(script.seed)

    def open(self, program: Program) -> None:
        self.program = program
        self._task = Task(program, "a scripted worker", packed=False)

    def submit(self, ticket: Ticket) -> bool:
        if len(self.tickets) >= self.script.room:
            return False
        self.tickets.append(ticket)
        self.most = max(self.most, len(self.tickets))
        return True

    def wait(self, timeout: float | None = None) -> list[Reply]:
        assert self.tickets, "the loop waits, and nobody has anything to do"
        replies = []
        for _ in range(self._chance.randint(1, min(self.script.together, len(self.tickets)))):
            trouble = self.script.fails.pop(self.answered, None)
            if trouble is not None:
                raise trouble
            self.answered += 1
            replies.append(self._answer(self._chosen()))
        return replies

    def _chosen(self) -> Ticket:
        chosen = self._chance.choice(self.tickets)
        if chosen.strand is not None:
            chosen = next(t for t in self.tickets if t.strand == chosen.strand)
        self.tickets.remove(chosen)
        return chosen

    def _answer(self, ticket: Ticket) -> Reply:
        try:
            with BorrowedGlobals():
                return answer(self._task, ticket)
        except Exception as error:
            reply = Reply(ticket)
            reply.faults = ((0, WHOLE, error),)
            return reply

    def running(self) -> int:
        return len(self.tickets)

    def drop(self, owner: object) -> None:
        self.tickets.clear()

    def release(self, slot: Any) -> None:
        raise AssertionError("there are no slots here")

    def close(self) -> None:
        self.tickets.clear()


def run(
    pipe: Pipe[Any],
    script: Script | None = None,
    at: RunPlace | None = None,
    *,
    world: World | None = None,
    ends: str = "short",
    strands: int | None = None,
    **policy: Any,
) -> tuple[Run, ScriptedWorkers]:
    """A run of a pipe over scripted workers, at a place that another one gave."""
    world = world or World()
    how = Policy.of({"workers": 2, "kind": "thread", **policy})
    program = cut(pipe, 3, skips=how.skips, strands=strands, divided=world.share_ranks > 1)
    workers = ScriptedWorkers(script or Script())
    workers.open(program)
    return _start(program, how, workers, world, ends, at), workers


def _start(program: Program, policy: Policy, workers: Any, world: World, ends: str, at: RunPlace | None) -> Run:
    return Run(program, policy, workers, 0, world, Meter(), ends=ends, at=at and at.fit(program))


def place(run: Run) -> RunPlace:
    """Where a run stands, by way of text, as another one can go on from it."""
    return RunPlace.read(json.loads(json.dumps(plain_epoch_place(run.place()))))


def read(samples: Iterator[Any]) -> list[str]:
    return [shown(sample) for sample in samples]
