"""Workers: who runs tickets, and everything that the loop may ask of them.

    open(program)  start                          submit(ticket)  take a ticket; False when everybody is busy
    close()        stop, leave nothing behind     wait(timeout)   the replies, at least one unless the time is up

A new kind of worker defines these four. Everything else has a default that does nothing, for kinds that have nothing
to do there: the loop calls it all the same and never asks what kind it has before it. The options of the policy that
are about workers (`worker_init`, `prefetch`, `recycle`, ...) are for the kind to heed. One whose tickets run in the
consumer's process borrows the user's global generators for them (`plan.seed.BorrowedGlobals`, as `inline` does), or
leaves them alone (`Task(seeds=False)`, as `thread` does).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire.messages import Reply, Ticket
from headrace.errors import WorkerStuck
from headrace.memory.arena import Arena, Slot


class Busy(NamedTuple):
    """A worker that has not answered all its tickets."""

    number: int
    pid: int
    doing: str


class Restart(NamedTuple):
    """A worker that ended and was replaced."""

    seconds: float
    """From when its end was noticed until the replacement was started."""
    why: str
    """How it ended, as in "was killed by SIGKILL"."""


class Workers(ABC):
    """One set of workers."""

    program: Program
    concurrent = True
    """They go on while the caller does something else. (If not, a ticket runs inside `wait`.)"""

    def __init__(self, memory: int = 0) -> None:
        self.arena = Arena(memory)
        """The shared memory that results arrive in; empty where results are handed over as objects."""
        self.restarts: list[Restart] = []
        self.exits: dict[int, int | None] = {}
        """Of worker processes that have ended, by their number: the exit code (negative: a signal) if it is known."""

    @property
    def rest(self) -> float:
        """Seconds for which the workers have enough to do, once they were looked after; 0: look after each batch."""
        return 0.0

    @property
    def ahead(self) -> int:
        """Tickets that the workers could have waiting, if that has shown to be more than they were given at first."""
        return 0

    # --- what every kind does -----------------------------------------------------------------------------------------

    @abstractmethod
    def open(self, program: Program) -> None:
        """Start, to run tickets of this program."""

    @abstractmethod
    def submit(self, ticket: Ticket) -> bool:
        """Take a ticket; False when everybody is busy."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> list[Reply]:
        """At least one reply; none when the time is up, or when there is room for tickets again."""

    @abstractmethod
    def close(self) -> None:
        """Stop and leave nothing behind. May be called twice, and while another thread waits."""

    # --- what some kinds do -------------------------------------------------------------------------------------------

    def begin(self) -> None:  # noqa: B027 - most kinds have nothing to do here
        """A new epoch begins: deaths of the last one are forgiven."""

    def flush(self) -> None:  # noqa: B027
        """Send what was submitted and not sent yet."""

    def collect(self) -> list[Reply]:
        """The replies that have come, without waiting."""
        return []

    def drop(self, owner: object) -> None:  # noqa: B027
        """A run no longer wants its tickets: forget those that nobody has begun."""

    def release(self, slot: Slot) -> None:
        """Give back the memory of a result that nobody looks into."""
        self.arena.give_back(slot)

    def running(self) -> int:
        """Tickets that were submitted and not answered."""
        return 0

    # --- looking at them ----------------------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        """The process numbers of those that are alive, where they are processes of their own."""
        return []

    def stuck(self) -> list[Busy]:
        """Those that have unanswered tickets, and what they run."""
        return []

    def stack(self, number: int) -> str:
        """The Python stack of worker `number` at this moment, however stuck it is."""
        return ""

    def stacks(self) -> str:
        """All that have unanswered tickets, what they run, and their stacks."""
        return "".join(f"\n--- worker {n} (process {pid}), {what}\n{self.stack(n)}" for n, pid, what in self.stuck())

    def replace_stuck(self, policy: Policy) -> None:
        """Nothing has arrived within the time-out: replace who is stuck, or raise with what everybody is doing."""
        if policy.on_stuck == "replace" and [busy for busy in self.stuck() if self.replace(busy.number)]:
            return
        raise WorkerStuck(
            f"nothing arrived within {policy.timeout} seconds; raise timeout=, or let stuck workers be "
            f"replaced with on_stuck='replace'{self.stacks()}"
        )

    def replace(self, number: int) -> bool:
        """Kill worker `number`, which is stuck, and start another; False where that cannot be done."""
        return False
