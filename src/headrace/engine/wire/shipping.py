"""Shipping: a program as bytes that any new process can open.

User functions go by value where they have to (lambdas, closures, everything in `__main__`), so a worker never runs the
user's script again. Classes of `__main__` are put back under their names in the worker's `__main__`: replies can then
use plain pickle, and an instance that comes back is of the very class the user knows. A rank that multiprocessing has
spawned knows the script as `__mp_main__`; that is the same script.
"""

import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle

from headrace.engine.program import Program
from headrace.engine.wire import by_value, codec
from headrace.engine.wire.unshipping import search_path
from headrace.engine.wire.words import CURE
from headrace.errors import NotPicklable
from headrace.tracebacks import full

Reducers = Mapping[type, Callable[[Any], Any]]
"""How to take apart what only a process on this machine can be given, beside the bytes (`workers.process.handles`)."""


class _Pickler(by_value.Pickler):
    """Notes the classes of `__main__` that it met, and the modules that the reader will have to import."""

    def __init__(self, stream: io.BytesIO, reducers: Reducers) -> None:
        # (Looked at while it is made.)
        self.dispatch_table: Any = ChainMap(dict(reducers), by_value.Pickler.dispatch_table)
        super().__init__(stream, protocol=5)
        self.mains: dict[str, type] = {}
        self.modules: set[str] = set()

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, type) and codec.in_main(obj):
            self.mains[obj.__qualname__] = obj
        if isinstance(obj, ModuleType):
            self.modules.add(obj.__name__)  # a global of a function that goes by value
        module = getattr(obj, "__module__", None)
        if isinstance(module, str) and callable(obj):
            self.modules.add(module)
        return super().reducer_override(obj)


def ship(program: Program, extra: object = None, reducers: Reducers | None = None) -> tuple[bytes, list[str]]:
    """The program, and `extra` beside it, as bytes, and the modules it needs; what cannot be pickled is named."""
    reducers = reducers or {}
    whole = io.BytesIO()
    path = pickle.dumps(search_path())
    whole.write(len(path).to_bytes(8, "little") + path)
    pickler = _Pickler(whole, reducers)
    with _script_by_value():
        try:
            # One pickle for all, so that a function and its dataset stay the same objects. The classes stand at the
            # end: by then all of them have been met.
            pickler.dump((program, extra, pickler.mains))
        except Exception as refused:
            raise _named(program, refused, reducers) from (refused if full() else None)
    return whole.getvalue(), sorted(pickler.modules - {*codec.MAINS, "builtins"})


@contextmanager
def _script_by_value() -> Iterator[None]:
    """Inside, cloudpickle takes what stands in a spawned rank's script by value, as it does with `__main__`."""
    script = sys.modules.get("__mp_main__")
    if script is None or script.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(script)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(script)


def _named(program: Program, refused: Exception, reducers: Reducers) -> NotPicklable:
    """Which op, and which attribute of what it holds, does not go."""
    for node in program.pipe.nodes():
        if _refusal(node.op, reducers) is not None:
            thing, path = _blame(node.op, "", reducers)
            part = f"{path.lstrip('. ')} ({type(thing).__name__}) in " if path else ""
            where = f"{part}{node.op.describe()}"
            cure = CURE
            if isinstance(thing, Iterator) and not isinstance(thing, io.IOBase):
                cure = "give the function that makes it, not what it returned"
            return NotPicklable(f"{where} cannot be sent to a worker process: {refused}; {cure}")
    return NotPicklable(f"the loader's options cannot be sent to a worker process: {refused}")


def _blame(thing: object, path: str, reducers: Reducers, depth: int = 0) -> tuple[Any, str]:
    """The innermost part that cannot be pickled, and the path to it."""
    if depth < 6:
        for name, part in _parts(thing):
            if _refusal(part, reducers) is not None:
                return _blame(part, f"{path}{name}", reducers, depth + 1)
    return thing, path


def _parts(thing: Any) -> list[tuple[str, Any]]:
    if isinstance(thing, dict):
        return [(f"[{k!r}]", v) for k, v in list(thing.items())[:1000]]
    if isinstance(thing, list | tuple):
        return [(f"[{i}]", v) for i, v in enumerate(thing[:1000])]
    if hasattr(thing, "__code__"):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        names = thing.__code__.co_names
        return [
            *((f" default {i}", value) for i, value in enumerate(thing.__defaults__ or ())),
            *((f" closure variable {name}", cell.cell_contents) for name, cell in cells),
            *((f" global {name}", thing.__globals__[name]) for name in names if name in thing.__globals__),
        ]
    if hasattr(thing, "__dataclass_fields__"):
        return [(f".{f}", getattr(thing, f)) for f in thing.__dataclass_fields__]
    return [(f".{n}", v) for n, v in getattr(thing, "__dict__", {}).items()] if not isinstance(thing, type) else []


def _refusal(thing: object, reducers: Reducers) -> Exception | None:
    try:
        _Pickler(io.BytesIO(), reducers).dump(thing)
    except Exception as refused:
        return refused
    return None
