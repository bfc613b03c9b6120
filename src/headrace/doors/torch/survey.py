"""Survey: what a dataset consists of, as far as that can be said without running any of it.

It is looked for random generators, and for the places that user code can leave something in between two batches:

    objects    of the user's classes, with their attributes
    stored     names of attributes that user code sets, outside of constructors: an object's, a class's or a module's
    globals    variables that user code declares `global` and sets; cells: those of closures that it sets
    arrays     small arrays and tensors, which can be changed in place

A survey is `clear` if it found no generator and has seen everything. Where it meets one of its limits nobody knows what
is behind, and then no worker may make what belongs to another one.
"""

import itertools
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import PurePath
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from headrace.doors.torch.crew import generators
from headrace.doors.torch.mentions import Mentions, mentions

MOST = 4000
"""Objects that are looked at, and"""
WIDE = 64
"""elements of each container among them, if it does not hold plain data only;"""
DEEP = 8
"""plain data is looked through so many levels down, and"""
LARGE = 10_000_000
"""so many elements on each;"""
SHARED = 10_000
"""in a worker fewer: to look at an object is to copy the memory that it is in."""
SMALL = 4096
"""Bytes of the largest array that is compared after each batch."""
FOREIGN = frozenset(sys.stdlib_module_names) | {
    "headrace", "numpy", "torch", "torchvision", "torchaudio", "pandas", "pyarrow", "polars", "PIL", "cv2", "scipy",
    "skimage", "sklearn", "h5py", "zarr", "lmdb", "tifffile", "imageio", "soundfile", "datasets", "tokenizers",
    "transformers", "safetensors", "fsspec", "tqdm", "yaml", "msgpack", "orjson", "omegaconf", "pydantic",
    "attr", "pytest", "_pytest",
}  # fmt: skip
"""Packages whose functions keep nothing between two calls but what the global generators show."""
CLOSED = frozenset({
    "logging", "re", "pathlib", "threading", "multiprocessing", "concurrent", "queue", "io", "zipfile", "tarfile",
    "sqlite3", "socket", "subprocess", "urllib", "http",
})  # fmt: skip
"""Packages whose objects are not taken apart: nothing of the user's is in them. (All loggers know each other.)"""
MAKERS = frozenset({
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__getstate__", "__setstate__",
    "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__setattr__", "__delattr__",
})  # fmt: skip
"""Functions that set the attributes of new objects only, or those that other code names."""
PLAIN = (bool, int, float, str, bytes)
MISSING = object()
"""In place of what is not set."""

_DATA = {*PLAIN, type(None), complex, bytearray, memoryview, range, slice}
_CONTAINERS: dict[type, Any] = {
    dict: dict.values, OrderedDict: OrderedDict.values, defaultdict: defaultdict.values,
    list: list.__iter__, tuple: tuple.__iter__, set: set.__iter__, frozenset: frozenset.__iter__, deque: deque.__iter__,
}  # fmt: skip
_FLAT = {list, tuple, set, frozenset, deque}
"""Those that give their elements when they are iterated."""


class Survey:
    """One look at everything that some things consist of.

    A survey that is `trusting` takes what is in long containers for plain data. It is for workers: the main process has
    seen that it is, and to look at all of it would copy the memory that they share.
    """

    def __init__(self, *things: object, trusting: bool = False) -> None:
        self.clear = True
        self.objects: list[object] = []
        self.classes: list[type] = []
        self.functions: list[FunctionType] = []
        self.modules: list[ModuleType] = []
        self.stored: set[str] = set()
        self.stores_any = False
        """Names are stored that the code does not tell (`setattr`, `__dict__`)."""
        self.globals: dict[tuple[int, str], dict[str, Any]] = {}
        self.cells: dict[int, CellType] = {}
        self.arrays: list[Any] = []
        self._trusting = trusting
        self._generators, self._common = generators()
        self._asked: dict[tuple[int, int], Mentions] = {}
        self._walk(things)

    def _walk(self, things: Iterable[object]) -> None:
        """Nearest first."""
        seen: dict[int, object] = {}
        waiting = deque(things)
        while waiting and self.clear:
            thing = waiting.popleft()
            if id(thing) in seen or type(thing) in _DATA:
                continue
            seen[id(thing)] = thing
            if len(seen) > MOST or self._is_generator(thing):
                self.clear = False
            elif _is_small(thing):
                self.arrays.append(thing)
            waiting.extend(self._parts(thing))

    def _is_generator(self, thing: object) -> bool:
        """It goes on from where it stands, whoever asks."""
        kinds = (*self._generators, GeneratorType, itertools.count, itertools.cycle)
        return isinstance(thing, kinds) and not any(thing is one for one in self._common)

    # --- parts of one thing -------------------------------------------------------------------------------------------

    def _parts(self, thing: Any) -> Iterator[Any]:
        if isinstance(thing, type):
            yield from self._of_class(thing)
        elif isinstance(thing, ModuleType):
            if not _is_foreign(thing.__name__):
                self.modules.append(thing)
                yield from list(vars(thing).values())
        elif isinstance(thing, FunctionType):
            yield from self._of_function(thing)
        elif isinstance(thing, MethodType):
            yield from (thing.__self__, thing.__func__)
        elif isinstance(thing, BuiltinMethodType | MethodWrapperType):
            if not isinstance(thing.__self__, ModuleType):
                yield thing.__self__
        elif isinstance(thing, staticmethod | classmethod):
            yield thing.__func__
        elif isinstance(thing, property):
            yield from (thing.fget, thing.fset, thing.fdel)
        else:
            yield from self._of_object(thing)

    def _of_object(self, thing: Any) -> Iterator[Any]:
        if str(type(thing).__module__).partition(".")[0] in CLOSED:
            return
        if isinstance(thing, partial):
            yield from (thing.func, thing.args, thing.keywords)
        yield from self._elements(thing)
        its = attributes(thing)
        if its is not None:
            yield from self._elements(its) if len(its) > WIDE else list(its.values())
        members = slots(type(thing))
        yield from (slot_value(member, thing) for member in members)
        if (its is not None or members) and not is_foreign(type(thing)):
            self.objects.append(thing)
        yield type(thing)

    def _elements(self, thing: object) -> Iterator[Any]:
        """What is in a container, unless it is plain data."""
        kind = next((kind for kind in type(thing).__mro__ if kind in _CONTAINERS), None)
        if kind is None:
            if type(thing) is np.ndarray and thing.dtype.hasobject and not (self._trusting and thing.size > WIDE):
                yield from self._elements(thing.ravel().tolist())
            return
        long = len(thing) > WIDE  # type: ignore[arg-type]
        if long and self._trusting:
            return
        values = _CONTAINERS[kind]
        records = _records(lambda: values(thing), SHARED if self._trusting else LARGE)
        if records is not None:
            yield from records
        elif long:
            self.clear = False
        else:
            yield from list(values(thing))

    def _of_class(self, kind: type) -> Iterator[Any]:
        """Methods and values of a class and its bases; where it comes with Python's own names, methods only."""
        if is_foreign(kind):
            return
        self.classes.append(kind)
        yield from kind.__mro__[1:]
        yield type(kind)
        for name, part in list(vars(kind).items()):
            if not name.startswith("__") or isinstance(part, FunctionType | staticmethod | classmethod | property):
                yield part

    def _of_function(self, function: FunctionType) -> Iterator[Any]:
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        yield from vars(function).values()
        closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        yield from (cell_value(cell) for cell in closure.values())
        if is_foreign(function):
            return
        self.functions.append(function)
        found = mentions(function.__code__)
        if function.__name__ not in MAKERS:
            self.stored |= found.attributes
            self.stores_any |= found.any_attribute
        for name in found.globals:
            self.globals[id(function.__globals__), name] = function.__globals__
        for name in found.free & closure.keys():
            self.cells[id(closure[name])] = closure[name]
        yield from self._named(found, found.variables, function.__globals__)
        for name in found.imports:
            yield from self._imported(found, name, function.__globals__)

    def _named(self, found: Mentions, names: frozenset[str], space: dict[str, Any]) -> Iterator[Any]:
        """What the names of a function mean; behind that of a module stands any other of its names."""
        for name in names & space.keys():
            value = space[name]
            if isinstance(value, ModuleType):
                yield from self._in_module(found, value)
            else:
                yield value

    def _in_module(self, found: Mentions, module: ModuleType) -> Iterator[Any]:
        if _is_foreign(module.__name__) or (id(found), id(module)) in self._asked:
            return
        self._asked[id(found), id(module)] = found
        self.modules.append(module)
        yield from self._named(found, found.names, vars(module))

    def _imported(self, found: Mentions, name: str, space: dict[str, Any]) -> Iterator[Any]:
        """What a function imports while it runs. A module that nobody has imported yet could hold anything."""
        if name and _is_foreign(name):
            return
        package = str(space.get("__package__") or "").split(".")
        within = [".".join(filter(None, [*package[:n], name])) for n in range(1, len(package) + 1)]
        could_be = [full for full in {name, *within} if full]
        for full in could_be:
            if full in sys.modules:
                yield from self._in_module(found, sys.modules[full])
                yield from self._in_module(found, sys.modules[full.partition(".")[0]])
        if not any(full in sys.modules for full in could_be) and any(map(_exists, could_be)):
            self.clear = False


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


# --- plain data -------------------------------------------------------------------------------------------------------


def _records(elements: Any, most: int) -> set[type] | None:
    """The user's tuple types among the elements, if those are plain data, however deep; None if they are not.

    Level by level, so that C code does nearly all of it: data sets list millions of files.
    """
    records: set[type] = set()
    for _ in range(DEEP):
        level = iter(elements())
        kinds = set(map(type, itertools.islice(level, most)))
        if next(level, level) is not level:
            return None
        inner = {kind for kind in kinds if not _is_data(kind)}
        records |= {kind for kind in inner if _is_record(kind)}
        if not all(kind in _CONTAINERS or kind is np.ndarray or kind in records for kind in inner):
            return None
        if not inner:
            return records
        elements = partial(_next_level, elements, inner, whole=kinds == inner <= _FLAT)
    return None


def _next_level(elements: Any, inner: set[type], *, whole: bool) -> Iterator[Any]:
    if whole:
        return itertools.chain.from_iterable(elements())
    return itertools.chain.from_iterable(_inside(one) for one in elements() if type(one) in inner)


def _inside(thing: Any) -> Iterable[Any]:
    if type(thing) is np.ndarray:
        return thing.ravel().tolist() if thing.dtype.hasobject else ()
    return _CONTAINERS.get(type(thing), tuple.__iter__)(thing)  # type: ignore[no-any-return]


def _is_data(kind: type) -> bool:
    if kind in _DATA or issubclass(kind, np.generic | PurePath):
        return True
    return str(kind.__module__).partition(".")[0] in ("PIL", "datetime", "pyarrow") or kind is _tensor()


def _is_record(kind: type) -> bool:
    """Tuples with names: nothing can be set in them."""
    return issubclass(kind, tuple) and kind is not tuple and not kind.__dictoffset__


# --- single things ----------------------------------------------------------------------------------------------------


def _tensor() -> Any:
    return getattr(sys.modules.get("torch"), "Tensor", None)


def _is_small(thing: Any) -> bool:
    """Whether it is an array or a tensor that can be compared after each batch, and is nobody else's."""
    if type(thing) is np.ndarray:
        owner: Any = thing
        while type(owner) is np.ndarray and owner.base is not None:
            owner = owner.base
        if type(owner) is memoryview:  # (it came in a pickle)
            owner = owner.obj
        private = type(owner) in (np.ndarray, bytearray)
        return private and thing.nbytes <= SMALL and thing.flags.writeable and not thing.dtype.hasobject
    if type(thing) is not _tensor() or str(thing.layout) != "torch.strided" or thing.device.type != "cpu":
        return False
    return thing.nbytes <= SMALL and not thing.is_inference() and not thing.is_shared()


def attributes(thing: object) -> dict[str, Any] | None:
    """The attributes of an object, without asking the object for them."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def slots(kind: type) -> list[MemberDescriptorType]:
    """Where objects of a class keep what has no place in a `__dict__`."""
    owners = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return [member for its in owners for member in its.values() if isinstance(member, MemberDescriptorType)]


def slot_value(member: MemberDescriptorType, thing: object) -> Any:
    try:
        return member.__get__(thing)
    except AttributeError:
        return MISSING


def cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def is_foreign(thing: Any) -> bool:
    return _is_foreign(str(thing.__module__))


def _is_foreign(module: str) -> bool:
    return module.partition(".")[0] in FOREIGN
