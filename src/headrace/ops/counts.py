"""Counts: the numbers that ops are given, checked in one place."""

from headrace.errors import BadOption


class BadCount(BadOption, AssertionError):
    """A count that cannot be; an AssertionError too, because that is what users of DataPipes catch."""


def positive(value: object, text: str, kind: type[Exception] = BadOption) -> None:
    """Raise `kind(text)` unless `value` is a whole number above zero."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise kind(text)
