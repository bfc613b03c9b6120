"""DataPipes: the graph that users of TorchData know, on top of Pipe.

    IterDataPipe    what users subclass with __iter__; every class of `headrace.datapipes.iter` is one
    MapDataPipe     the same with __getitem__ and __len__; `headrace.datapipes.map`

Both are Pipes: every verb works on them, and a graph may mix them with plain pipes. A node of such a graph is either
*built* by a verb or class (it has an op and sources), or *a user object*: an instance of a class that extends ours, or
torch's of the same names. The sources of a user object are the pipes in its attributes, also inside lists, tuples, sets
and dicts; data is never searched or pickled to find them.

Nothing runs here: `lowering` makes plain pipes of a graph, which the engine runs.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.doors.datapipes.user import contents
from headrace.doors.torch.datapipes import is_torchs, is_torchs_table, reduced_for_torch, torchs_verb
from headrace.errors import BadPipe, NoLength
from headrace.op import Indexed, Op
from headrace.ops.shape.batch import DataChunk as DataChunk
from headrace.pipe.graph import Pipe
from headrace.pipe.verbs.keyed import Keyed
from headrace.sources.access import RandomAccess
from headrace.sources.table import CachedTable, KeyedTable
from headrace.sources.wrapped import Sampled
from headrace.tracebacks import short_errors, shorten

if TYPE_CHECKING:
    from headrace.doors.datapipes import verbs

T = TypeVar("T", covariant=True)
SOURCE_NAMES = ("datapipe", "source_datapipe", "source_dp", "source_iterdatapipe")
"""Names of the first argument of the classes, which users give by keyword."""
READS_BY_ITSELF: dict[type, str] = {KeyedTable: "source", CachedTable: "pipe", Sampled: "data"}
"""Ops that have no input for the engine: they read their source themselves, which they hold in this field."""
ASK_FIRST = {
    f"{name}IterDataPipe" for name in (
        "Batcher", "Collator", "Concater", "Cycler", "Mapper", "Multiplexer", "MultiplexerLongest", "Prefetcher",
        "Repeater", "Shuffler", "ThreadPoolMapper", "Zipper", "ZipperLongest",
    )
}  # fmt: skip
"""Classes whose error says that they have no length, where the source's class has no `len` at all."""
_THIS_PROCESS_ONLY = ("_access", "_passes")
"""Attributes of a node that are not pickled."""


class _Computed:
    """A property that an attribute of the same name, set by a user's class, replaces."""

    def __init__(self, work_out: Callable[[Any], Any]) -> None:
        self._work_out = work_out

    def __get__(self, node: object, owner: object = None) -> Any:
        return self if node is None else self._work_out(node)


class DataPipe(Pipe[T]):
    """What both kinds of DataPipe have in common."""

    length_text: ClassVar[str] = "{name} instance doesn't have valid length"
    original: ClassVar[str] = ""
    """What TorchData calls this class inside: texts that programs look for have that name."""

    # Only built nodes have these: the op, the pipes that feed it, and the arguments of the constructor.
    _built: Any
    _sources: tuple[Pipe[Any], ...]
    _constructor_args: dict[str, Any]

    op = _Computed(lambda node: _op_of(node))
    inputs = _Computed(lambda node: engine_inputs(node))

    def __init__(self, *_: object, **__: object) -> None:
        pass  # a user's class calls super().__init__() or does not

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """The constructor's arguments of a built pipe, by name."""
        if name[:2] != "__":
            args = self.__dict__.get("_constructor_args", {})
            if name in args:
                return args[name]
            # (What the branches of a fork read is called main_datapipe.)
            is_branch = "instance_id" in args or not args
            if self.__dict__.get("_sources") and (name in SOURCE_NAMES or (name == "main_datapipe" and is_branch)):
                return self.__dict__["_sources"][0]
            if (verb := torchs_verb(self, name)) is not None:
                return functools.partial(verb, self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return reduced_for_torch(self, lambda: list(sources_of(self))) or self.__reduce__()

    def __reduce__(self) -> tuple[Any, ...]:
        # A method called __getstate__ exists on every object; only one that the user wrote decides what travels.
        if type(self).__getstate__ is not object.__getstate__:
            return (_blank, (type(self),), self.__getstate__())
        return (_blank, (type(self),), {k: v for k, v in self.__dict__.items() if k not in _THIS_PROCESS_ONLY})

    @classmethod
    def built(cls, op: Op[Any, Any], sources: tuple[Pipe[Any], ...], args: dict[str, Any]) -> Any:
        """A built node of this class."""
        node = _blank(cls)
        node.__dict__.update(_built=op, _sources=sources, _constructor_args=args)
        return node

    def current_op(self, op: Op[Any, Any]) -> Op[Any, Any]:
        """The op that a built node runs now: a shuffle that is switched off runs another."""
        return op

    @short_errors
    def __iter__(self) -> Iterator[T]:
        from headrace.doors.datapipes.lowering import opened

        if is_user_object(self) and not isinstance(self, TorchPipe):
            raise NotImplementedError(f"{type(self).__name__} must define __iter__()")
        return opened(self)

    # What verbs ask about their pipe, the plain graph answers: a user's class may use these names for attributes.

    def length(self) -> int | None:
        return _lowered(self).length()

    def indexed(self, *about: Any, **more: Any) -> Indexed | None:
        return _lowered(self).indexed(*about, **more)

    @property
    def columnar(self) -> bool:
        return _lowered(self).columnar

    @short_errors
    def __len__(self) -> int:
        pipe = _lowered(self)
        known = pipe.length()
        if known is not None:
            return known
        if is_user_object(self):
            raise NoLength(f"object of type '{type(self).__name__}' has no len()")
        from_sources = "length" not in self._constructor_args and _is_sized(self)
        if pipe.inputs and from_sources and pipe.op.length((1,) * len(pipe.inputs)) is not None:
            for source in self._sources:  # the source without a length raises its own error
                if self.original not in ASK_FIRST or _is_sized(source):
                    len(source)
        raise NoLength(self.length_text.format(name=self.original or type(self).__name__))

    def __repr__(self) -> str:
        return repr(_lowered(self))

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """`pipe.function_name(...)` calls `function(pipe, ...)` from now on; a name that is taken is refused."""
        taken = getattr(cls, function_name, None)
        if taken is not None and _origin(taken) != _origin(function):
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        setattr(cls, function_name, function)


class IterDataPipe(DataPipe[T]):
    """A pipe whose samples come one after the other: subclass it and write `__iter__`.

    A class that has `reset()` too gets a call of it whenever an iteration begins.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = _with_reset(cls.__dict__["__iter__"])  # type: ignore[method-assign]

    if TYPE_CHECKING:  # the arguments of these verbs are those of TorchData, not those of Pipe
        batch = verbs.batch  # type: ignore[assignment]
        unbatch = verbs.unbatch  # type: ignore[assignment]
        collate = verbs.collate  # type: ignore[assignment]
        shuffle = verbs.shuffle
        enumerate = verbs.enumerate_  # type: ignore[assignment]
        filter = verbs.filter_  # type: ignore[assignment]


class MapDataPipe(DataPipe[T]):
    """A pipe whose samples are asked for by key: subclass it and write `__getitem__`, and `__len__` for 0, 1, 2, ..."""

    def __getitem__(self, index: object) -> T:
        try:
            if "_built" not in self.__dict__:
                raise NotImplementedError(f"{type(self).__name__} must define __getitem__()")
            found = self.__dict__.get("_access")
            if found is None:
                found = self.__dict__["_access"] = RandomAccess(_lowered(self))
            return found.get(index)  # type: ignore[no-any-return]
        except Exception as error:
            shorten(error)
            raise

    def __iter__(self) -> Iterator[T]:
        try:
            for i in range(len(self)):
                yield self[i]
        except Exception as error:
            shorten(error)
            raise


def _with_reset(iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """A user's `__iter__`, which calls `reset()` first: a generator does so when its first sample is asked for."""

    @functools.wraps(iterate)
    def begun(pipe: Any) -> Iterator[Any]:
        try:
            _reset(pipe)
            yield from iterate(pipe)
        except Exception as error:
            shorten(error)
            raise

    @functools.wraps(iterate)
    @short_errors
    def begun_at_once(pipe: Any) -> Iterator[Any]:
        _reset(pipe)
        return iterate(pipe)

    return begun if inspect.isgeneratorfunction(iterate) else begun_at_once


def _reset(pipe: object) -> None:
    if callable(reset := getattr(pipe, "reset", None)):
        reset()


for _class in (DataPipe, IterDataPipe, MapDataPipe):
    # So unpickling one of them imports the module that puts the verbs on them.
    _class.__module__ = "headrace.doors.datapipes.names"


# --- the graph --------------------------------------------------------------------------------------------------------


def is_pipe(value: object) -> bool:
    """Whether a value is a node of a graph: of our classes, or of torch's."""
    return isinstance(value, Pipe) or is_torchs(value)


def is_table(node: object) -> bool:
    """Whether a node's samples are asked for by key."""
    return isinstance(node, MapDataPipe) or is_torchs_table(node)


def is_user_object(node: object) -> bool:
    """Whether a node is an object of a user's class, or of one of torch's classes."""
    return "_built" not in node.__dict__ if isinstance(node, DataPipe) else not isinstance(node, Pipe)


def built_op(node: Any) -> Op[Any, Any] | None:
    """The op that a node was built with; None for a user object."""
    if is_user_object(node):
        return None
    return node._built if isinstance(node, DataPipe) else node.op  # type: ignore[no-any-return]


def sources_of(node: Any) -> tuple[Pipe[Any], ...]:
    """The pipes that feed a node."""
    if not is_user_object(node):
        return node._sources if isinstance(node, DataPipe) else node.inputs
    found: dict[int, Pipe[Any]] = {}
    for value in node.__dict__.values():
        _collect(value, found)
    found.pop(id(node), None)
    return tuple(found.values())


def _collect(value: Any, found: dict[int, Pipe[Any]]) -> None:
    if is_pipe(value):
        found.setdefault(id(value), value)
        return
    for part in contents(value):
        _collect(part, found)


def streams_of(node: object) -> tuple[Pipe[Any], ...]:
    """The sources that the engine opens for a node: all but the tables of a user object, which it reads by key."""
    sources = sources_of(node)
    return (
        tuple(s for s in sources if not is_table(s) and not isinstance(s, Keyed)) if is_user_object(node) else sources
    )


def engine_inputs(node: object) -> tuple[Pipe[Any], ...]:
    """The inputs of a node that a plain `Loader` runs."""
    inputs = () if type(built_op(node)) in READS_BY_ITSELF else streams_of(node)
    for foreign in inputs:
        if not isinstance(foreign, Pipe):
            raise BadPipe(
                f"{type(foreign).__name__} extends torch's class: give such a graph to DataLoader2, not Loader"
            )
    return inputs


def _lowered(node: object) -> Pipe[Any]:
    from headrace.doors.datapipes.lowering import lowered

    return lowered(node)


def _op_of(node: object) -> Op[Any, Any]:
    from headrace.doors.datapipes.lowering import op_of

    return op_of(node)


def _is_sized(node: object) -> bool:
    """Whether a pipe has a length in principle, known or not."""
    if is_user_object(node):
        return getattr(type(node), "__len__", DataPipe.__len__) is not DataPipe.__len__
    return not getattr(node, "length_text", "").startswith("object of type")


class TorchPipe(IterDataPipe[Any]):
    """A pipe of torch's class where a verb needs a Pipe; the graph that the verb makes has the pipe itself."""

    def __init__(self, pipe: object) -> None:
        self.pipe = pipe


# --- names ------------------------------------------------------------------------------------------------------------


def verb_of(cls: type, name: str, doc: str | None, like: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The method that is the same as a class: `pipe.name(...)` is `cls(pipe, ...)`, with the arguments of `like`."""

    def verb(self: object, *args: object, **kwargs: object) -> Any:
        try:
            return cls(self, *args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    if like is not None:
        functools.update_wrapper(verb, like)
    verb.__name__, verb.__doc__ = name, doc
    verb.made_by = cls  # type: ignore[attr-defined]
    return verb


def _origin(function: object) -> Any:
    """The module and name of the class or function behind a verb."""
    made = getattr(function, "made_by", function)
    return (getattr(made, "__module__", None), getattr(made, "__qualname__", None))


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[type], type]:
    """A decorator: `pipe.name(...)` is `cls(pipe, ...)` from now on."""
    if not isinstance(name, str):
        raise TypeError(f"functional_datapipe(name) needs a name, not {type(name).__name__}")

    def decorate(cls: type) -> type:
        if not issubclass(cls, DataPipe):
            raise TypeError(f"`functional_datapipe` can only decorate IterDataPipe or MapDataPipe, not {cls.__name__}")

        kind = MapDataPipe if issubclass(cls, MapDataPipe) else IterDataPipe
        kind.register_function(name, verb_of(cls, name, cls.__doc__))
        return cls

    return decorate


def _blank(cls: Any) -> Any:
    return object.__new__(cls)
