"""Listed: items that the training process iterates itself, and gives to workers, one ticket each.

A sampler of indices, file names out of a queue, prompts: the list is iterated where the loader is, so its random
generator and what else it holds stay there, and workers get one item at a time. A snapshot holds how many items were
delivered; a resumed run asks for the items of that epoch again, from that number on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from headrace.errors import BadOption, BadPipe
from headrace.op import Here, Source, place
from headrace.sources.memory import known_length

T = TypeVar("T")


@runtime_checkable
class ItemsByEpoch(Protocol):
    """Items that differ from epoch to epoch."""

    def open(self, epoch: int, number: int) -> Iterator[Any]:
        """The items of an epoch, from this number on."""


@dataclass(frozen=True, slots=True, eq=False)
class ListedItems(Source[T]):
    """The items of `items`, which is iterated in the training process."""

    items: ItemsByEpoch | Iterable[T]
    listed = True
    verb = "listed"

    def __post_init__(self) -> None:
        if isinstance(self.items, Iterator):
            raise BadOption(
                "listed() takes what can be iterated again each epoch, not an iterator: give the list itself"
            )
        if not isinstance(self.items, ItemsByEpoch | Iterable):
            raise BadOption(f"listed() takes a list, a sampler or any other iterable, not {type(self.items).__name__}")

    def open(self, epoch: int, number: int) -> Iterator[T]:
        """The items of an epoch, from this number on."""
        if isinstance(self.items, ItemsByEpoch):
            return self.items.open(epoch, number)
        return islice(self.items, number, None)

    def flow(self, here: Here) -> Iterator[T]:
        for position, item in enumerate(self.open(here.epoch, here.emitted), here.emitted):
            place.at(here, position)
            yield item

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return known_length(self.items)

    @property
    def resume(self) -> str:
        return "the list is iterated again, nothing of it is read"

    def __reduce__(self) -> tuple[Any, ...]:
        return ListedItems, (ItemsLeftBehind(),)


class ItemsLeftBehind:
    """Stands for the items in other processes, where they cannot be had."""

    def open(self, epoch: int, number: int) -> Iterator[Any]:
        raise BadPipe("a listed source stays in the process that has made it: make the pipe in the one that reads it")
