"""Values as short texts: for a reader (`brief`), and for the fingerprint of a pipe (`stable`, `short`)."""

from dataclasses import MISSING, Field, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def arguments(instance: "DataclassInstance", leave_out: tuple[str, ...] = ()) -> list[str]:
    """The fields of a dataclass as the arguments that would make it; those that have their default are left out."""
    return [text for field in fields(instance) if field.name not in leave_out and (text := _argument(instance, field))]


def _argument(instance: object, field: "Field[Any]") -> str:
    value = getattr(instance, field.name)
    if field.default is MISSING and field.default_factory is MISSING:
        return brief(value)
    differs = type(value) is not type(field.default) or brief(value) != brief(field.default)
    return f"{field.name}={brief(value)}" if differs else ""


def brief(value: object) -> str:
    """A value for a reader: functions by name, arrays and collections by kind and size."""
    if (name := getattr(value, "__qualname__", None)) is not None:
        return "lambda" if name.endswith("<lambda>") else str(name).rpartition("<locals>.")[2]
    if (shape := getattr(value, "shape", None)) is not None and (kind := getattr(value, "dtype", None)) is not None:
        return f"{type(value).__name__} {kind}{list(shape)}"
    if isinstance(value, list | tuple | set | dict) and len(value) > 8:
        return f"{type(value).__name__} of {len(value)}"
    return repr(value) if isinstance(value, range) else short(value)


def stable(value: object) -> str:
    """A value for a fingerprint: as `short`, but what is too long for that is written as a hash of its text."""
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


def short(value: object) -> str:
    """A short text that is the same in every process: functions and classes by qualified name, other objects and long
    containers by their type."""
    if (name := getattr(value, "__qualname__", None)) is not None:
        return f"{getattr(value, '__module__', '?')}.{name}"
    if value is None or isinstance(value, str | int | float | bool | bytes):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    if isinstance(value, tuple | list) and len(value) <= 8:
        inner = ", ".join(short(v) for v in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return f"<{type(value).__qualname__}>"
