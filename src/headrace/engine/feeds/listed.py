"""Listed: items of an iterator that runs in the consumer, one ticket each; the torch door's lists of indices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.plain import record, whole
from headrace.engine.program import Program
from headrace.engine.wire.messages import Ticket
from headrace.plan.world import World


@dataclass(frozen=True, slots=True)
class Item(Place):
    """So many items of the list are delivered. Whoever has the iterator brings it there, and makes the feed."""

    kind: ClassVar[str] = "listed"
    feed: ClassVar[str] = "listed"
    number: int

    @classmethod
    def start(cls, program: Program, stage: int) -> Place:
        return cls(0)

    @classmethod
    def read(cls, value: object) -> Self:
        return cls(*map(whole, record(value, ("number",), "a place in a list")))

    def plain(self) -> dict[str, Any]:
        return {"number": self.number}

    def describe(self) -> str:
        return f"item {self.number} of the list"

    def inputs(self, world: World) -> int:
        return self.number

    def open(self, setting: Setting, stage: int) -> Feed:
        return Listed(iter(()), setting.epoch, self.number)


class _Before(NamedTuple):
    """The place before an item."""

    number: int

    def place(self) -> Item:
        return Item(self.number)


class Listed(Feed):
    """Items of an iterator that runs in the consumer; the first one has number `start`.

    `pinned`: item k belongs to worker k modulo their number, also after a resume.
    """

    def __init__(self, items: Iterator[Any], epoch: int, start: int = 0, *, pinned: bool = False) -> None:
        self._items = items
        self._pinned = pinned
        self._epoch = epoch
        self._number = start

    def next(self, owner: Any) -> Ticket | None:
        try:
            item = next(self._items)
        except StopIteration:
            self.ended = True
            return None
        ticket = Ticket(owner, 0, self._epoch, self._number, item)
        if self._pinned:
            ticket.pin = self._number
        ticket.before = _Before(self._number)
        self._number += 1
        ticket.after = _Before(self._number)
        return ticket
