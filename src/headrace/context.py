"""Where an op runs: which op and position are current, its key, its clock, and whether failing samples are left out.

`Here` is all that an op may know of the place where it runs. `place` belongs to the running thread: errors,
`headrace.rng()` and the memory that results are written into are found through it.

**What fails.** A reader inside of `apply` or `spread` that can go on behind a bad record calls `skipper()` at its
start, and gives it each error. (The `flow` of a source calls `here.spot.skip(here, number, error)`.)

    skip = skipper()
    for number, line in enumerate(stream):
        try:
            document = json.loads(line)
        except ValueError as error:
            skip(error)         # raises, unless the user said on_error="skip": then it is counted
            continue
        yield document
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.memory.rows import Rows
from headrace.plan.seed import generator, key

if TYPE_CHECKING:
    import numpy as np

Out = TypeVar("Out")
Wanted = TypeVar("Wanted")
PLAIN = (type(None), bool, int, float, str, list, tuple, dict)
"""What a note may be made of. (A tuple comes back as a list.)"""


class Here:
    """All that an op may know of the place where it runs."""

    __slots__ = (
        "_rest", "_stand", "clock", "emitted", "epoch", "lenient", "note", "oldest", "ordinal", "replays", "seed",
        "spot", "strand", "strands",
    )  # fmt: skip

    def __init__(
        self, seed: int, epoch: int, ordinal: int, strand: int = 0, strands: int = 1, spot: "Spot | None" = None
    ) -> None:
        self.spot = spot if spot is not None else Spot()
        self.lenient = self.spot.leave_out is not None
        """Samples that fail here are left out and counted (`on_error="skip"`)."""
        self.clock: Clock | None = None
        """Where seconds are noted, by op, while a ticket is being timed."""
        self.seed = seed
        """This op's key: another one for every op, epoch and loader seed, and the same in every process."""
        self.epoch = epoch
        self.ordinal = ordinal
        """The op's number in the graph, counted from the sources."""
        self.strand, self.strands = strand, strands
        """Which one this is of the streams that the source is read as, and how many there are (`Loader(strands=)`)."""
        self.emitted = 0
        """How many samples this op had emitted at the `rest()` that it is resumed from; 0 at the start of an epoch."""
        self.note: Any = None
        """The note that it gave to that `rest()`."""
        self.replays = 0
        """How many samples it had emitted after that: they are made again, and dropped."""
        self.oldest: Callable[[], int] | None = None
        """Set by an op that calls `stand()`: gives the number of the oldest sample that it holds."""
        self._rest: Callable[[], Callable[[Any], None] | None] | None = None
        self._stand: Callable[[], Callable[[int], None] | None] | None = None
        """Weak references to the engine's listeners: an op's `here` must not keep a whole opened graph alive."""

    def stand(self, number: int) -> None:
        """Tell the engine that the input is at sample `number` now. The op may hold older samples: `oldest` says which.

        The op is resumed at the latest such call that is not after the oldest sample it holds, with `number` as its
        note. Samples that it held before that call are not given back: what it emits for them was delivered, and is
        dropped.
        """
        if self._stand is not None and (listen := self._stand()) is not None:
            listen(number)

    def rest(self, note: object = None) -> None:
        """Tell the engine that the op holds no sample now: `note` (plain data) and the states of its inputs are all
        that it needs to go on from here."""
        if type(note) is not int and not isinstance(note, PLAIN):
            raise TypeError(
                f"here.rest() got a {type(note).__name__}, which no snapshot can hold: say what you need as numbers, "
                "text, lists and dicts"
            )
        if self._rest is not None and (listen := self._rest()) is not None:
            listen(note)


class Clock(dict[int, float]):
    """Seconds by op. Time that a call spends in another op's call is counted for that op only."""

    inner = 0.0
    """Seconds that calls inside the current one have taken."""

    def note(self, ordinal: int, call: Callable[..., Out], *args: object) -> Out:
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


def timed_spread(spread: Callable[[Any], Iterable[Any]], here: Here) -> Callable[[Any], Iterable[Any]]:
    """`timed` for a call that gives many: a generator works while it is read, so it is read to its end while timed."""
    return spread if here.clock is None else timed(partial(_read_all, spread), here)


def _read_all(spread: Callable[[Any], Iterable[Any]], sample: object) -> Iterable[Any]:
    made = []
    try:
        for part in spread(sample):
            made.append(part)  # noqa: PERF402 - what came before an error stays
    except Exception as error:
        return _broken(made, error)
    return made


def _broken(made: list[Any], error: Exception) -> Iterator[Any]:
    yield from made
    raise error


class Spot:
    """Which op works now, at which position. Errors name it, and `rng()` is keyed by it."""

    __slots__ = ("failed", "here", "index", "leave_out", "made", "position", "replays", "rng", "state")

    def __init__(self) -> None:
        self.leave_out: Callable[[int, Exception], None] | None = None
        """Called with each sample that fails and is left out, to count it; None if nothing may be left out."""
        self.replays = 0
        """Above 0 while a resumed op makes samples again: those that fail were counted the first time."""
        self.here: Here | None = None
        self.position = 0
        self.index: int | None = None
        """The position in its source of the current sample, where that is known."""
        self.made: tuple[int, int] | None = None
        self.rng: Any = None
        self.failed: int | None = None
        """The position of the sample that failed, where the ticket's own is that of many (a window)."""
        self.state: Any = None
        """What an op wants to be known with the outputs of this ticket: it is told to whoever takes them."""

    def skip(self, here: Here, position: int, error: Exception) -> None:
        """Leave out a sample that failed, if the user said `on_error="skip"`; else raise the error."""
        self.here, self.position = here, position  # the ops before and after have run since it was begun
        if not here.lenient or self.leave_out is None:
            self.failed = position
            raise error
        if not self.replays:
            self.leave_out(position, error)


def skipper() -> Callable[[Exception], None]:
    """For a reader that begins now: a function to call with the error of one of its records."""
    spot = place.spot
    here, position = spot.here, spot.position

    def skip(error: Exception) -> None:
        if here is None:
            raise error
        spot.skip(here, position, error)

    return skip


def read_each(
    wanted: Sequence[Wanted], read: Callable[[Wanted], Out], here: Here, position: int, always: bool = False
) -> list[Out | None]:
    """`read` of each wanted piece; None for one that fails, with `on_error="skip"`.

    If all of them fail the last error is raised, so that no empty row or batch is made. `always`: make it even so.
    """
    if not here.lenient:
        return [read(one) for one in wanted]
    spot = here.spot
    found: list[Out | None] = []
    last, empty = len(wanted) - 1, not always
    for number, one in enumerate(wanted):
        spot.index = None
        try:
            found.append(read(one))
            empty = False
        except Exception as error:
            if empty and number == last:
                raise
            spot.skip(spot.here or here, position, error)
            found.append(None)
    return found


LARGE = 64 * 1024
"""Bytes of an array from which on it is worth looking where it lies."""


class ThreadPlace(threading.local):
    """What the running thread works on, and into which memory it writes results."""

    def __init__(self) -> None:
        self.spot = Spot()
        self.allocate: Callable[[tuple[int, ...], Any], Any] | None = None
        self.extend: Callable[[Any, int, int], Any] | None = None
        self.rows: Rows | None = None
        """The rows of the current batch, while its samples are made one by one."""
        self.worth = 4096
        """Arrays smaller than this many bytes are not put into shared memory by themselves."""

    def at(self, here: Here, position: int) -> None:
        spot = self.spot = here.spot
        spot.here = here
        spot.position = position
        spot.made = None

    def apart(self, call: Callable[[], Out]) -> Out:
        """Call a function that runs another loader or pipe. Inside an op it gets a place of its own: its results are
        not written into the memory of the outer batch, and afterwards `rng()` is that of the op again."""
        if self.spot.here is None and self.allocate is None:
            return call()
        outside = self.spot, self.allocate, self.extend, self.rows
        self.allocate = self.extend = self.rows = None
        try:
            return call()
        finally:
            self.spot, self.allocate, self.extend, self.rows = outside

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array: in the shared memory that the consumer reads, if there is any and the array is large enough."""
        import numpy as np

        if self.allocate is not None:
            array = self.allocate(shape, np.dtype(dtype))
            if array is not None:
                return array
        return np.empty(shape, dtype)

    def in_rows(self, get: Callable[[int], Any], size: int, ordinal: int) -> Callable[[int], Any]:
        """`get` for a batch of `size` samples made by op number `ordinal`: it may write each into its row of the
        batch."""
        self.rows = Rows(size, self.empty, ordinal)
        return self.rows.into_rows(get)

    def row(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array for the current sample: its row of the batch, if this op is the last one before the batch.

        (Earlier ops may keep what they make, and the memory of a row is used again for another batch.)
        """
        import numpy as np

        rows, here = self.rows, self.spot.here
        row = rows.row(shape, np.dtype(dtype)) if rows is not None and here and here.ordinal == rows.ordinal else None
        return np.empty(shape, dtype) if row is None else row

    def grown(self, arrays: Sequence[Any]) -> tuple[Any, int]:
        """An array to stack these arrays in, which are alike, and how many of them are in it already.

        Those that lie one behind the other at the end of the shared memory stay where they are.
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

    def let_go(self) -> None:
        """Write no results into shared memory any more: this process is a copy, and the other one writes there."""
        self.allocate = self.extend = None
        if self.rows is not None:
            self.rows.let_go()

    def rewind(self) -> None:
        """Let the next `rng()` begin again: it then gives the same values to the current sample once more."""
        self.spot.made = None

    def rng(self) -> "np.random.Generator":
        spot = self.spot
        here = spot.here
        if here is None:
            raise RuntimeError(
                "headrace.rng() belongs to one sample of a pipe: call it in a function of map(), or in __getitem__"
            )
        now = (here.seed, spot.position)
        if spot.made != now:
            spot.made, spot.rng = now, generator(key(here.seed, "sample", spot.position))
        return spot.rng  # type: ignore[no-any-return]


place = ThreadPlace()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=place.let_go)


def rng() -> "np.random.Generator":
    """A numpy Generator keyed to the current sample: the same for any batch size, worker, kind and world."""
    return place.rng()
