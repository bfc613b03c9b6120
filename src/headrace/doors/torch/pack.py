"""Plain data as text, and back: JSON in the first line, raw memory behind it, compressed, in base 64.

JSON values, bytes, arrays and tensors go in, in lists and dicts of any depth; anything else is refused by its path.
Of arrays and tensors that is everything that would come back as something else: subclasses (masked arrays, parameters)
and types that have no text. Nothing is executed on the way back. As one leaf a snapshot passes through every checkpoint
format unchanged, also through those that take nested dicts apart.
"""

import json
import zlib
from ast import literal_eval
from base64 import b64decode, b64encode
from functools import partial
from typing import Any

import numpy as np
import torch

from headrace.doors.torch.fetch import Untold
from headrace.errors import SnapshotRefused
from headrace.nested import rebuilt

_MARK = "$"
"""The one key of a dict that stands for something that JSON does not have."""


def pack(value: object, path: str) -> str:
    """The value as text; what is not plain data is refused by its path, which begins with `path`."""
    raw: list[bytes] = []
    text = json.dumps(_encode(value, path, raw), separators=(",", ":"))
    return f"{text}\n{b64encode(zlib.compress(b''.join(raw))).decode()}" if raw else text


def unpack(packed: object) -> Any:
    """The value again."""
    if not isinstance(packed, str):
        raise SnapshotRefused(f"a part of the state is {type(packed).__name__} where text is expected")
    head, _, raw = packed.partition("\n")
    try:
        return _decode(json.loads(head), zlib.decompress(b64decode(raw, validate=True)) if raw else b"")
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, SyntaxError, zlib.error) as broken:
        raise SnapshotRefused(f"a part of the state cannot be read: {broken}") from broken


def _encode(value: object, path: str, raw: list[bytes]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_encode(v, f"{path}[{i}]", raw) for i, v in enumerate(value)]
    if isinstance(value, dict):
        return _encode_dict(value, path, raw)
    if isinstance(value, Untold):
        raise SnapshotRefused(value.why)
    if isinstance(value, bytes | bytearray):
        return {_MARK: ["bytes", *_append(bytes(value), raw)]}
    if type(value) is torch.Tensor and _has_memory(value):
        whole = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        flat = whole.reshape(-1).view(torch.uint8).numpy().tobytes()
        return {_MARK: ["tensor", *_append(flat, raw), str(value.dtype)[6:], list(value.shape)]}
    if isinstance(value, np.generic) and isinstance(number := value.item(), bool | int | float):
        return number
    if type(value) is np.ndarray and (dtype := _dtype_text(value.dtype)) is not None:
        return {_MARK: ["array", *_append(value.tobytes(), raw), dtype, list(value.shape)]}
    raise SnapshotRefused(
        f"{path} is a {type(value).__qualname__}; a snapshot holds JSON values, bytes, arrays and tensors only: let "
        f"the state_dict() that made it return these"
    )


def _encode_dict(value: dict[Any, Any], path: str, raw: list[bytes]) -> Any:
    for k in value:
        if not isinstance(k, str | int) or isinstance(k, bool):
            raise SnapshotRefused(f"{path} has a key of type {type(k).__name__}; keys are text or whole numbers")
    if all(isinstance(k, str) and k != _MARK for k in value):
        return {k: _encode(v, f"{path}[{k!r}]", raw) for k, v in value.items()}
    return {_MARK: ["dict", [[k, _encode(v, f"{path}[{k!r}]", raw)] for k, v in value.items()]]}


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def _dtype_text(dtype: "np.dtype[Any]") -> str | None:
    """The type of an array as text, with its fields, if the same type can be made from that."""
    if dtype.hasobject:
        return None
    try:
        text = dtype.str if dtype.fields is None else repr(dtype.descr)
        again = _dtype(text)
    except (ValueError, TypeError):
        return None
    return text if again == dtype and again.type is dtype.type else None


def _dtype(text: str) -> "np.dtype[Any]":
    described: Any = literal_eval(text) if text.startswith("[") else text
    return np.lib.format.descr_to_dtype(described)


def _append(data: bytes, raw: list[bytes]) -> tuple[int, int]:
    start = sum(map(len, raw))
    raw.append(data)
    return start, start + len(data)


def _decode(value: object, raw: bytes) -> Any:
    if not isinstance(value, dict) or _MARK not in value:
        return rebuilt(value, partial(_decode, raw=raw))
    kind, *parts = value[_MARK]
    if kind == "dict":
        return {k: _decode(v, raw) for k, v in parts[0]}
    data = raw[parts[0] : parts[1]]
    if kind == "bytes":
        return data
    if kind == "array":
        return np.frombuffer(data, _dtype(parts[2])).reshape(parts[3]).copy()
    dtype = getattr(torch, parts[2])
    if not data:
        return torch.empty(parts[3], dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(parts[3])
