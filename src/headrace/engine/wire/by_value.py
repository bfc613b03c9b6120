"""By value: what plain pickle refuses (lambdas, closures, what stands in `__main__`), by cloudpickle.

In a module of its own: most replies never need cloudpickle, and a worker that imports it starts later.
"""

import importlib
import sys
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from headrace.engine.wire import tensors
from headrace.engine.wire.codec import exact_text, in_main


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, with the slots of classes that go by value: it forgets them, and their instances would not fit."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__name__ == "MonthDayNano":  # pyarrow's: its class says that it is one of Python's own
            return _interval, tuple(obj)
        if type(obj).__name__ in ("str_", "bytes_") and type(obj).__module__ == "numpy":
            return exact_text(obj)
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType and sys.modules.get(obj.__name__) is obj:
            # A module with a class of its own, such as torch.classes or torch.ops. A function that uses torch and a
            # variable of that name, its own list of classes perhaps, seems to need it.
            return importlib.import_module, (obj.__name__,)
        if _is_untyped(obj):
            return tensors.Memories().reduce(obj)
        reduced = super().reducer_override(obj)
        by_value = isinstance(reduced, tuple) and reduced[0].__name__ == "_make_skeleton_class"
        if by_value and "__slots__" in vars(obj) and not issubclass(obj, tuple):
            make, (meta, name, bases, kwargs, *more), *state = reduced
            return make, (meta, name, bases, {**kwargs, "__slots__": obj.__slots__}, *more), *state
        return reduced


def _is_untyped(obj: Any) -> bool:
    """Whether it is a tensor of a type that torch itself writes and cannot read back: those without a storage class."""
    torch = sys.modules.get("torch")
    if torch is None or type(obj) is not getattr(torch, "Tensor", None):
        return False
    name = str(obj.dtype).removeprefix("torch.")
    return name in ("uint16", "uint32", "uint64", "complex32") or name.startswith(("float8", "float4"))


def _interval(*parts: int) -> Any:
    """Pickle calls this by name: an interval of pyarrow's, of months, days and nanoseconds."""
    pyarrow: Any = importlib.import_module("pyarrow")
    return pyarrow.MonthDayNano(parts)


class ReplyPickler(Pickler):
    """What `__main__` holds here goes by name: the reader has it there too, and wants his own."""

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, type | FunctionType) and in_main(obj):
            return NotImplemented
        return super().reducer_override(obj)
