"""The contract that every operator signs.

An **Op** is a frozen, picklable description. It says how its output depends on its input by the class it extends:

    Each    one output per input sample, made from that sample alone     write `apply(sample)`
    Flat    any number of outputs per input sample, from it alone        write `spread(sample)`
    Op      anything else: it may hold samples, mix them, join inputs    write `flow(*inputs, here)`
    Source  no input                                                     write `flow(here)`, or `size()` and `get(i)`

`Each` and `Flat` run anywhere, in any order, on any worker; an `Op` runs in one place and sees the whole stream. An op
whose output can be had at any position without reading what comes before writes `index()` as well (`Each` has it
already).

**Randomness.** `here.seed` is the op's own key for this epoch; user code uses `headrace.rng()`, or the global
generators, which the engine seeds before each unit of work.

**Resume.** An op with `quiet = True` holds no sample between two yields: its state is the state of its inputs, and
costs nothing. Any other op may call `here.rest(note)` whenever it holds no sample. It is resumed from the latest such
call: `here.emitted` and `here.note` say where it was, and what it had emitted since is made again and dropped. An op
that does neither is resumed by a replay from the start of the epoch.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from headrace.brief import arguments, stable
from headrace.context import Clock as Clock
from headrace.context import Here as Here
from headrace.context import Spot as Spot
from headrace.context import place as place
from headrace.context import rng as rng
from headrace.context import timed as timed
from headrace.inputs import InputCursor as InputCursor
from headrace.inputs import indexed_input as indexed_input

if TYPE_CHECKING:
    import numpy as np

    from headrace.plan.parts import Parts
    from headrace.plan.units import Units

In = TypeVar("In")
Out = TypeVar("Out")


class Indexed:
    """Random access to the output of an op: `get(position)` for 0 <= position < length.

    `take(positions, names)`, where samples are rows of a table, is the table of many rows at once: all its columns, or
    those that are named. `many(positions)`, where an op works on many samples at once, gives the same as `get` of each;
    when it raises, the samples are asked for again one by one. `ahead(positions)`, over a source that reads many in one
    call or fetches what it reads, lets it read those that `get` is asked for next. `again(turn)` is the same output
    with the random choices of another turn: `cycle` reads it next.
    """

    def __init__(self, length: int, get: Callable[[int], Any], take: "Take | None" = None) -> None:
        self.length = length
        self.get = get
        self.take = take
        self.many: Many | None = None
        self.ahead: Upcoming | None = None
        self.again: Callable[[int], Indexed] = lambda turn: self
        self.units: Units | None = None
        """Which positions are cheap to read together, where an order can make use of it."""
        self.parts: Parts | None = None
        """The order, where it is one of parts: ranks are then dealt positions by their remainder (`plan.share`)."""
        self.scattered: Units | None = None
        """Units that the order does not keep together: every rank reads every one of them."""
        self.lengths: Lengths | None = None
        """How many tokens each sample has, where that is known without reading any."""
        self.varies = False
        """Another turn may have another length."""
        self.light = False
        """Samples cost nothing and run no code of the user's: the op behind may be told of later ones (`Each.soon`)."""
        self.remark = ""
        """A line of `explain()` about the order."""
        self.trouble = ""
        """A warning for the first epoch: reading will be far slower than it need be."""

    def every(self, step: int, first: int) -> "Indexed":
        """Each `step`-th position, from `first` on."""
        get = self.get
        return Indexed(len(range(first, self.length, step)), lambda position: get(first + position * step))

    def placed_as(self, inner: "Indexed") -> "Indexed":
        """This object, with what `inner` knows of its positions: the sample at each was made from the one there."""
        self.units, self.parts, self.remark, self.scattered = inner.units, inner.parts, inner.remark, inner.scattered
        self.trouble, self.ahead = inner.trouble, inner.ahead
        return self


class Upcoming(NamedTuple):
    """What a source wants to know of the positions that it is asked for next."""

    now: Callable[[Sequence[int]], None]
    """Called with those of a ticket, before `get` is."""
    later: Callable[[Sequence[int]], None] | None = None
    """Called with those that come after them, each once: a hint, which may be wrong."""
    look: int = 0
    """How many positions ahead `later` wants to know of."""

    def __call__(self, positions: Sequence[int]) -> None:
        self.now(positions)


class Lengths(NamedTuple):
    """How many tokens the samples of an order have."""

    at: "Callable[[Positions], Positions]"
    """From positions to the number of tokens of each sample there."""
    tokens: int
    """How many tokens all samples have together."""
    key: tuple[object, ...]
    """All that order and lengths depend on: what is planned from them can be cached under this key."""
    work: "Callable[[Positions], np.ndarray[Any, np.dtype[Any]]] | None" = None
    """From positions to what attention over each sample costs (the sum of its documents' squared lengths), where that
    is not its length squared."""
    ends: "Sequence[int] | Positions | None" = None
    """The first token after each sample, counted over all, where samples come as they are stored."""


Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Many = Callable[[Sequence[int]], list[Any]]
Take = Callable[[Positions, tuple[str, ...] | None], Any]


def is_count(op: "Op[Any, Any]", note: object) -> bool:
    """`accepts` of an op whose notes are counts, or None."""
    return note is None or (isinstance(note, int) and not isinstance(note, bool) and 0 <= note < 2**63)


def as_input(op: "Op[Any, Any]", inputs: tuple[Any, ...]) -> Any:
    """`length` or `columnar` of an op for which they are those of its first input."""
    return inputs[0]


class Op(Generic[In, Out]):
    """An op that sees the whole stream, in one place."""

    __slots__ = ()
    quiet: ClassVar[bool] = False
    """Holds nothing between two yields."""
    user: ClassVar[bool] = False
    """Runs code of the user's: the global generators are seeded before it, and its time is measured."""
    pairs: ClassVar[bool] = False
    """Pairs its inputs sample by sample: nothing may be left out of one of them."""
    coarse: ClassVar[bool] = False
    """One input sample is a lot of work (a whole file): it is a ticket by itself."""
    batches: ClassVar[bool] = False
    """Each output is a whole batch already: the outputs of a stream are delivered one by one."""
    divides: ClassVar[bool] = False
    """A source whose `flow` gives every `here.strands`-th sample only, from `here.strand` on: `strands=` may be > 1."""
    listed: ClassVar[bool] = False
    """A source that the consumer iterates: each item is a ticket."""
    hands_on: ClassVar[bool] = False
    """Changes only the order of samples, not the samples."""
    takes_columns: ClassVar[bool] = False
    """As the first op behind a batch it takes columns, not a list of rows."""
    gathers: ClassVar[bool] = False
    """Has random access even behind ops that leave out or multiply samples (filter, flatmap): its `index()` gets random
    access to *lists*, each of all the samples that these ops made at a position."""
    by_window: ClassVar[bool] = False
    """Each output is a list, made from a window of positions."""
    consumer: bool = False
    """Runs in the consumer, because the user put it there."""
    opens: bool = False
    """A source that is ready when it is opened: where it stands then is known before its first sample."""
    goes_on: ClassVar[bool] = False
    """A source that can be asked for the next sample after an error; any other is over then."""
    verb: ClassVar[str] = ""

    def flow(self, *inputs: Any, **_: Any) -> Iterator[Out]:
        """The samples. Written as `flow(self, samples, here)`, with one iterator for each input."""
        raise NotImplementedError(f"{type(self).__name__} must define flow()")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        """Random access to the output, or None if there is none."""
        return None

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        """How many samples come out, given how many the inputs have; None when that cannot be known."""
        return None

    def streamed_length(self, inputs: tuple[int | None, ...]) -> int | None:
        """The same where the output has no random access: an op may notice the end of a stream at a later sample."""
        return self.length(inputs)

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        """Whether the output is rows of a table that can be taken many at once, given whether the inputs are."""
        return False

    def accepts(self, note: object) -> bool:
        """Whether a note in a snapshot can be one that this op gave to `rest()`. By default any can.

        Other notes are refused when a snapshot is loaded, so that `flow` never gets them.
        """
        return True

    @property
    def resume(self) -> str | None:
        """What `explain()` says about resuming this op, where that does not follow from its class and flags."""
        return None

    def caution(self, lengths: Callable[[], tuple[int | None, ...]]) -> str:
        """A warning before the first epoch, given how many samples the inputs have; usually none."""
        return ""

    def settle(self) -> None:
        """Called before workers are forked: loads what they share, so that it is in memory once and not in each."""

    def describe(self) -> str:
        """The op in one line as a user writes it: required arguments, and those that differ from their defaults."""
        said: list[str] = arguments(self) if is_dataclass(self) else []
        return f"{self.name()}({', '.join(said)})"

    @property
    def fresh(self) -> bool:
        """Each output is new memory that nothing else refers to, whatever came in: it need not be copied."""
        return False

    @classmethod
    def name(cls) -> str:
        """The verb: `verb`, or the name of the class."""
        return cls.verb or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def identity(self) -> tuple[Any, ...]:
        """All that determines the order and the number of samples. Its repr goes into the fingerprint of a snapshot."""
        # (A limit of memory decides what is refused, not what comes: it may be raised before a run is resumed.)
        fields = (field for field in getattr(self, "__dataclass_fields__", {}) if field != "max_bytes")
        return (self.name(), *((f, stable(getattr(self, f))) for f in fields))


class Each(Op[In, Out]):
    """One output per input sample, made from that sample alone."""

    __slots__ = ()
    quiet = True
    accepts = is_count
    together: ClassVar[bool] = False
    """Many samples at once are cheaper than one by one: the op writes `apply_all` too."""
    soon: "Callable[[Any], None] | None" = None
    """Told of samples that come later, so that it may begin what takes long and keeps nobody from work."""

    def apply(self, sample: In) -> Out:
        raise NotImplementedError(f"{type(self).__name__} must define apply()")

    def depart(self, sample: In) -> Any:
        """As `apply`, in a worker that sends the result next. It may be in a cheaper form, as long as what arrives in
        the consumer is what `apply` makes."""
        return self.apply(sample)

    def apply_all(self, samples: Sequence[In]) -> list[Out]:
        """The same as `apply` of each."""
        return [self.apply(sample) for sample in samples]

    def flow(self, samples: Iterator[In], here: Here) -> Iterator[Out]:
        apply = self.apply
        if here.lenient or here.note is not None:
            yield from self._lenient(samples, here)
            return
        for number, sample in enumerate(samples, here.emitted):
            place.at(here, number)
            yield apply(sample)

    def _lenient(self, samples: Iterator[In], here: Here) -> Iterator[Out]:
        """Samples that are left out count as well: the note says how many came in."""
        for number, sample in enumerate(samples, here.emitted if here.note is None else here.note):
            here.rest(number + 1)
            place.at(here, number)
            try:
                made = self.apply(sample)
            except Exception as error:
                here.spot.skip(here, number, error)
                continue
            yield made

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, apply, spot = inner.get, timed(self.apply, here), here.spot

        def get(position: int) -> Out:
            sample = fetch(position)
            spot.here = here
            spot.position = position
            spot.made = None  # the same position may be asked for again: it draws the same values again
            return apply(sample)

        found = Indexed(inner.length, get).placed_as(inner)
        if self.together:
            found.many = self._many(inner, here)
        return found

    def _many(self, inner: Indexed, here: Here) -> Many:
        fetch, fetch_many, apply_all = inner.get, inner.many, timed(self.apply_all, here)

        def many(positions: Sequence[int]) -> list[Out]:
            samples = [fetch(position) for position in positions] if fetch_many is None else fetch_many(positions)
            place.at(here, positions[0])
            return apply_all(samples)

        return many

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return inputs[0]


class Flat(Op[In, Out]):
    """Any number of outputs per input sample, made from that sample alone."""

    __slots__ = ()
    chooses: ClassVar[bool] = False
    """One output per input sample, or none: a batch stays one, with fewer rows perhaps."""
    accepts = is_count

    def spread(self, sample: In) -> Iterator[Out]:
        raise NotImplementedError(f"{type(self).__name__} must define spread()")

    def flow(self, samples: Iterator[In], here: Here) -> Iterator[Out]:
        number = here.note or 0
        here.rest(number)
        for sample in samples:
            place.at(here, number)
            try:
                yield from self.spread(sample)
            except Exception as error:
                here.spot.skip(here, number, error)
            number += 1
            here.rest(number)


class Source(Op[Any, Out]):
    """An op without input."""

    __slots__ = ()

    def size(self) -> int | None:
        """How many samples there are, when `get` can fetch any of them; None for a stream."""
        return None

    def get(self, position: int) -> Out:
        raise NotImplementedError(f"{type(self).__name__} must define get()")

    def getter(self) -> Callable[[int], Out]:
        """`get`, or a faster function that does the same."""
        return self.get

    def locate(self, position: int) -> str | None:
        """Where that sample is stored, such as a file and an offset, for messages; None if there is nothing to say."""
        return None

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        size = self.size()
        if size is None:
            return None
        fetch, spot = timed(self.getter(), here), here.spot

        def get(position: int) -> Out:
            spot.here = here
            spot.position = spot.index = position
            spot.made = None
            return fetch(position)

        return Indexed(size, get)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.size()

    def as_kept(self) -> "Source[Out]":
        """The same source for a reader that copies every sample: it need not copy samples itself."""
        return self

    def flow(self, here: Here) -> Iterator[Out]:
        size = self.size()
        if size is None:
            raise NotImplementedError(f"{type(self).__name__} must define flow(), or size() and get()")
        done = here.emitted if here.note is None else here.note
        first = done * here.strands + here.strand
        ahead = 1 if self.quiet else 0  # a quiet op is resumed behind its yield, any other before
        for number, position in enumerate(range(first, size, here.strands), done):
            here.rest(number + ahead)
            place.at(here, position)
            try:
                made = self.get(position)
            except Exception as error:
                here.spot.skip(here, position, error)
                continue
            yield made
