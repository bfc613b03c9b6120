"""State scan: everything that the code of a dataset and of `collate_fn` could change, found without running any of it.

The scan follows what the dataset holds, and what its code names, to random generators and to all variables that the
code could change between two batches. The code says which those are: names of attributes that it sets outside of
constructors, `global` variables, variables of closures.

    mutable    variables of which the code sets one: of an object, a class, a function, a module or a closure
    growing    all other variables: they cannot change, but the code could add a new name
    contents   small arrays and tensors, whose elements can be changed
    safe       no generator was found, and everything was seen. Behind a limit of the scan anything could be, and then
               no worker may steal
"""

import dis
import gc
import itertools
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import PurePath
from types import BuiltinMethodType, CodeType, FunctionType, GeneratorType, MethodType, MethodWrapperType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from headrace.doors.torch.context import generators
from headrace.doors.torch.variables import Content, Variables, content, is_tensor, of_closure, of_dict, variables_of

MOST_OBJECTS = 4000
"""Limit of a scan: objects that are looked at."""
WIDE = 64
"""A container of more elements is short no more: it must hold plain data only."""
DEEP = 8
"""Levels of containers inside each other that plain data may have."""
LARGE = 10_000_000
"""Elements on one level of a long container of plain data."""
SHORT = 10_000
"""The same of a short one; with more, each of its elements is looked at by itself."""
MOST_COMPARED = 32
"""Variables and arrays that are compared after each batch; with more of them no worker steals."""
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
INERT = frozenset({"builtins", "abc", "typing", "enum", "torch.utils.data.dataset"})
"""Foreign modules whose classes set attributes only when an object is made; others could do so at any time."""
MAKERS = frozenset({
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__getstate__", "__setstate__",
    "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__setattr__", "__delattr__",
})  # fmt: skip
"""Functions that set the attributes of new objects only, or those that other code names."""

_DATA = {bool, int, float, str, bytes, type(None), complex, bytearray, memoryview, range, slice}
_CONTAINERS: dict[type, Any] = {
    dict: dict.values, OrderedDict: OrderedDict.values, defaultdict: defaultdict.values,
    list: list.__iter__, tuple: tuple.__iter__, set: set.__iter__, frozenset: frozenset.__iter__, deque: deque.__iter__,
    np.ndarray: lambda array: iter(array.ravel().tolist() if array.dtype.hasobject else ()),
}  # fmt: skip
_WRAPPERS = (MethodType, BuiltinMethodType, MethodWrapperType, staticmethod, classmethod, property, partial)
"""Types of objects that consist of what they refer to."""


class GlobalNames(NamedTuple):
    """Names that some code uses, and the namespace that they stand in."""

    space: dict[str, Any]
    names: frozenset[str]


class PlainContainer(NamedTuple):
    """A container that was looked through when it had this size."""

    container: Any
    size: int
    records: set[type] | None
    """If it holds plain data only: the user's named tuple types in it."""


class StateScan:
    """One scan of some things.

    A `trusting` scan takes what is in long containers for plain data. It is for workers: the main process has seen that
    it is, and to look at all of it would copy the memory that they share. `known` are the `plain` containers of an
    earlier scan: one of millions of samples is not looked through again while it is as long as then.
    """

    def __init__(self, *things: object, trusting: bool = False, known: dict[int, PlainContainer] | None = None) -> None:
        self.safe = True
        self.mutable: list[Variables] = []
        self.growing: list[Variables] = []
        self.contents: list[Content] = []
        self.plain: dict[int, PlainContainer] = {}
        self._known = known or {}
        self._trusting = trusting
        self._generators, self._common = generators()
        self._owners: dict[int, Any] = {}
        """The user's objects, classes, functions and modules."""
        self._stored: set[str] = set()
        self._stores_any = False
        """Names are stored that cannot be read in the code (`setattr`, `__dict__`)."""
        self._walk(things)
        for owner in self._owners.values():
            self._sort(owner, bool(self._stored) or self._stores_any)
        self.safe = self.safe and len(self.mutable) + len(self.contents) <= MOST_COMPARED

    def _walk(self, things: Iterable[object]) -> None:
        """Look at these things and at all that they refer to, the nearest first."""
        seen: dict[object, object] = {}
        waiting = deque(things)
        while waiting and self.safe:
            thing = waiting.popleft()
            key = tuple(map(id, thing)) if isinstance(thing, GlobalNames) else id(thing)
            if key in seen or type(thing) in _DATA:
                continue
            seen[key] = thing
            if len(seen) > MOST_OBJECTS or self._is_generator(thing):
                self.safe = False
            waiting.extend(self._parts(thing))

    def _is_generator(self, thing: object) -> bool:
        """Whether what it gives next depends on what it gave before (the global generators are compared instead)."""
        kinds = (*self._generators, GeneratorType, itertools.count, itertools.cycle)
        return isinstance(thing, kinds) and not any(thing is one for one in self._common)

    def _sort(self, owner: Any, anything_stored: bool) -> None:
        inert = all(base.__module__ in INERT or not _is_foreign(base.__module__) for base in type(owner).__mro__)
        for variables in variables_of(owner):
            if self._stores_any or not inert or not self._stored.isdisjoint(variables.read()):
                self.mutable.append(variables)
            elif anything_stored and not isinstance(owner, ModuleType):  # (Python itself adds names to modules.)
                self.growing.append(variables)

    # --- parts of one thing -------------------------------------------------------------------------------------------

    def _parts(self, thing: Any) -> Iterator[Any]:
        if isinstance(thing, _WRAPPERS):
            yield from gc.get_referents(thing)
        elif isinstance(thing, GlobalNames):
            yield from self._meant(thing, thing.names)
        elif isinstance(thing, ModuleType):
            yield from self._of_module(thing, frozenset(vars(thing)))
        elif isinstance(thing, FunctionType):
            yield from self._of_function(thing)
        elif isinstance(thing, type):
            yield from self._of_class(thing)
        else:
            yield from self._of_object(thing)

    def _meant(self, named: GlobalNames, elsewhere: frozenset[str]) -> Iterator[Any]:
        """What names stand for; after that of a module, any other name of the same code may be one of its own."""
        for name in named.names & named.space.keys():
            value = named.space[name]
            yield from self._of_module(value, elsewhere) if isinstance(value, ModuleType) else (value,)

    def _of_module(self, module: ModuleType, names: frozenset[str]) -> Iterator[Any]:
        if not _is_foreign(module.__name__):
            self._owners[id(module)] = module
            yield GlobalNames(vars(module), names)

    def _of_class(self, kind: type) -> Iterator[Any]:
        """Methods and values of a class and its bases; where it comes with Python's own names, methods only."""
        if _is_foreign(kind.__module__):
            return
        self._owners[id(kind)] = kind
        yield from kind.__mro__[1:]
        yield type(kind)
        for name, part in list(vars(kind).items()):
            if not name.startswith("__") or isinstance(part, FunctionType | staticmethod | classmethod | property):
                yield part

    def _of_function(self, function: FunctionType) -> Iterator[Any]:
        closure = of_closure(function)
        yield from closure.read().values()
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        yield from vars(function).values()
        if _is_foreign(function.__module__):
            return
        self._owners[id(function)] = function
        found = names_in(function.__code__)
        if function.__name__ not in MAKERS:
            self._stored |= found["STORE_ATTR"] | found["DELETE_ATTR"]
            self._stores_any |= not found[ALL].isdisjoint(SETTERS)
        if found["STORE_GLOBAL"] or found["DELETE_GLOBAL"]:
            self.mutable.append(of_dict(function.__globals__))
        if not closure.read().keys().isdisjoint(found["STORE_DEREF"] | found["DELETE_DEREF"]):
            self.mutable.append(closure)
        yield from self._meant(GlobalNames(function.__globals__, found["LOAD_GLOBAL"] | found["LOAD_NAME"]), found[ALL])
        for name in found["IMPORT_NAME"]:
            yield from self._imported(name, str(function.__globals__.get("__package__") or ""), found[ALL])

    def _imported(self, name: str, package: str, names: frozenset[str]) -> Iterator[Any]:
        """What a function imports while it runs. A module that is not imported yet could hold anything."""
        around = package.split(".")
        within = (".".join(filter(None, [*around[:n], name])) for n in range(1, len(around) + 1))
        could_be = [full for full in {name, *within} if full]
        loaded = [full for full in could_be if full in sys.modules]
        for full in loaded:
            yield from self._of_module(sys.modules[full], names)
            yield from self._of_module(sys.modules[full.partition(".")[0]], names)
        if not loaded and not _is_foreign(name) and any(map(_exists, could_be)):
            self.safe = False

    def _of_object(self, thing: Any) -> Iterator[Any]:
        kind = type(thing)
        if str(kind.__module__).partition(".")[0] in CLOSED:
            return
        if (array := content(thing)) is not None:
            self.contents.append(array)
        yield from self._elements(thing)
        for variables in variables_of(thing):
            values = variables.read()
            yield from self._elements(values) if len(values) > WIDE else list(values.values())
            if not _is_foreign(kind.__module__):
                self._owners[id(thing)] = thing
        yield kind

    def _elements(self, thing: Any) -> Iterator[Any]:
        """What is in a container, unless it is plain data."""
        kind = next((kind for kind in type(thing).__mro__ if kind in _CONTAINERS), None)
        if kind is None:
            return
        values, size = partial(_CONTAINERS[kind], thing), thing.size if kind is np.ndarray else len(thing)
        if size > WIDE and self._trusting:
            return
        found = self._known.get(id(thing))
        if found is None or found.container is not thing or found.size != size:
            found = PlainContainer(thing, size, _records(values, LARGE if size > WIDE else SHORT))
        if found.records is None:
            yield from list(values()) if size <= WIDE else ()
            self.safe &= size <= WIDE
        else:
            yield from found.records
            if size > WIDE:
                self.plain[id(thing)] = found


# --- code -------------------------------------------------------------------------------------------------------------

ALL = ""
"""Names of global variables, attributes and modules, whichever."""
SETTERS = frozenset({"setattr", "__setattr__", "delattr", "__delattr__", "__dict__", "vars"})
"""Code that uses these names sets attributes whose names are known only when it runs."""


@lru_cache(4096)
def names_in(code: CodeType) -> defaultdict[str, frozenset[str]]:
    """The names in some code, with that of the functions, lambdas and comprehensions inside of it, by instruction."""
    found = defaultdict(frozenset, {ALL: frozenset(code.co_names)})
    for step in dis.get_instructions(code):
        if step.opname in _NAMING:
            found[step.opname] |= {str(step.argval)}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            for operation, names in names_in(inner).items():
                found[operation] |= names
    return found


_NAMING = {
    "LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_DEREF",
    "DELETE_DEREF", "IMPORT_NAME",
}  # fmt: skip


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
        if not inner <= _CONTAINERS.keys() | records:
            return None
        if not inner:
            return records
        elements = partial(_next_level, elements, inner, whole=kinds == inner)
    return None


def _next_level(elements: Any, inner: set[type], *, whole: bool) -> Iterator[Any]:
    if whole and inner <= {list, tuple}:
        return itertools.chain.from_iterable(elements())
    containers = (one for one in elements() if type(one) in inner)
    return itertools.chain.from_iterable(_CONTAINERS.get(type(one), tuple.__iter__)(one) for one in containers)


def _is_data(kind: type) -> bool:
    if kind in _DATA or issubclass(kind, np.generic | PurePath):
        return True
    return str(kind.__module__).partition(".")[0] in ("PIL", "datetime", "pyarrow") or is_tensor(kind)


def is_plain(value: object) -> bool:
    """Whether it is data, and no object with methods of the user's."""
    return _is_data(type(value)) or type(value) in _CONTAINERS


def _is_record(kind: type) -> bool:
    """Whether it is a type of named tuples: nothing can be set in them."""
    return issubclass(kind, tuple) and kind is not tuple and not kind.__dictoffset__


# --- names of modules -------------------------------------------------------------------------------------------------


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _is_foreign(module: Any) -> bool:
    return str(module).partition(".")[0] in FOREIGN
