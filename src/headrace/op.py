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

**Resume.** An op with `quiet = True` holds nothing between two yields: its state is its inputs' state, and costs
nothing. Any other op may call `here.rest(note)` at a moment when it holds nothing; it is resumed from the latest such
moment, with `here.emitted` and `here.note` telling where it was, and what it had emitted since is produced again and
dropped. An op that does neither is resumed by replay from the start of the epoch.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headrace.plan.seed import generator, key

if TYPE_CHECKING:
    import numpy as np

In = TypeVar("In")
Out = TypeVar("Out")
PLAIN = (type(None), bool, int, float, str, list, tuple, dict)
"""What a note may be made of. (A tuple comes back as a list.)"""


class Here:
    """All that an op may know of the place where it runs."""

    __slots__ = (
        "_rest", "_stand", "clock", "emitted", "epoch", "note", "oldest", "ordinal", "seed", "spot", "strand",
        "strands",
    )  # fmt: skip

    def __init__(
        self, seed: int, epoch: int, ordinal: int, strand: int = 0, strands: int = 1, spot: "Spot | None" = None
    ) -> None:
        self.spot = spot if spot is not None else Spot()
        self.clock: Clock | None = None
        """Where seconds are noted, by op, while a ticket is being timed."""
        self.seed = seed
        """This op's key: differs for every op, epoch and loader seed; the same in every process."""
        self.epoch = epoch
        self.ordinal = ordinal
        """The op's number in the graph, counted from the sources."""
        self.strand = strand
        self.strands = strands
        self.emitted = 0
        """How many samples this op had emitted at the moment it goes on from; 0 at the start of an epoch."""
        self.note: Any = None
        """What the op said at that moment."""
        self.oldest: Callable[[], int] | None = None
        """For an op that stands: the number of the oldest sample that it holds."""
        self._rest: Callable[[], Callable[[Any], None] | None] | None = None
        self._stand: Callable[[], Callable[[int], None] | None] | None = None
        """Weak references to who listens: what an op knows must not keep a whole graph alive."""

    def stand(self, number: int) -> None:
        """Say: my input stands at `number` now. I may hold older samples; `oldest()` says how old.

        I am resumed at the latest such moment that is not after the oldest sample I hold, with `number` as my note:
        what I held before it is not given back, and whatever I emit for it was emitted already, and is dropped.
        """
        if self._stand is not None and (listen := self._stand()) is not None:
            listen(number)

    def rest(self, note: Any = None) -> None:
        """Say: now I hold no sample; `note` (plain data) and my inputs' states are all that I need to go on."""
        if type(note) is not int and not isinstance(note, PLAIN):
            raise TypeError(
                f"here.rest() got a {type(note).__name__}, which no snapshot can hold: say what you need as numbers, "
                "text, lists and dicts"
            )
        if self._rest is not None and (listen := self._rest()) is not None:
            listen(note)


class Indexed:
    """Random access to the output of an op: `get(position)` for 0 <= position < length.

    `take(positions, names)`, where samples are rows of a table, is the table of many rows at once: all its columns, or
    those that are named. `again(turn)` is the same output with other random choices: what `cycle` reads next.
    """

    __slots__ = ("again", "get", "length", "remark", "take", "units")

    def __init__(self, length: int, get: Callable[[int], Any], take: "Take | None" = None) -> None:
        self.length = length
        self.get = get
        self.take = take
        self.again: Callable[[int], Indexed] = lambda turn: self
        self.units: Any = None
        """Where positions that are cheap to read together end (`plan.lanes.Units`), when that is worth knowing."""
        self.remark = ""
        """What `explain()` says about it."""


Take = Callable[["np.ndarray[Any, np.dtype[np.int64]]", tuple[str, ...] | None], Any]


def is_count(op: "Op[Any, Any]", note: Any) -> bool:
    """`accepts` of an op whose notes are counts, or nothing."""
    return note is None or (isinstance(note, int) and not isinstance(note, bool) and 0 <= note < 2**63)


class Op(Generic[In, Out]):
    """Sees the whole stream, in one place."""

    __slots__ = ()
    quiet: ClassVar[bool] = False
    """Holds nothing between two yields."""
    user: ClassVar[bool] = False
    """Runs code of the user's, so the global generators are seeded before it and its time is metered."""

    def flow(self, *inputs: Any) -> Iterator[Out]:
        """The samples, given one iterator per input and, last, the `Here`."""
        raise NotImplementedError(f"{type(self).__name__} must define flow()")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        """Random access to my output, or None if there is none."""
        return None

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        """How many samples I emit, given how many my inputs do; None when that cannot be known."""
        return None

    def columnar(self, inputs: tuple[bool, ...]) -> bool:
        """Whether my output is rows of a table that can be taken many at once, given whether my inputs' are."""
        return False

    def accepts(self, note: Any) -> bool:
        """Whether a note out of a snapshot can be one that I gave to `rest()`: any, unless I know better.

        Other notes are refused when a snapshot is loaded, so that `flow` never meets them.
        """
        return True

    def settle(self) -> None:
        """Called before workers are forked: what they will share is put into shared memory now, not copied by each."""

    def describe(self) -> str:
        """The op in one line: its name and its fields."""
        fields = getattr(self, "__dataclass_fields__", {})
        return f"{self.name()}({', '.join(f'{f}={_short(getattr(self, f))}' for f in fields)})"

    @classmethod
    def name(cls) -> str:
        """The verb."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def identity(self) -> tuple[Any, ...]:
        """What makes the order and number of samples: goes into the fingerprint of a snapshot."""
        fields = getattr(self, "__dataclass_fields__", {})
        return (self.name(), *((f, _short(getattr(self, f))) for f in fields))


class Each(Op[In, Out]):
    """One output per input sample, made from that sample alone."""

    __slots__ = ()
    quiet = True
    accepts = is_count

    def apply(self, sample: In) -> Out:
        raise NotImplementedError(f"{type(self).__name__} must define apply()")

    def flow(self, *inputs: Any) -> Iterator[Out]:
        samples, here = inputs
        apply = self.apply
        for number, sample in enumerate(samples, here.emitted):
            place.at(here, number)
            yield apply(sample)

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        fetch, apply, spot = inner.get, timed(self.apply, here), here.spot

        def get(position: int) -> Out:
            sample = fetch(position)
            spot.here = here
            spot.position = position
            spot.made = None  # the same position may be asked for again: it draws the same values again
            return apply(sample)

        return Indexed(inner.length, get)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return inputs[0]


class Flat(Op[In, Out]):
    """Any number of outputs per input sample, made from that sample alone."""

    __slots__ = ()
    accepts = is_count

    def spread(self, sample: In) -> Iterator[Out]:
        raise NotImplementedError(f"{type(self).__name__} must define spread()")

    def flow(self, *inputs: Any) -> Iterator[Out]:
        samples, here = inputs
        number = here.note or 0
        while True:
            here.rest(number)
            try:
                sample = next(samples)
            except StopIteration:
                return
            place.at(here, number)
            yield from self.spread(sample)
            number += 1


class Source(Op[Any, Out]):
    """An op without input."""

    __slots__ = ()

    def size(self) -> int | None:
        """How many samples there are, when `get` can fetch any of them; None for a stream."""
        return None

    def get(self, position: int) -> Out:
        raise NotImplementedError(f"{type(self).__name__} must define get()")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        size = self.size()
        if size is None:
            return None
        fetch, spot = timed(self.get, here), here.spot

        def get(position: int) -> Out:
            spot.here = here
            spot.position = position
            spot.made = None
            return fetch(position)

        return Indexed(size, get)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.size()

    def flow(self, *inputs: Any) -> Iterator[Out]:
        (here,) = inputs
        size = self.size()
        if size is None:
            raise NotImplementedError(f"{type(self).__name__} must define flow(), or size() and get()")
        first = here.emitted * here.strands + here.strand
        for position in range(first, size, here.strands):
            here.rest()
            place.at(here, position)
            yield self.get(position)


class Clock(dict[int, float]):
    """Seconds by op. What a call notes inside another is not counted twice: each op has its own seconds only."""

    inner = 0.0
    """Seconds noted inside the call at hand."""

    def note(self, ordinal: int, call: Callable[..., Out], *args: Any) -> Out:
        outer, self.inner = self.inner, 0.0
        started = perf_counter()
        try:
            return call(*args)
        finally:
            spent = perf_counter() - started
            self[ordinal] = self.get(ordinal, 0.0) + spent - self.inner
            self.inner = outer + spent


def timed(call: Callable[..., Out], here: Here) -> Callable[..., Out]:
    """The call itself, or, while a ticket is being timed, one that notes its seconds."""
    clock = here.clock
    if clock is None:
        return call
    return partial(clock.note, here.ordinal, call)


class Spot:
    """Which op is at work, at which position. Errors and `rng()` are named after it."""

    __slots__ = ("here", "made", "position", "rng")

    def __init__(self) -> None:
        self.here: Here | None = None
        self.position = 0
        self.made: tuple[int, int] | None = None
        self.rng: Any = None


LARGE = 64 * 1024
"""Bytes of an array from which on it is worth looking where it lies."""


class ThreadPlace(threading.local):
    """Where the running thread is."""

    def __init__(self) -> None:
        self.spot = Spot()
        self.allocate: Callable[[tuple[int, ...], Any], Any] | None = None
        self.extend: Callable[[Any, int, int], Any] | None = None
        self.worth = 4096
        """Arrays smaller than this many bytes are not worth a place of their own in the travelling memory."""

    def at(self, here: Here, position: int) -> None:
        spot = self.spot = here.spot
        spot.here = here
        spot.position = position
        spot.made = None

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array, in the memory that travels to the consumer when there is any and the array is worth it."""
        import numpy as np

        if self.allocate is not None:
            array = self.allocate(shape, np.dtype(dtype))
            if array is not None:
                return array
        return np.empty(shape, dtype)

    def grown(self, arrays: Sequence[Any]) -> tuple[Any, int]:
        """An array for all of these alike ones on top of each other, and how many of them are in it already.

        Those that lie one behind the other at the end of the travelling memory stay where they are.
        """
        first = arrays[0]
        if self.extend is not None and first.nbytes >= LARGE:
            at, size = first.__array_interface__["data"][0], first.nbytes
            count = 0
            for array in arrays:
                if array.__array_interface__["data"][0] != at + count * size or not array.flags.c_contiguous:
                    break
                count += 1
            whole = self.extend(first, count, len(arrays)) if count else None
            if whole is not None:
                return whole, count
        return self.empty((len(arrays), *first.shape), first.dtype), 0

    def rng(self) -> "np.random.Generator":
        spot = self.spot
        here = spot.here
        if here is None:
            raise RuntimeError(
                "headrace.rng() is for code that runs inside a pipe: call it in a function given to map()"
            )
        now = (here.seed, spot.position)
        if spot.made != now:
            spot.made, spot.rng = now, generator(key(here.seed, "sample", spot.position))
        return spot.rng  # type: ignore[no-any-return]


place = ThreadPlace()


def rng() -> "np.random.Generator":
    """A numpy Generator keyed to the sample at hand: the same for any batch size, worker, kind and world."""
    return place.rng()


def _short(value: Any) -> str:
    """A stable short text: functions and classes by qualified name, large things by kind."""
    named = getattr(value, "__qualname__", None)
    if named is not None:
        return f"{getattr(value, '__module__', '?')}.{named}"
    if value is None or isinstance(value, str | int | float | bool | bytes):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    if isinstance(value, tuple | list) and len(value) <= 8:
        inner = ", ".join(_short(v) for v in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return f"<{type(value).__qualname__}>"
