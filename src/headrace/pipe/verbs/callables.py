"""Functions of the user's, checked when they are given."""

from typing import Any

from headrace.errors import BadOption


class NotCallable(BadOption, TypeError):
    """Something else stands where a function is needed."""


def function(fn: Any) -> Any:
    """The function, if it is one."""
    if not callable(fn):
        raise NotCallable(f"A callable function is expected, but {type(fn)} is provided.")
    return fn
