"""Pipe: an immutable graph of ops, built by verbs.

A pipe describes; it never runs by itself. Give it to a `Loader`, or iterate it directly: that opens the whole graph in
the calling thread, always with the same seed. Every verb returns a new pipe and leaves the old one as it was.
"""

import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, overload

from headrace.errors import BadOption, NoLength
from headrace.op import Clock, Indexed, Op, Spot
from headrace.ops.order.sharding import Sharding
from headrace.ops.shape.batch import Batch, Unbatch
from headrace.ops.shape.collate import Collate
from headrace.pipe.access import has_random_access, random_access
from headrace.pipe.cursor import Opening, PipeCursor
from headrace.pipe.verbs.branches import BranchVerbs
from headrace.pipe.verbs.files import FileVerbs
from headrace.pipe.verbs.frames import FrameVerbs, is_expression
from headrace.pipe.verbs.groups import GroupVerbs
from headrace.pipe.verbs.growing import Columns, check_node
from headrace.pipe.verbs.helpful import HelpfulType, make_helpful, unknown_verb
from headrace.pipe.verbs.media import MediaVerbs
from headrace.pipe.verbs.placement import PlacementVerbs
from headrace.pipe.verbs.text import TextVerbs
from headrace.tracebacks import short_errors

T = TypeVar("T", covariant=True)
U = TypeVar("U")
V = TypeVar("V")


class Pipe(
    FrameVerbs,
    FileVerbs,
    GroupVerbs,
    BranchVerbs,
    PlacementVerbs,
    MediaVerbs,
    TextVerbs,
    Generic[T],
    metaclass=HelpfulType,
):
    """A graph of ops whose last one emits samples of type `T`."""

    __slots__ = ("__weakref__", "inputs", "op")
    op: Op[Any, Any]
    inputs: "tuple[Pipe[Any], ...]"

    @short_errors
    def __init__(self, op: Op[Any, T], *inputs: "Pipe[Any]") -> None:
        check_node(op, inputs)
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "inputs", inputs)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Pipe does not change: .{name} cannot be set; use a verb to make a new pipe")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Pipe, (self.op, *self.inputs))

    @overload
    @staticmethod
    def of(data: Iterable[U]) -> "Pipe[U]": ...
    @overload
    @staticmethod
    def of(data: Callable[[], Iterable[U]]) -> "Pipe[U]": ...
    @overload
    @staticmethod
    def of(data: object) -> "Pipe[Any]": ...
    @staticmethod
    def of(data: Any) -> "Pipe[Any]":
        """A pipe over a sequence (random access), an iterable, or a function that returns a fresh iterable.

        Of a list, an array or a tensor each reader gets copies (of an array over 1 MB a read-only view), so what an op
        changes in place does not come back in the next epoch. A dataset of your own hands out what it likes; one with
        `__getitems__` is asked for all samples of a batch at once.
        """
        from headrace.sources.memory import FromIterable, FromSequence
        from headrace.tables.in_memory import from_frame

        if isinstance(data, Pipe):
            return data
        if (frame := from_frame(data)) is not None:
            return Pipe(frame)
        if isinstance(data, str | bytes):
            raise BadOption(
                "Pipe.of() takes samples, not one string; for files there are Pipe.files, Pipe.csv, Pipe.jsonl, "
                "Pipe.parquet and Pipe.shards"
            )
        if has_random_access(data):
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
    def map(self, fn: Callable[..., Any], input_col: Columns, output_col: Columns = None) -> "Pipe[Any]": ...
    @overload
    def map(self, fn: Callable[..., Any], *, batched: bool, as_: str = "numpy") -> "Pipe[Any]": ...
    def map(
        self,
        fn: Callable[..., Any],
        input_col: Columns = None,
        output_col: Columns = None,
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
        from headrace.ops.shape.map import Filter
        from headrace.tables.ops.columns import FilterColumns

        if is_expression(fn):
            return self._filter_rows(fn)
        if input_col is not None:
            return Pipe(FilterColumns(_function(fn, "filter"), input_col), self)
        return Pipe(Filter(_function(fn, "filter")), self)

    @overload
    def flatmap(self, fn: Callable[[T], Iterable[U]]) -> "Pipe[U]": ...
    @overload
    def flatmap(self, fn: Callable[..., Iterable[Any]] | None = None, input_col: Columns = None) -> "Pipe[Any]": ...
    def flatmap(self, fn: Callable[..., Iterable[Any]] | None = None, input_col: Columns = None) -> "Pipe[Any]":
        """Every element of `fn`, of the sample or of its fields `input_col`; without `fn`, of the sample or field."""
        from headrace.ops.shape.map import Flatmap
        from headrace.tables.ops.columns import FlatmapColumns

        if fn is not None and input_col is None:
            return Pipe(Flatmap(_function(fn, "flatmap")), self)
        return Pipe(FlatmapColumns(None if fn is None else _function(fn, "flatmap"), input_col), self)

    # --- grouping ---------------------------------------------------------------------------------------------------

    @overload
    def batch(self, size: int, drop_last: bool = False) -> "Pipe[list[T]]": ...
    @overload
    def batch(self, size: int, drop_last: bool = False, *, as_: str | None) -> "Pipe[Any]": ...
    @overload
    def batch(self, *, batch_size: int, drop_last: bool = False) -> "Pipe[list[T]]": ...
    def batch(
        self,
        size: int | None = None,
        drop_last: bool = False,
        *,
        as_: str | None = None,
        batch_size: int | None = None,
    ) -> "Pipe[Any]":
        """Lists of `size` consecutive samples; of rows of a frame, a dict of arrays, or the form `as_`.

        `batch_size` is another name of `size`.
        """
        if (size is None) is (batch_size is None):
            raise BadOption("batch() takes how many samples make a batch, once: batch(64)")
        size = batch_size if size is None else size
        assert size is not None
        if as_ is not None or self.columnar:
            return self._column_batch(size, drop_last, as_)
        return Pipe(Batch(size, drop_last), self)

    def unbatch(self, level: int = 1) -> "Pipe[Any]":
        """The elements of lists, one by one."""
        return Pipe(Unbatch(level), self)

    @overload
    def collate(self, *, pad: float | Literal["nested"] | None = None) -> "Pipe[Any]": ...
    @overload
    def collate(self, fn: Callable[[T], U]) -> "Pipe[U]": ...
    def collate(
        self, fn: Callable[[Any], Any] | None = None, *, pad: float | Literal["nested"] | None = None
    ) -> "Pipe[Any]":
        """Each list of samples as one sample of arrays, by `fn` or by type.

        Arrays of unlike shapes are filled up with the number `pad`, or become nested tensors; else they are an error.
        """
        from headrace.tables.ops.batch import AsColumns

        if fn is None and isinstance(self.op, AsColumns):
            return self  # columns are collated already
        return Pipe(Collate(None if fn is None else _function(fn, "collate"), pad), self)

    # --- order ------------------------------------------------------------------------------------------------------

    def shuffle(
        self,
        *,
        window: int | None = None,
        buffer_size: int | None = None,
        quality: float | None = None,
        parts: int | None = None,
    ) -> "Pipe[T]":
        """Another order each epoch: of everything, inside windows, or through a buffer; of files, with this quality,
        and in so many parts."""
        from headrace.ops.order.shuffle import Shuffle

        return Pipe(Shuffle(window, buffer_size, quality, parts), self)

    def weighted(self, weights: Sequence[float], count: int | None = None) -> "Pipe[T]":
        """`count` samples (as many as there are weights, if not given), drawn with replacement by weight."""
        from headrace.ops.order.pick import WeightedDraw

        return Pipe(WeightedDraw(tuple(weights), len(weights) if count is None else count), self)

    def sharding_filter(self, sharding_group_filter: object = None) -> "Pipe[T]":
        """From here on, work is divided among workers and ranks."""
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

    def mix(
        self,
        *others: "Pipe[U]",
        weights: Sequence[float] | None = None,
        stages: Mapping[int, Sequence[float]] | None = None,
        ends: Literal["first", "all", "drop", "forever"] = "drop",
        by: Literal["samples", "tokens"] = "samples",
    ) -> "Pipe[T | U]":
        """Samples of several pipes by weight: in every block of 1024 each has its exact share, in random places.

        `stages` are other weights from a certain sample of the mixture on. When a pipe has ended (`ends`): "drop" it
        and go on with the others, end with the "first", begin it again until "all" have ended once, or "forever".
        `by` tokens: weights are those of tokens, where the lengths of all samples are known.
        """
        from headrace.ops.branch.mix import mixed

        return Pipe(mixed((self, *others), weights, stages, ends, by), self, *others)

    # --- looking at a pipe ------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[T]:
        return PipeCursor(Opening(self.ordinals(), seed=0, epoch=0), self, None, 0)

    @short_errors
    def __len__(self) -> int:
        known = self.length()
        if known is None:
            raise NoLength(
                f"the length of this pipe is not known in advance: {self!r}; if you know it, say so: pipe.set_length(n)"
            )
        return known

    def length(self) -> int | None:
        """How many samples there are, or None when that cannot be known in advance."""
        op, known = self.op, tuple(i.length() for i in self.inputs)
        differs = type(op).streamed_length is not Op.streamed_length
        return op.streamed_length(known) if differs and self.indexed(0, 0) is None else op.length(known)

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

    def replaced(self, node: "Pipe[Any]", op: Op[Any, Any]) -> "Pipe[Any]":
        """The same graph with another op in the place of one of its nodes."""

        def make(old: Pipe[Any], inputs: list[Pipe[Any]]) -> Pipe[Any]:
            kept = old is not node and all(map(operator.is_, inputs, old.inputs))
            return old if kept else Pipe(op if old is node else old.op, *inputs)

        return rebuilt(self, make)[id(self)]

    def indexed(self, seed: int, epoch: int, spot: Spot | None = None, clock: Clock | None = None) -> Indexed | None:
        """Random access to the samples of this pipe, or None."""
        return random_access(self, Opening(self.ordinals(), seed, epoch, spot=spot or Spot(), clock=clock), 0)

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
        # The one look upwards of this module: the engine knows the plan.
        from headrace.engine.explain import explain

        return explain(self, **options)

    def __str__(self) -> str:
        from headrace.pipe.outline import outline

        return outline(self)

    def __repr__(self) -> str:
        from headrace.pipe.outline import in_one_line

        return in_one_line(self)

    if not TYPE_CHECKING:

        @short_errors
        def __getattr__(self, name: str) -> NoReturn:
            """Only ever called for a name that a pipe does not have."""
            raise unknown_verb(Pipe, name, "a Pipe")

    # A pipe is a description with identity: comparing by value would compare whole data sets.
    def __bool__(self) -> bool:
        return True


def rebuilt(pipe: Pipe[Any], make: Callable[[Pipe[Any], list[Pipe[Any]]], Pipe[Any]]) -> dict[int, Pipe[Any]]:
    """A graph made anew, sources first: the new nodes, by the ids of the old ones.

    `make` gets an old node and its new inputs, and returns the new node.
    """
    made: dict[int, Pipe[Any]] = {}
    for node in pipe.nodes():
        made[id(node)] = make(node, [made[id(source)] for source in node.inputs])
    return made


make_helpful(kind for kind in Pipe.__mro__ if kind.__module__.startswith(__package__))


def _function(fn: object, verb: str) -> Any:
    if not callable(fn):
        other = "; or a pyarrow expression: pyarrow.compute.field('x') > 0" if verb == "filter" else ""
        raise BadOption(f"{verb}() needs a function, not {type(fn).__name__}{other}")
    return fn
