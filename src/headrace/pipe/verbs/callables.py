"""Functions of the user's, checked when they are given, and what they are given."""

from collections.abc import Hashable, Mapping
from typing import Any

from headrace.errors import BadOption

Columns = Hashable | list[Any]
"""The index or key of one field of a sample, or several of them; None is all of the sample."""


class NotCallable(BadOption, TypeError):
    """Something else stands where a function is needed."""


def function(fn: object) -> Any:
    """The function, if it is one."""
    if not callable(fn):
        raise NotCallable(f"A callable function is expected, but {type(fn)} is provided.")
    return fn


def keywords(given: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    """Arguments for another library, as a value that does not change."""
    return tuple(sorted((given or {}).items()))
