"""Listed: items of an iterator that runs in the consumer (`sources.listed`), one ticket each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.wire.messages import Reply, Ticket
from headrace.plan.world import World


@dataclass(frozen=True, slots=True)
class Item(Place):
    """So many items of the list are delivered."""

    label: ClassVar[str] = "a place in a list"
    kind: ClassVar[str] = "listed"
    feed: ClassVar[str] = "listed"
    number: int = 0

    def describe(self) -> str:
        return f"item {self.number} of the list"

    def inputs(self, world: World) -> int:
        return self.number

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        from headrace.sources.listed import ListedItems

        listing = setting.program.head.op
        assert isinstance(listing, ListedItems)
        items = listing.open(setting.epoch, self.number)
        return Listed(items, setting.epoch, self.number, pinned=setting.policy.pinned)


class Listed(Feed):
    """Items of an iterator that runs in the consumer; the first one has number `start`.

    `pinned`: item k belongs to worker k modulo their number, also after a resume.
    """

    def __init__(self, items: Iterator[Any], epoch: int, start: int = 0, *, pinned: bool = False) -> None:
        self._items = items
        self._pinned = pinned
        self._epoch = epoch
        self._number = start

    def next(self, owner: object) -> Ticket | None:
        if self.ended:
            return None  # (The loop asks again and again, and a sampler would be asked each time.)
        failed: Exception | None = None
        item: object = None
        try:
            item = next(self._items)
        except StopIteration:
            self.ended = True
            return None
        except Exception as error:
            failed = error  # it is raised in its place: what was listed before it is delivered first
        ticket = Ticket(owner, 0, self._epoch, self._number, item)
        ticket.error = failed
        ticket.pin = self._number if self._pinned else None
        ticket.before = self._number
        self._number += 1
        ticket.after = self._number
        return ticket

    def seen(self, before: int, reply: Reply) -> int:
        return before + 1

    def at(self, mark: object) -> Place:
        return Item(mark) if isinstance(mark, int) else super().at(mark)
