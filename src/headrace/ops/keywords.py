"""Keywords: arguments that are handed on to another library, as a frozen part of an op."""

from collections.abc import Mapping
from typing import Any

Keywords = tuple[tuple[str, Any], ...]
Given = Keywords | Mapping[str, Any]


def keywords(given: Given | None) -> Keywords:
    """Keyword arguments as a value that does not change."""
    if given is None:
        return ()
    return tuple(sorted(given.items())) if isinstance(given, Mapping) else tuple(given)
