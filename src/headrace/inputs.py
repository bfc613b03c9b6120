"""An opened input of an op: an iterator over its samples, and what else an op may ask of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from headrace.op import Indexed

Got = TypeVar("Got", covariant=True)


class InputCursor(Iterator[Got]):
    """One input. An iterator of the user's own has none of these methods."""

    __slots__ = ()

    def again(self, turn: int) -> None:
        """Start from the beginning, with the random choices of turn number `turn`."""
        raise NotImplementedError

    def indexed(self) -> "Indexed | None":
        """Random access to the same samples, or None."""
        return None

    def gathered(self) -> "Indexed | None":
        """Random access to lists, for an op that `gathers`; or None."""
        return None

    def repeatable(self) -> bool:
        """Whether it can be read again from its start. (Samples that workers send to the consumer come only once.)"""
        return False

    def reopened(self, *, epoch: int | None = None, turn: int = 0) -> "InputCursor[Got] | None":
        """The same input from its start, or in another epoch; None if it cannot be read again."""
        return None

    def shared(self) -> dict[str, Any]:
        """A dict that all readers of this input in one opened graph share."""
        return {}

    def origin(self) -> tuple[Any, ...]:
        """What its samples depend on besides the epoch: inputs with the same origin give the same samples."""
        return ()


def indexed_input(samples: Iterator[Any]) -> "Indexed | None":
    """Random access to an input, or None."""
    return samples.indexed() if isinstance(samples, InputCursor) else None
