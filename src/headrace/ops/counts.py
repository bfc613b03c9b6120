"""Counts: the whole numbers that ops are given, checked, and how many samples come out of several inputs."""

from collections.abc import Callable
from typing import Any

from headrace.errors import BadOption


class BadCount(BadOption, AssertionError):
    """A count that cannot be; an AssertionError too, because that is what users of DataPipes catch."""


def positive(value: object, text: str, kind: type[Exception] = BadOption) -> None:
    """Raise `kind(text)` unless `value` is a whole number above zero."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise kind(text)


def from_all(count: Callable[[tuple[int, ...]], int]) -> Any:
    """`length` of an op with several inputs: `count` of their lengths, such as `sum`, where all are known."""

    def length(op: object, inputs: tuple[int | None, ...]) -> int | None:
        known = tuple(size for size in inputs if size is not None)
        return count(known) if len(known) == len(inputs) else None

    return length
