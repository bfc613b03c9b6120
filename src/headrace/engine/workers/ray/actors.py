"""The consumer's view of its Ray actors: what each was given, and which calls are under way."""

from typing import Any

from headrace.engine.wire.messages import Reply, Ticket
from headrace.engine.workers.ray.lineage import Remote


class ActorState:
    """One actor and what it has to do."""

    __slots__ = (
        "actor", "calls", "dump", "gone", "load", "near", "node", "number", "outbox", "pid", "ready", "replaced",
        "retiring",
    )  # fmt: skip

    def __init__(self, number: int, actor: Any) -> None:
        self.number = number
        self.actor = actor
        self.calls: dict[Any, ActorCall] = {}
        """In the order in which it runs them."""
        self.outbox: list[Ticket] = []
        """Submitted, not sent yet."""
        self.load = 0
        """Tickets in calls and in the outbox."""
        self.ready = False
        self.retiring = False
        """It has asked to be replaced."""
        self.replaced = False
        """It was killed because it was stuck."""
        self.gone = False
        self.near = False
        """It can write into slots of the consumer's."""
        self.pid, self.dump, self.node = 0, -1, ""

    @property
    def doing(self) -> str:
        """What it runs, of the calls that it was given."""
        first = next(iter(self.calls.values()))
        return str(first.tickets[0]) if first.tickets else "not started yet: is the cluster full?"


class ActorCall:
    """A call under way: its tickets (none: the worker starts), and where samples will be that stay in the store."""

    __slots__ = ("actor", "early", "fetch", "ref", "samples", "tickets")

    def __init__(self, actor: ActorState, ref: object, tickets: list[Ticket], samples: object = None) -> None:
        self.actor = actor
        self.ref = ref
        self.tickets = tickets
        self.samples = samples
        self.early: Any = None
        """An answer that came before that of the strand's block before it."""
        self.fetch: tuple[Reply, Remote] | None = None
        """The reply is known; the samples are on their way to the consumer."""

    @property
    def strand(self) -> tuple[int, int] | None:
        """Epoch and number of the strand whose block this is."""
        first = self.tickets[0] if self.tickets else None
        return None if first is None or first.strand is None else (first.epoch, first.strand)

    @property
    def in_turn(self) -> bool:
        """No earlier block of the same strand is still expected."""
        strand = self.strand
        return strand is None or next(c for c in self.actor.calls.values() if c.strand == strand) is self
