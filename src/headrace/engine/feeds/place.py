"""The contract of a feed and of the place it stands at.

A **feed** is where the tickets of a stage come from. A **place** says where a feed stands, as a small frozen value. The
place checks its values, checks that it fits a program, opens the feed, and describes itself in words. A new kind of
feed is one file with these two, and one line in `feeds/__init__.py`.

Every ticket knows where the epoch stands before and after it, so that a snapshot between any two batches only has to
look at the last ticket. Most tickets are never asked, so they hold cheap marks, mostly numbers: the feed that made a
ticket turns its marks into places.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from headrace.engine.feeds.block import Entry
from headrace.engine.plain import PlainRecord, brief, kind_of
from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.engine.wire.messages import WHOLE
from headrace.errors import SnapshotRefused
from headrace.plan.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.engine.feeds.block import Block
    from headrace.engine.wire.messages import Reply, Ticket


class Setting(NamedTuple):
    """What a feed is opened with."""

    program: Program
    policy: Policy
    epoch: int
    world: World
    ends: str
    release: Callable[[Any], None]
    """Gives back the slot of a block that is needed no more."""


class Feed(ABC):
    """Where the tickets of one stage come from: all that the loop may ask of it."""

    ended = False
    """There will be no more tickets."""
    groups: Groups | None = None
    """Who groups its samples, where these are not grouped in the order in which they come."""
    awaits_ranks = False
    """Its tickets may depend on what other ranks have to say."""
    streamed = False
    """Its replies are blocks of streams, which `entries` puts in order; else each reply is delivered as it is."""

    @abstractmethod
    def next(self, owner: object) -> Ticket | None:
        """The next ticket, or None if there is none now."""

    def at(self, mark: object) -> Place:
        """The place for a mark on one of its tickets: a mark that this feed has made, or a place already."""
        assert isinstance(mark, Place)
        return mark

    def entries(self, reply: Reply, block: Block) -> Iterable[Entry]:
        """What can be handed on now that this reply, the next one in order, has come as a block."""
        return self._pieces(reply.ticket, block)

    def _pieces(self, ticket: Ticket, block: Block, first: int = 0) -> Iterator[Entry]:
        """The samples of a ticket from `first` on, in stretches, and the errors between them; those before `first` are
        passed."""
        begin, mark = first, ticket.before
        for at, position, error in block.faults:
            if at < first:
                continue
            if at > first:
                yield Entry(block, first, at, mark, ticket.after, first - begin)
            yield Entry(block, at, at, mark, ticket.after, at - begin, error)
            first = at
            if position != WHOLE and (behind := self.behind(ticket, position)) is not None:
                begin, mark = at, behind
        if first < block.count or not block.faults:
            yield Entry(block, first, block.count, mark, ticket.after, first - begin)

    def behind(self, ticket: Ticket, position: int) -> object:
        """The mark behind this position of a ticket whose positions have outputs of their own, if the feed has one."""
        return None

    def seen(self, before: int, reply: Reply) -> int:
        """How many inputs of its stage were read up to this reply, the next one in order; `before` it, so many."""
        return before + reply.ticket.inputs()

    def await_ranks(self) -> bool:
        """Wait for what other ranks have to say, if the next ticket needs that; False: it does not."""
        raise NotImplementedError

    def blocks(self) -> list[Block]:
        """The blocks that it holds with samples that were not handed on. Called when the run is abandoned."""
        return []

    def mask(self, ticket: Ticket) -> list[bool] | None:
        """Which samples of a ticket are real, where some only fill up the batch; without those that were left out."""
        return None


class Groups(Feed):
    """The feed of a stage that is made of samples of the stage before."""

    closed = False
    """The stage before has ended."""

    @property
    @abstractmethod
    def backlog(self) -> int:
        """How many groups could be handed out now."""

    @abstractmethod
    def push(self, entry: Entry) -> None:
        """Add samples of the stage before, or its error."""


class Place(PlainRecord, ABC):
    """Where a feed stands."""

    __slots__ = ()
    feed: ClassVar[str]
    """The `Stage.feed` that it belongs to."""
    common: ClassVar[bool] = False
    """Every rank reads everything of this stage: ranks share what comes after it."""

    @classmethod
    def start(cls, program: Program, stage: int) -> Place:
        """Where an epoch begins, for places that can begin one."""
        return cls()

    @classmethod
    def read(cls, value: object) -> Self:
        """The place in plain data, of the kind that is named there."""
        if kind_of(value) == "turns":
            raise SnapshotRefused(FORMER)
        kind = KINDS.get(kind_of(value) or "")
        if kind is None or not issubclass(kind, cls):
            raise SnapshotRefused(f"a place is expected in the snapshot, not {brief(value)}")
        return super(Place, kind).read(value)

    @abstractmethod
    def describe(self) -> str:
        """The place in words."""

    @abstractmethod
    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        """The feed of this stage, from here on; `source` is that of the stage before."""

    def before(self) -> Place | None:
        """Where the stage before stands, if there is one."""
        return None

    def inputs(self, world: World) -> int:
        """How many inputs of its stage this rank has had before this place."""
        return 0

    def gone(self, rank: int) -> int:
        """How many outputs of the first ticket from here on a rank has delivered already."""
        return 0

    def fit(self, program: Program, stage: int) -> Place:
        """The place, if it can belong to this stage of the program; else SnapshotRefused."""
        feed = program.stages[stage].feed
        if self.feed != feed:
            raise SnapshotRefused(f"the snapshot's place does not fit stage {stage} of this pipe ({feed})")
        return self


FORMER = (
    "the snapshot is of headrace 0.2, on several ranks behind ops that decide how many samples there are: where such "
    "a job stands is written in another way now, because its global steps were others; continue it with 0.2, or begin "
    "the next epoch (set the snapshot's 'at' to None and add 1 to its 'epoch')"
)
KINDS: dict[str, type[Place]] = {}
"""Every kind of place that a snapshot can have, by its word."""
STARTS: dict[str, type[Place]] = {}
"""The kind of place at which a feed begins, by `Stage.feed`."""


def start_of(program: Program, stage: int) -> Place:
    """Where an epoch begins, seen from this stage."""
    return STARTS[program.stages[stage].feed].start(program, stage)


def chain(place: Place) -> list[Place]:
    """The places of all stages, first stage first."""
    found: list[Place] = []
    at: Place | None = place
    while at is not None:
        found.append(at)
        at = at.before()
    return found[::-1]


def open_feeds(place: Place | None, setting: Setting, first: Feed | None = None) -> list[Feed]:
    """One feed per stage, each opened at its part of the place; `first` is the feed of the first stage, if given."""
    feeds: list[Feed] = [] if first is None else [first]
    places = chain(place or start_of(setting.program, len(setting.program.stages) - 1))
    for stage in range(len(feeds), len(places)):
        feeds.append(places[stage].open(setting, stage, feeds[-1] if feeds else None))
    return feeds
