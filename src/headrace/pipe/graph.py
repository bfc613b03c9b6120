"""Pipe: an immutable graph of ops, built by verbs.

A pipe describes; it never runs by itself. Give it to a `Loader`, or iterate it directly: that opens the whole graph in
the calling thread, always with the same seed. Every verb returns a new pipe and leaves the old one as it was.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from headrace.errors import BadOption, NoLength
from headrace.op import Clock, Indexed, Op, Spot
from headrace.pipe.verbs.branches import BranchVerbs
from headrace.pipe.verbs.columns import ColumnVerbs
from headrace.pipe.verbs.files import FileVerbs
from headrace.pipe.verbs.frames import FrameVerbs, is_expression
from headrace.pipe.verbs.groups import GroupVerbs
from headrace.pipe.verbs.lookup import LookupVerbs
from headrace.pipe.verbs.places import PlaceVerbs

T = TypeVar("T", covariant=True)
U = TypeVar("U")
V = TypeVar("V")


class Pipe(FrameVerbs, FileVerbs, ColumnVerbs, GroupVerbs, BranchVerbs, PlaceVerbs, LookupVerbs, Generic[T]):
    """A graph of ops whose last one emits samples of type `T`."""

    __slots__ = ("__weakref__", "inputs", "op")
    op: Op[Any, Any]
    inputs: "tuple[Pipe[Any], ...]"

    def __init__(self, op: Op[Any, T], *inputs: "Pipe[Any]") -> None:
        for given in inputs:
            if not isinstance(given, Pipe):
                raise BadOption(
                    f"the inputs of {op.name()} must be pipes, not {type(given).__name__}: wrap it in Pipe.of()"
                )
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "inputs", inputs)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Pipe does not change: .{name} cannot be set; use a verb to make a new pipe")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pipe, (self.op, *self.inputs))

    @overload
    @staticmethod
    def of(data: Sequence[U]) -> "Pipe[U]": ...
    @overload
    @staticmethod
    def of(data: Iterable[U]) -> "Pipe[U]": ...
    @overload
    @staticmethod
    def of(data: Callable[[], Iterable[U]]) -> "Pipe[U]": ...
    @overload
    @staticmethod
    def of(data: Any) -> "Pipe[Any]": ...
    @staticmethod
    def of(data: Any) -> "Pipe[Any]":
        """A pipe over a sequence (random access), an iterable, or a function that returns a fresh iterable.

        Of a list, an array or a tensor each reader gets copies (of an array over 1 MB a read-only view), so what an op
        changes in place does not come back in the next epoch. A dataset of your own hands out what it likes.
        """
        from headrace.sources.memory import FromIterable, FromSequence
        from headrace.tables.in_memory import from_frame

        if isinstance(data, Pipe):
            return data
        if (frame := from_frame(data)) is not None:
            return Pipe(frame)
        if isinstance(data, str | bytes):
            raise BadOption("Pipe.of() takes samples, not one string; for files use Pipe.files(path)")
        if _has_random_access(data):
            return Pipe(FromSequence(data))
        if hasattr(data, "__iter__") or callable(data):
            return Pipe(FromIterable(data))
        raise BadOption(
            f"Pipe.of() takes a sequence (with len() and [i]), an iterable, or a function that returns one; "
            f"{type(data).__name__} is none of these"
        )

    def then(self, op: Op[T, U], *others: "Pipe[Any]") -> "Pipe[U]":
        """Any op, also one of your own."""
        return Pipe(op, self, *others)

    # --- sample by sample -------------------------------------------------------------------------------------------

    @overload
    def map(self, fn: Callable[[T], U]) -> "Pipe[U]": ...
    @overload
    def map(self, fn: Callable[..., Any], input_col: Any, output_col: Any = None) -> "Pipe[Any]": ...
    @overload
    def map(self, fn: Callable[..., Any], *, batched: bool, as_: str = "numpy") -> "Pipe[Any]": ...
    def map(
        self,
        fn: Callable[..., Any],
        input_col: Any = None,
        output_col: Any = None,
        *,
        batched: bool = False,
        as_: str = "numpy",
    ) -> "Pipe[Any]":
        """`fn` applied to every sample, or to the fields `input_col` of it, whose place the result takes.

        With `batched=True`, over rows of a frame, `fn` gets the columns of many rows in the form `as_`, and returns
        columns.
        """
        from headrace.ops.shape.map import Map
        from headrace.tables.ops.columns import MapColumns, check_columns

        check_columns(input_col, output_col)
        if batched:
            return self._map_rows(_function(fn, "map"), as_)
        if input_col is not None:
            return Pipe(MapColumns(_function(fn, "map"), input_col, output_col), self)
        return Pipe(Map(_function(fn, "map")), self)

    def filter(self, fn: Any, input_col: Any = None) -> "Pipe[T]":
        """Only the samples for which `fn` (of the sample, or of its fields `input_col`) or an expression is true."""
        from headrace.ops.shape.filter import Filter
        from headrace.tables.ops.columns import FilterColumns

        if is_expression(fn):
            return self._filter_rows(fn)
        if input_col is not None:
            return Pipe(FilterColumns(_function(fn, "filter"), input_col), self)
        return Pipe(Filter(_function(fn, "filter")), self)

    @overload
    def flatmap(self, fn: Callable[[T], Iterable[U]]) -> "Pipe[U]": ...
    @overload
    def flatmap(self, fn: Callable[..., Iterable[Any]] | None = None, input_col: Any = None) -> "Pipe[Any]": ...
    def flatmap(self, fn: Callable[..., Iterable[Any]] | None = None, input_col: Any = None) -> "Pipe[Any]":
        """Every element of `fn`, of the sample or of its fields `input_col`; without `fn`, of the sample or field."""
        from headrace.ops.shape.flatmap import Flatmap
        from headrace.tables.ops.columns import FlatmapColumns

        if fn is not None and input_col is None:
            return Pipe(Flatmap(_function(fn, "flatmap")), self)
        return Pipe(FlatmapColumns(None if fn is None else _function(fn, "flatmap"), input_col), self)

    # --- grouping ---------------------------------------------------------------------------------------------------

    @overload
    def batch(self, size: int, drop_last: bool = False) -> "Pipe[list[T]]": ...
    @overload
    def batch(self, size: int, drop_last: bool = False, *, as_: str | None) -> "Pipe[Any]": ...
    def batch(self, size: int, drop_last: bool = False, *, as_: str | None = None) -> "Pipe[Any]":
        """Lists of `size` consecutive samples; of rows of a frame, a dict of arrays, or the form `as_`."""
        from headrace.ops.shape.batch import Batch

        if as_ is not None or self.columnar:
            return self._column_batch(size, drop_last, as_)
        return Pipe(Batch(size, drop_last), self)

    def unbatch(self, level: int = 1) -> "Pipe[Any]":
        """The elements of lists, one by one."""
        from headrace.ops.shape.unbatch import Unbatch

        return Pipe(Unbatch(level), self)

    @overload
    def collate(self) -> "Pipe[Any]": ...
    @overload
    def collate(self, fn: Callable[[T], U]) -> "Pipe[U]": ...
    def collate(self, fn: Callable[[Any], Any] | None = None) -> "Pipe[Any]":
        """Each list of samples as one sample of arrays, by `fn` or by type."""
        from headrace.ops.shape.collate import Collate
        from headrace.tables.ops.batch import AsColumns

        if fn is None and isinstance(self.op, AsColumns):
            return self  # columns are collated already
        return Pipe(Collate(None if fn is None else _function(fn, "collate")), self)

    # --- order ------------------------------------------------------------------------------------------------------

    def shuffle(
        self, *, window: int | None = None, buffer_size: int | None = None, quality: float | None = None
    ) -> "Pipe[T]":
        """Another order each epoch: of everything, inside windows, or through a buffer; of files, with this quality."""
        from headrace.ops.order.shuffle import Shuffle

        return Pipe(Shuffle(window, buffer_size, quality), self)

    def weighted(self, weights: Sequence[float], count: int | None = None) -> "Pipe[T]":
        """`count` samples (as many as there are weights, if not given), drawn with replacement by weight."""
        from headrace.ops.order.weighted import WeightedDraw

        return Pipe(WeightedDraw(tuple(weights), len(weights) if count is None else count), self)

    def sharding_filter(self, sharding_group_filter: Any = None) -> "Pipe[T]":
        """From here on, work is divided among workers and ranks."""
        from headrace.ops.order.sharding import Sharding

        return Pipe(Sharding(sharding_group_filter), self)

    def header(self, limit: int | None = 10) -> "Pipe[T]":
        """The first `limit` samples."""
        from headrace.ops.order.header import Header

        return Pipe(Header(limit), self)

    def cycle(self, count: int | None = None) -> "Pipe[T]":
        """The whole input `count` times, or for ever, in a new order each time."""
        from headrace.ops.order.cycle import Cycle

        return Pipe(Cycle(count), self)

    def enumerate(self, start: int = 0) -> "Pipe[tuple[int, T]]":
        """Pairs (number, sample)."""
        from headrace.ops.shape.enumerate import Enumerate

        return Pipe(Enumerate(start), self)

    # --- several pipes ----------------------------------------------------------------------------------------------

    @overload
    def zip(self, other: "Pipe[U]", /) -> "Pipe[tuple[T, U]]": ...
    @overload
    def zip(self, other: "Pipe[U]", third: "Pipe[V]", /) -> "Pipe[tuple[T, U, V]]": ...
    @overload
    def zip(self, *others: "Pipe[Any]") -> "Pipe[tuple[Any, ...]]": ...
    def zip(self, *others: "Pipe[Any]") -> "Pipe[Any]":
        """Tuples of one sample from each pipe, until the shortest ends."""
        from headrace.ops.branch.zip import Zip

        return Pipe(Zip(), self, *others)

    def concat(self, *others: "Pipe[U]") -> "Pipe[T | U]":
        """All of this pipe, then all of the next."""
        from headrace.ops.branch.concat import Concat

        return Pipe(Concat(), self, *others)

    def mix(self, *others: "Pipe[U]", weights: Sequence[float] | None = None) -> "Pipe[T | U]":
        """Samples of several pipes, each next one from a pipe chosen by weight."""
        from headrace.ops.branch.mix import Mix

        given = tuple(weights) if weights is not None else (1.0,) * (1 + len(others))
        if len(given) != 1 + len(others):
            raise BadOption(f"mix() joins {1 + len(others)} pipes but got {len(given)} weights")
        return Pipe(Mix(given), self, *others)

    # --- looking at a pipe ------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[T]:
        from headrace.pipe.cursor import Opening

        return Opening(self.ordinals(), seed=0, epoch=0).open(self)

    def __len__(self) -> int:
        known = self.length()
        if known is None:
            raise NoLength(f"the length of this pipe is not known in advance: {self!r}")
        return known

    def length(self) -> int | None:
        """How many samples there are, or None when that cannot be known in advance."""
        return self.op.length(tuple(i.length() for i in self.inputs))

    def nodes(self) -> "list[Pipe[Any]]":
        """Every node of the graph once, sources first."""
        seen: dict[int, Pipe[Any]] = {}

        def visit(node: Pipe[Any]) -> None:
            if id(node) not in seen:
                for source in node.inputs:
                    visit(source)
                seen[id(node)] = node

        visit(self)
        return list(seen.values())

    def ordinals(self) -> dict[int, int]:
        """The number of each node, by its id."""
        return {id(node): number for number, node in enumerate(self.nodes())}

    def indexed(self, seed: int, epoch: int, spot: Spot | None = None, clock: Clock | None = None) -> Indexed | None:
        """Random access to the samples of this pipe, or None."""
        from headrace.pipe.cursor import Opening

        return _indexed(self, Opening(self.ordinals(), seed, epoch, spot=spot, clock=clock), 0)

    def fingerprint(self) -> list[str]:
        """One hash per op, sources first: what must agree for a snapshot of one pipe to load in another."""
        ordinals = self.ordinals()
        return [
            hashlib.blake2b(
                repr((node.op.identity(), [ordinals[id(i)] for i in node.inputs])).encode(), digest_size=4
            ).hexdigest()
            for node in self.nodes()
        ]

    def explain(self, **options: Any) -> str:
        """The plan as text: the stages, where each op runs and why, and what it costs to resume."""
        # The one look upwards of this module: the plan is the engine's knowledge, the question is asked here.
        from headrace.engine.explain import explain

        return explain(self, **options)

    def __repr__(self) -> str:
        if not self.inputs:
            return f"Pipe.{self.op.describe()}"
        rest = "".join(f", {i!r}" for i in self.inputs[1:])
        return f"{self.inputs[0]!r}.{self.op.describe()}{rest}"

    # A pipe is a description with identity: comparing by value would compare whole data sets.
    def __bool__(self) -> bool:
        return True


def _indexed(node: Pipe[Any], opening: Any, turn: int) -> Indexed | None:
    below = []
    for source in node.inputs:
        inner = _indexed(source, opening, turn)
        if inner is None:
            return None
        below.append(inner)
    found = node.op.index(tuple(below), opening.here(node, turn))
    if found is not None:
        found.again = lambda next_turn: _indexed(node, opening, next_turn) or found
    return found


def _has_random_access(data: Any) -> bool:
    if isinstance(data, Mapping | set | frozenset | Iterator):
        return False
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return False
    # torch's IterableDataset inherits a __getitem__ that only raises; what iterates by itself is a stream.
    return not any(c.__name__ == "IterableDataset" for c in type(data).__mro__)


def _function(fn: Any, verb: str) -> Any:
    if not callable(fn):
        raise BadOption(f"{verb}() needs a function, not {type(fn).__name__}")
    return fn
