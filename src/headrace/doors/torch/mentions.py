"""Mentions: what the code of a function refers to and sets, with that of the functions inside of it."""

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import NamedTuple


class Mentions(NamedTuple):
    """Names in the code of a function."""

    names: frozenset[str]
    """Of global variables, attributes and modules, whichever."""
    variables: frozenset[str]
    """Of global variables that are read."""
    attributes: frozenset[str]
    """Of attributes that are set."""
    any_attribute: bool
    """Attributes are set by names that only the running code knows."""
    globals: frozenset[str]
    """Of global variables that are set."""
    free: frozenset[str]
    """Of variables that are set and may belong to a function outside."""
    imports: frozenset[str]
    """Of modules that are imported; an empty one: the package."""


@lru_cache(4096)
def mentions(code: CodeType) -> Mentions:
    codes = list(_codes(code))
    names = frozenset(name for one in codes for name in one.co_names)
    steps = [(step.opname, str(step.argval)) for one in codes for step in dis.get_instructions(one)]

    def of(*operations: str) -> frozenset[str]:
        return frozenset(name for operation, name in steps if operation in operations)

    return Mentions(
        names,
        variables=of("LOAD_GLOBAL", "LOAD_NAME"),
        attributes=of("STORE_ATTR", "DELETE_ATTR"),
        any_attribute=not names.isdisjoint(("setattr", "__setattr__", "delattr", "__delattr__", "__dict__", "vars")),
        globals=of("STORE_GLOBAL", "DELETE_GLOBAL"),
        free=of("STORE_DEREF", "DELETE_DEREF"),
        imports=of("IMPORT_NAME"),
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """This, and that of comprehensions, lambdas and functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
