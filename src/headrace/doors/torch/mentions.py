"""Mentions: what the code of a function refers to and sets, with that of the functions inside of it."""

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import NamedTuple


class Mentions(NamedTuple):
    """Names in the code of a function."""

    names: frozenset[str]
    """Of global variables and of attributes, whichever."""
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
    names: set[str] = set()
    found: dict[str, set[str]] = {kind: set() for kind in _OPERATIONS}
    for one in _codes(code):
        names.update(one.co_names)
        for step in dis.get_instructions(one):
            if (kind := _KINDS.get(step.opname)) is not None:
                found[kind].add(str(step.argval))
    any_attribute = not names.isdisjoint(("setattr", "__setattr__", "delattr", "__delattr__", "__dict__", "vars"))
    sets = {kind: frozenset(its) for kind, its in found.items()}
    return Mentions(names=frozenset(names), any_attribute=any_attribute, **sets)


_OPERATIONS = {
    "variables": ("LOAD_GLOBAL", "LOAD_NAME"),
    "attributes": ("STORE_ATTR", "DELETE_ATTR"),
    "globals": ("STORE_GLOBAL", "DELETE_GLOBAL"),
    "free": ("STORE_DEREF", "DELETE_DEREF"),
    "imports": ("IMPORT_NAME",),
}
_KINDS = {operation: kind for kind, operations in _OPERATIONS.items() for operation in operations}


def _codes(code: CodeType) -> Iterator[CodeType]:
    """This, and that of comprehensions, lambdas and functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
