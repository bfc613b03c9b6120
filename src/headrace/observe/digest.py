"""A batch as sixteen bytes, which are equal exactly when the values of two batches are, bit by bit.

Containers, text, numbers, arrays (numpy, torch, jax), dataclasses and plain objects are taken apart: how they share
memory, and in which process they were made, does not matter. NaN equals itself; 0.0 and -0.0 differ, and so do 1, 1.0
and True.
"""

import dataclasses
import struct
from collections.abc import Mapping, Set
from hashlib import blake2b
from typing import Any

SIZE = 16


def digest(value: object) -> bytes:
    """The digest of anything."""
    hasher = blake2b(digest_size=SIZE)
    _feed(hasher, value, set())
    return hasher.digest()


def _feed(hasher: blake2b, value: Any, above: set[int]) -> None:
    kind = type(value)
    if value is None or kind is bool or kind is int:
        _mark(hasher, "i", repr(value).encode())
    elif kind is float:
        _mark(hasher, "f", struct.pack("<d", value) if value == value else b"nan")
    elif kind is str:
        _mark(hasher, "s", value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes | bytearray | memoryview):
        _mark(hasher, "b", bytes(value))
    else:
        _deep(hasher, value, above)


def _mark(hasher: blake2b, tag: str, body: Any) -> None:
    # Tag, length, body: no two values are written alike.
    hasher.update(b"%b%d:" % (tag.encode(), len(body)))
    hasher.update(body)


def _deep(hasher: blake2b, value: object, above: set[int]) -> None:
    if id(value) in above:
        _mark(hasher, "again", b"")
        return
    above.add(id(value))
    try:
        _mark(hasher, "type", f"{type(value).__module__}.{type(value).__qualname__}".encode())
        if not _array(hasher, value):
            _parts(hasher, value, above)
    finally:
        above.discard(id(value))


def _array(hasher: blake2b, value: Any) -> bool:
    """Arrays and tensors, by dtype, shape and bytes; False if it is neither."""
    if hasattr(value, "untyped_storage") and hasattr(value, "detach"):
        _mark(hasher, "tensor", repr((str(value.dtype), tuple(value.shape))).encode())
        dense = value.to_dense() if str(value.layout) != "torch.strided" else value
        flat = dense.detach().cpu().contiguous().reshape(-1)
        octets = flat.new_empty(0).byte().dtype  # torch's uint8, without importing torch
        hasher.update(flat.view(octets).numpy() if flat.numel() else b"")
        return True
    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "shape") or not hasattr(value, "__array__"):
        return False
    import numpy as np

    array = np.asarray(value)
    _mark(hasher, "array", repr((str(dtype), array.shape)).encode())
    if array.dtype.hasobject:
        for element in array.reshape(-1).tolist():
            _feed(hasher, element, set())
    else:
        hasher.update(np.ascontiguousarray(array).tobytes())
    return True


def _parts(hasher: blake2b, value: object, above: set[int]) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            _feed(hasher, key, above)
            _feed(hasher, part, above)
        _mark(hasher, "end", str(len(value)).encode())
    elif isinstance(value, list | tuple):
        for part in value:
            _feed(hasher, part, above)
        _mark(hasher, "end", str(len(value)).encode())
    elif isinstance(value, Set):
        for part in sorted(digest(part) for part in value):
            hasher.update(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _feed(hasher, getattr(value, field.name), above)
    elif isinstance(value, type) or callable(value):
        _mark(hasher, "name", f"{value.__module__}.{getattr(value, '__qualname__', repr(value))}".encode())
    else:
        _object(hasher, value, above)


def _object(hasher: blake2b, value: object, above: set[int]) -> None:
    """Anything else: by its attributes in `__dict__` if it has some, else as it prints itself, else by its slots."""
    attributes = getattr(value, "__dict__", None)
    kind: Any = type(value)
    if not attributes and kind.__repr__ is not object.__repr__:
        _mark(hasher, "repr", repr(value).encode("utf-8", "surrogatepass"))
        return
    if not attributes and isinstance(state := object.__getstate__(value), tuple):
        attributes = state[1]  # (not before its text: some classes, such as Path, keep caches in slots)
    if attributes:
        _parts(hasher, dict(sorted(attributes.items())), above)
