"""DataPipes: the graph that users of TorchData know, on top of Pipe.

    IterDataPipe    what users subclass with __iter__; every class of `headrace.datapipes.iter` is one
    MapDataPipe     the same with __getitem__ and __len__; `headrace.datapipes.map`

Both are Pipes: every verb works on them, and a graph may mix them with plain pipes. A node of such a graph is either
*built* by a verb or class (it has an op and sources), or *the user's own*: an object whose pipes are found by looking at
its attributes, also inside lists, tuples, sets and dicts. Payloads are never looked into and never pickled to find them.

Nothing here runs. `lowered(pipe)` is the same graph as plain Pipes, in which an object of the user's has become an op;
inside a worker that op runs on a copy of the object whose pipes are replaced by what they deliver. So the user's own
object is never touched, and any number of iterators may read the same graph.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from headrace.cursor import Opening
from headrace.doors.datapipes_user import Hole, UserStream, UserTable, relinked
from headrace.errors import NoLength
from headrace.op import Here, Op
from headrace.ops.chunk import DataChunk as DataChunk
from headrace.pipe import Pipe
from headrace.plan.seed import key
from headrace.verbs.keyed import access

T = TypeVar("T", covariant=True)
LARGEST = 1000
"""A container with more elements than this is data, not a list of pipes."""
_PRIVATE = frozenset({"_built", "_passes", "_sources", "_told"})


class _Computed:
    """An attribute that is worked out when it is asked for, unless the user's object has one of that name."""

    def __init__(self, work_out: Callable[[Any], Any]) -> None:
        self._work_out = work_out

    def __get__(self, node: Any, owner: Any = None) -> Any:
        return self if node is None else self._work_out(node)


class DataPipe(Pipe[T]):
    """What both kinds of DataPipe have in common."""

    length_text: ClassVar[str] = "{name} instance doesn't have valid length"
    own: ClassVar[str] = "__iter__"
    """The method that makes a subclass the user's own."""

    op = _Computed(lambda node: op_of(node))  # type: ignore[assignment]
    inputs = _Computed(lambda node: sources_of(node))  # type: ignore[assignment]

    def __init__(self, *_: Any, **__: Any) -> None:
        pass  # a user's class calls super().__init__() or does not

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """The constructor's arguments of a built pipe, by name."""
        given = self.__dict__.get("_given", {})
        if name in given and not name.startswith("__"):
            return given[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __reduce__(self) -> tuple[Any, ...]:
        # A method called __getstate__ exists on every object; only one that the user wrote decides what travels.
        if type(self).__getstate__ is not object.__getstate__:
            return (_blank, (type(self),), self.__getstate__())
        return (_blank, (type(self),), {k: v for k, v in self.__dict__.items() if k != "_passes"})

    @classmethod
    def built(cls, op: Op[Any, Any], sources: tuple[Pipe[Any], ...], given: dict[str, Any]) -> Any:
        """A node of this class that is not the user's own."""
        node = _blank(cls)
        node.__dict__.update(_built=op, _sources=sources, _given=given)
        return node

    def __iter__(self) -> Iterator[T]:
        passes = self.__dict__.get("_passes", 0)
        self.__dict__["_passes"] = passes + 1
        told: dict[int, int] = {}
        pipe = lowered(self, told=told)
        return _DirectOpening(pipe.ordinals(), passes, told).open(pipe)

    def __len__(self) -> int:
        known = lowered(self).length()
        if known is None:
            raise NoLength(self.length_text.format(name=type(self).__name__))
        return known

    def __repr__(self) -> str:
        return repr(lowered(self))

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """`pipe.function_name(...)` calls `function(pipe, ...)` from now on."""
        register(cls, function_name, function)


class IterDataPipe(DataPipe[T]):
    """A pipe whose samples come one after the other: subclass it and write `__iter__`."""


class MapDataPipe(DataPipe[T]):
    """A pipe whose samples are asked for by key: subclass it and write `__getitem__`, and `__len__` for keys 0, 1, 2, ..."""

    own = "__getitem__"

    def __getitem__(self, index: Any) -> T:
        if "_built" not in self.__dict__:
            raise NotImplementedError(f"{type(self).__name__} must define __getitem__()")
        return access(lowered(self)).get(index)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[T]:
        return (self[i] for i in range(len(self)))


# --- the graph --------------------------------------------------------------------------------------------------------


def is_own(node: Any) -> bool:
    """Whether a node is an object of the user's class."""
    return isinstance(node, DataPipe) and "_built" not in node.__dict__


def sources_of(node: Any) -> tuple[Pipe[Any], ...]:
    """The pipes that feed a node."""
    if not isinstance(node, DataPipe):
        return node.inputs if isinstance(node, Pipe) else ()
    if not is_own(node):
        return node.__dict__["_sources"]  # type: ignore[no-any-return]
    found: dict[int, Pipe[Any]] = {}
    for value in node.__dict__.values():
        _collect(value, found)
    found.pop(id(node), None)
    return tuple(found.values())


def _collect(value: Any, found: dict[int, Pipe[Any]]) -> None:
    if isinstance(value, Pipe):
        found.setdefault(id(value), value)
    elif isinstance(value, dict):
        if len(value) <= LARGEST:
            for name, part in value.items():
                _collect(name, found)
                _collect(part, found)
    elif isinstance(value, list | tuple | set | frozenset) and len(value) <= LARGEST:
        for part in value:
            _collect(part, found)


def op_of(node: Any) -> Op[Any, Any]:
    """What a node does to its inputs."""
    if is_own(node):
        return _own_op(node, sources_of(node), seeded=True)
    built: Op[Any, Any] = node.__dict__["_built"]
    return node.in_force(built) if hasattr(type(node), "in_force") else built


def _own_op(node: Any, sources: tuple[Pipe[Any], ...], seeded: bool) -> Op[Any, Any]:
    if isinstance(node, MapDataPipe):
        return UserTable(node)
    holes = {id(source): Hole(i) for i, source in enumerate(sources)}
    replicable = getattr(node, "is_replicable", None)
    stays = callable(replicable) and not replicable()
    return UserStream(relinked(node, holes), len(sources), seeded, consumer=stays)


def lowered(
    node: Any, memo: dict[int, Pipe[Any]] | None = None, told: dict[int, int] | None = None
) -> Pipe[Any]:
    """The same graph as plain pipes. `told`, if given, collects the seeds that nodes were given by hand."""
    memo = {} if memo is None else memo
    if id(node) in memo:
        return memo[id(node)]
    sources = () if isinstance(node, MapDataPipe) and is_own(node) else sources_of(node)
    # A pipe that can be reached from itself: the way back is left to the user's object, as it is.
    memo[id(node)] = node
    below = [lowered(source, memo, told) for source in sources]
    if not isinstance(node, DataPipe):
        plain = node if all(a is b for a, b in zip(below, sources, strict=True)) else Pipe(node.op, *below)
    elif is_own(node):
        plain = Pipe(_own_op(node, sources, seeded=told is None), *below)
    else:
        plain = Pipe(op_of(node), *below)
    if told is not None and isinstance(node, DataPipe) and "_told" in node.__dict__:
        seed, uses = node.__dict__["_told"]
        told[id(plain)] = key(seed, "told", uses)
        node.__dict__["_told"] = (seed, uses + 1)
    memo[id(node)] = plain
    return plain


class _DirectOpening(Opening):
    """A graph iterated without a loader: each pass has a new order, and seeds given by hand are obeyed."""

    def __init__(self, ordinals: dict[int, int], passes: int, told: dict[int, int]) -> None:
        super().__init__(ordinals, 0, passes)
        self._told = told

    def here(self, node: Pipe[Any], turn: int = 0) -> Here:
        here = super().here(node, turn)
        if id(node) in self._told:
            here.seed = key(self._told[id(node)], turn)
        return here


def clone(node: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy of the graph, node by node; what the nodes hold besides pipes is shared."""
    memo = {} if memo is None else memo
    if id(node) in memo:
        return memo[id(node)]
    memo[id(node)] = node
    swapped = {id(source): clone(source, memo) for source in sources_of(node)}
    if not isinstance(node, DataPipe):
        copied: Any = Pipe(node.op, *[swapped[id(s)] for s in node.inputs])
    else:
        copied = relinked(node, swapped)
    memo[id(node)] = copied
    return copied


# --- names ------------------------------------------------------------------------------------------------------------


def register(cls: type[DataPipe[Any]], name: str, function: Callable[..., Any]) -> None:
    """Put a verb on a class of pipes; a name that is taken by somebody else is refused."""
    taken = getattr(cls, name, None)
    if taken is not None and _who(taken) != _who(function):
        raise Exception(f"Unable to add DataPipe function name {name} as it is already taken")
    # Verbs of streams work on plain pipes too.
    setattr(Pipe if issubclass(IterDataPipe, cls) else cls, name, function)


def _who(function: Any) -> Any:
    made = getattr(function, "made_by", function)
    return (getattr(made, "__module__", None), getattr(made, "__qualname__", None))


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[type], type]:
    """A decorator: `pipe.name(...)` is `cls(pipe, ...)` from now on."""
    if not isinstance(name, str):
        raise TypeError(f"functional_datapipe(name) needs a name, not {type(name).__name__}")

    def decorate(cls: type) -> type:
        if not issubclass(cls, DataPipe):
            raise TypeError(f"`functional_datapipe` can only decorate IterDataPipe or MapDataPipe, not {cls.__name__}")

        def verb(self: Any, *args: Any, **kwargs: Any) -> Any:
            return cls(self, *args, **kwargs)

        verb.__name__, verb.__doc__ = name, cls.__doc__
        verb.made_by = cls  # type: ignore[attr-defined]
        register(MapDataPipe if issubclass(cls, MapDataPipe) else IterDataPipe, name, verb)
        return cls

    return decorate


def _blank(cls: Any) -> Any:
    return object.__new__(cls)
