"""Values in a few words: for a reader, and for the fingerprint of a pipe."""

from dataclasses import MISSING, Field, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def arguments(thing: "DataclassInstance", leave_out: tuple[str, ...] = ()) -> list[str]:
    """The fields of a dataclass as one would write them: what must be given, and what differs from its default."""
    return [said for field in fields(thing) if field.name not in leave_out and (said := _argument(thing, field))]


def _argument(thing: object, field: "Field[Any]") -> str:
    value = getattr(thing, field.name)
    if field.default is MISSING and field.default_factory is MISSING:
        return brief(value)
    differs = type(value) is not type(field.default) or brief(value) != brief(field.default)
    return f"{field.name}={brief(value)}" if differs else ""


def brief(value: Any) -> str:
    """A value for a reader: functions by name, arrays and collections by kind and size."""
    if (named := getattr(value, "__qualname__", None)) is not None:
        return "lambda" if named.endswith("<lambda>") else str(named).rpartition("<locals>.")[2]
    if (shape := getattr(value, "shape", None)) is not None and (kind := getattr(value, "dtype", None)) is not None:
        return f"{type(value).__name__} {kind}{list(shape)}"
    if isinstance(value, list | tuple | set | dict) and len(value) > 8:
        return f"{type(value).__name__} of {len(value)}"
    return repr(value) if isinstance(value, range) else short(value)


def stable(value: object) -> str:
    """A value for a fingerprint: as `short`, and what that would leave out as a hash of it."""
    if isinstance(value, str | bytes) and len(value) > 64:
        return _hashed(value)
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, tuple | list) and len(value) > 8:
        return _hashed([stable(part) for part in value])
    if isinstance(value, tuple | list):
        inner = ", ".join(map(stable, value))
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return short(value)


def _hashed(value: object) -> str:
    return f"<{type(value).__qualname__} {blake2b(repr(value).encode(), digest_size=8).hexdigest()}>"


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
