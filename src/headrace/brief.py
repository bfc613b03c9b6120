"""Values in a few words: for a reader, and for the fingerprint of a pipe."""

from typing import Any


def brief(value: Any) -> str:
    """A value for a reader: functions by name, arrays and collections by kind and size."""
    if (named := getattr(value, "__qualname__", None)) is not None:
        return "lambda" if named.endswith("<lambda>") else str(named).rpartition("<locals>.")[2]
    if (shape := getattr(value, "shape", None)) is not None and (kind := getattr(value, "dtype", None)) is not None:
        return f"{type(value).__name__} {kind}{list(shape)}"
    if isinstance(value, list | tuple | set | dict) and len(value) > 8:
        return f"{type(value).__name__} of {len(value)}"
    return repr(value) if isinstance(value, range) else short(value)


def short(value: Any) -> str:
    """A stable short text: functions and classes by qualified name, large things by kind."""
    named = getattr(value, "__qualname__", None)
    if named is not None:
        return f"{getattr(value, '__module__', '?')}.{named}"
    if value is None or isinstance(value, str | int | float | bool | bytes):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    if isinstance(value, tuple | list) and len(value) <= 8:
        inner = ", ".join(short(v) for v in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return f"<{type(value).__qualname__}>"
