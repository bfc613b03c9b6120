"""Fold: batches of the usual form, written as a tree that needs no pickle.

    (ids, {"image": pixels})  --fold-->  (TUPLE, (ARRAY, "<i8", (64,), raw), (DICT, ("image",), (ARRAY, ...)))

The usual form is a collated batch: tuples, lists and dicts of arrays, tensors, numbers and strings, a few levels deep.
What pickle makes of an array's type and shape costs more than all else in a small batch; here an array is four plain
values. A row, which is one tuple, list or dict of numbers and strings, is written as it is. Anything else, and anything
that occurs twice (pickle keeps the two the same object), is left to pickle.
"""

import marshal
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from headrace.engine.wire.tensors import travels_whole

IN_BAND = 2048
"""A buffer smaller than this travels inside the head."""
MOST = 64
"""Arrays and containers in one tree."""
WHOLE, TUPLE, LIST, DICT, ARRAY, SCALAR, TENSOR = range(7)
_PLAIN = {int, float, bool, complex, str, bytes, type(None)}
_CONTAINERS = {tuple, list, dict}
_SIMPLE = frozenset("biufcSUmM")
"""Kinds of numpy types that their short name says all about."""
_NUMBERS = frozenset("biufc")


class AsTensor:
    """An array that is a tensor where it arrives: whoever packs it need not have torch."""

    __slots__ = ("array",)

    def __init__(self, array: object) -> None:
        self.array = array

    def __reduce__(self) -> Any:
        return _tensor, (self.array,)


class _Unfit(Exception):
    """Not of the usual form."""


class _Numpy:
    """numpy's types, once it is loaded."""

    array: Any = None
    scalar: Any = None
    bytes: Any = None
    make: Any = None
    types: ClassVar[dict[str, Any]] = {}
    names: ClassVar[dict[Any, str]] = {}
    """Short names of types of numbers: to ask numpy for a name costs as much as all else of a small array."""
    arrays: ClassVar[set[Any]] = set()
    """And torch's, once that is loaded."""
    tensors = False

    @classmethod
    def look(cls) -> None:
        numpy: Any = sys.modules["numpy"]
        cls.scalar, cls.bytes, cls.make = numpy.generic, numpy.dtype("u1"), numpy.dtype
        cls.arrays |= {numpy.ndarray, AsTensor}
        cls.array = numpy.ndarray


def pack(sample: Any) -> tuple[bytes, list[Any]] | None:
    """The head and the buffers of a sample of the usual form; else None."""
    kind = type(sample)
    parts = sample.values() if kind is dict else sample if kind is tuple or kind is list else (sample,)
    if _PLAIN.issuperset(map(type, parts)) and (kind is not dict or _PLAIN.issuperset(map(type, sample))):
        try:
            return marshal.dumps((WHOLE, sample)), []
        except ValueError:  # a string or bytes of 2 GB and more
            return None
    if _Numpy.array is None:
        if not hasattr(sys.modules.get("numpy"), "ndarray"):
            return None
        _Numpy.look()
    # Without an array near the top there is nothing to win.
    if _arrays().isdisjoint(map(type, parts)):
        return None
    buffers: list[Any] = []
    try:
        return marshal.dumps(_fold(sample, buffers, set())), buffers
    except (_Unfit, ValueError):
        return None


def _arrays() -> set[Any]:
    if not _Numpy.tensors and hasattr(sys.modules.get("torch"), "Tensor"):
        _Numpy.arrays.add(sys.modules["torch"].Tensor)
        _Numpy.tensors = True
    return _Numpy.arrays


def load(head: Any, buffers: Sequence[Any]) -> Any:
    """The sample again; its large arrays look into `buffers`."""
    tree = marshal.loads(head)
    if tree[0] == WHOLE:
        return tree[1]
    if _Numpy.array is None:
        import numpy  # noqa: F401

        _Numpy.look()
    return _unfold(tree, buffers)


def _fold(node: Any, buffers: list[Any], seen: set[int]) -> Any:
    kind = type(node)
    if kind in _PLAIN:
        return node
    if isinstance(node, _Numpy.scalar):
        if node.dtype.kind not in _SIMPLE or isinstance(node, str | bytes):  # (which may end with zeros)
            raise _Unfit
        return SCALAR, node.dtype.str, node.tobytes()
    if id(node) in seen or len(seen) > 2 * MOST:
        raise _Unfit
    seen.add(id(node))
    if kind is _Numpy.array:
        return _array(ARRAY, node, buffers)
    if kind is AsTensor:
        return _array(TENSOR, node.array, buffers)
    if kind is tuple or kind is list:
        kinds = {*map(type, node)}
        if kinds <= _PLAIN:
            return WHOLE, node
        # A list of samples, not of columns: pickle's own walk is the faster one.
        if len(node) > MOST or (kind is list and not _CONTAINERS.isdisjoint(kinds)):
            raise _Unfit
        return TUPLE if kind is tuple else LIST, [_fold(part, buffers, seen) for part in node]
    if kind is dict:
        if len(node) > MOST or not {*map(type, node)} <= _PLAIN:
            raise _Unfit
        return DICT, [*node], [_fold(part, buffers, seen) for part in node.values()]
    if kind is getattr(sys.modules.get("torch"), "Tensor", None):
        try:
            array = node.numpy()
        except (RuntimeError, TypeError):  # of a type or in a place that numpy does not know
            raise _Unfit from None
        # A part of a larger memory, or of one that is there already: pickle keeps the two together (`tensors`).
        address, behind = node.data_ptr(), node.untyped_storage().nbytes()
        if address in seen or (behind != array.nbytes and travels_whole(behind, array.nbytes)):
            raise _Unfit
        if address:
            seen.add(address)
        return _array(TENSOR, array, buffers)
    raise _Unfit


def _array(form: int, array: Any, buffers: list[Any]) -> tuple[int, str, tuple[int, ...], bytes | int]:
    kind = array.dtype
    name = _Numpy.names.get(kind) or _name(kind)
    if not array.flags.c_contiguous or kind.metadata is not None:
        raise _Unfit
    if array.nbytes < IN_BAND:
        return form, name, array.shape, array.tobytes()
    buffers.append(memoryview(array.reshape(-1).view(_Numpy.bytes)))
    return form, name, array.shape, len(buffers) - 1


def _name(kind: Any) -> str:
    if kind.kind not in _SIMPLE:
        raise _Unfit
    name: str = kind.str
    if kind.kind in _NUMBERS:  # (of strings there is a type for every length)
        _Numpy.names[kind] = name
    return name


def _unfold(node: object, buffers: Sequence[Any]) -> Any:
    if type(node) is not tuple:
        return node
    form = node[0]
    if form in (ARRAY, TENSOR):
        _, name, shape, raw = node
        kind = _Numpy.types.get(name)
        if kind is None:
            kind = _Numpy.types[name] = _Numpy.make(name)
        # (A bytearray: whoever gets an array may write into it.)
        array = _Numpy.array(shape, kind, buffers[raw] if type(raw) is int else bytearray(raw))
        return array if form == ARRAY else _tensor(array)
    if form == TUPLE:
        return tuple([_unfold(part, buffers) for part in node[1]])
    if form == DICT:
        return dict(zip(node[1], [_unfold(part, buffers) for part in node[2]], strict=True))
    if form == LIST:
        return [_unfold(part, buffers) for part in node[1]]
    if form == SCALAR:
        return _Numpy.array((), _Numpy.make(node[1]), node[2])[()]
    return node[1]


def _tensor(array: object) -> Any:
    import torch

    return torch.from_numpy(array)
