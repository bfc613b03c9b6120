"""Checks: does an op keep the contract of `headrace.op`?

    check_op(MyOp(3), range(20))          an op, over some input
    check_source(MySource("data.bin"))    a source
    check_pipe(pipe)                      any pipe

Each raises AssertionError with what is wrong:

    travel      the op can be sent to a worker, and emits the same there
    repeat      two readings are equal, bit by bit
    length      `length()`, where it says a number, is the number of samples
    access      what `index()` gives is what `flow()` emits (perhaps in another order), whatever the order of access
    resume      reading can stop after every sample and go on from its state, through JSON; states stay as they were
    notes       what the op says to `here.rest()` is plain data, and its own `accepts()` takes it
    workers     two threads deliver what one does, in the first epoch and in the second
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice, product
from typing import Any

from headrace.engine.wire.shipping import ship
from headrace.engine.wire.unshipping import unship
from headrace.errors import NotPicklable
from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.op import Op, Source, Spot, place
from headrace.pipe.cursor import Opening
from headrace.pipe.graph import Pipe
from headrace.plan.world import World

SEED = 11
Equality = Callable[[Any, Any], bool]


def check_op(op: Op[Any, Any], *inputs: Iterable[Any], same: Equality | None = None, workers: bool = True) -> int:
    """An op, over the given inputs (sequences or pipes). Returns how many of their samples a resume read again."""
    pipes = [given if isinstance(given, Pipe) else Pipe.of(list(given)) for given in inputs]
    check_pipe(Pipe(op, *pipes), same=same, workers=workers)
    _check_emitted(Pipe(op, *pipes), same)
    streams = [Pipe.of(partial(iter, list(pipe))) for pipe in pipes]  # without random access
    if streams:
        check_pipe(Pipe(op, *streams), same=same, workers=workers)
    return _read_again(op, [list(pipe) for pipe in pipes])


def check_source(source: Source[Any], same: Equality | None = None, workers: bool = True) -> None:
    """A source."""
    check_pipe(Pipe(source), same=same, workers=workers)
    _check_emitted(Pipe(source), same)


def check_pipe(pipe: Pipe[Any], same: Equality | None = None, workers: bool = True) -> None:
    """A whole pipe; `same(a, b)` compares two samples, by their digests if it is not given."""
    equal = same or _same_digest
    whole = _read(pipe)
    _compare(whole, _read(pipe), equal, "a second reading differs from the first")
    _check_length(pipe, len(whole))
    _check_travel(pipe, whole, equal)
    if (by_position := _read_by_position(pipe)) is not None:
        _check_index(pipe, by_position, len(whole), equal)
    else:
        _check_resume(pipe, whole, equal)
    if workers:
        _check_loader(pipe, equal)


def _same_digest(a: object, b: object) -> bool:
    return digest(a) == digest(b)


class _CountedReads(Sequence[Any]):
    """A list that counts how often it is read."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples
        self.reads = 0

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, position: Any) -> Any:
        self.reads += 1
        return self._samples[position]


def _read_again(op: Op[Any, Any], inputs: list[list[Any]]) -> int:
    """Stop after every sample and resume there: the most input samples that a resume read again."""
    counted = [_CountedReads(samples) for samples in inputs]
    pipe: Pipe[Any] = Pipe(op, *(Pipe.of(samples) for samples in counted))
    if not counted or pipe.indexed(SEED, 0) is not None:
        return 0

    def reads() -> int:
        return sum(each.reads for each in counted)

    emitted = len(_read(pipe))
    whole, most = reads(), 0
    for at in range(emitted):
        begun = reads()
        cursor = _open(pipe, checkpoint=1)
        list(islice(cursor, at))
        list(_open(pipe, cursor.state(), checkpoint=1))
        most = max(most, reads() - begun - whole)
    return most


def _open(pipe: Pipe[Any], state: Any = None, checkpoint: int | None = None) -> Any:
    return Opening(pipe.ordinals(), SEED, 0, checkpoint=checkpoint).open(pipe, state)


def _read(pipe: Pipe[Any]) -> list[Any]:
    return list(_open(pipe))


def _read_by_position(pipe: Pipe[Any], step: int = 1) -> list[Any] | None:
    """All samples by random access, asked for from the first on, or with step -1 from the last; None without it."""
    spot = place.spot = Spot()
    indexed = pipe.indexed(SEED, 0, spot)
    return None if indexed is None else [indexed.get(i) for i in range(indexed.length)[::step]][::step]


def _compare(want: list[Any], got: list[Any], equal: Equality, what: str) -> None:
    if len(want) != len(got):
        raise AssertionError(f"{what}: {len(got)} samples instead of {len(want)}")
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        if not equal(a, b):
            raise AssertionError(f"{what}: sample {i} is {b!r} instead of {a!r}")


def _check_length(pipe: Pipe[Any], count: int) -> None:
    known = pipe.length()
    if known is not None and known != count:
        raise AssertionError(f"length() says {known}, but {count} samples were emitted")


def _check_travel(pipe: Pipe[Any], whole: list[Any], equal: Equality) -> None:
    from headrace.engine.program import cut

    try:
        program, _ = unship(ship(cut(pipe, SEED))[0])
    except NotPicklable as refused:
        raise AssertionError(f"it cannot be sent to a worker: {refused}") from refused
    _compare(whole, _read(program.pipe), equal, "after a journey to another process it emits something else")


def _check_index(pipe: Pipe[Any], forwards: list[Any], emitted: int, equal: Equality) -> None:
    if len(forwards) != emitted:
        raise AssertionError(f"random access has {len(forwards)} positions, but {emitted} samples were emitted")
    backwards = _read_by_position(pipe, -1) or []
    _compare(forwards, backwards, equal, "random access depends on the order of access")


def _check_emitted(pipe: Pipe[Any], same: Equality | None) -> None:
    """Of one op by itself: in a graph, what follows a shuffle may be made of other neighbours."""
    equal = same or _same_digest
    left = _read(pipe)
    for position, sample in enumerate(_read_by_position(pipe) or []):
        found = next((i for i, other in enumerate(left) if equal(other, sample)), None)
        if found is None:
            raise AssertionError(f"random access gives {sample!r} at position {position}, which flow() does not emit")
        del left[found]


def _check_resume(pipe: Pipe[Any], whole: list[Any], equal: Equality) -> None:
    # A checkpoint at every rest, and none: what an op says to rest() is used, and what it emitted since is dropped.
    for checkpoint, at in product((1, None), range(len(whole) + 1)):
        cursor = _open(pipe, checkpoint=checkpoint)
        before = list(islice(cursor, at))
        state = json.loads(_written(cursor.state(), at))
        _check_notes(pipe, state)
        after = _read_on(_open(pipe, state, checkpoint), at)
        _compare(whole, before + after, equal, f"stopped after {at} samples and resumed")


def _written(state: Any, at: int) -> str:
    try:
        return json.dumps(state)
    except (TypeError, ValueError) as refused:
        raise AssertionError(f"its state after {at} samples is not plain data: {refused}") from refused


def _read_on(cursor: Any, at: int) -> list[Any]:
    """The rest, with a state after each sample: none may change while reading goes on."""
    samples, states = [], []
    for number, sample in enumerate(cursor, at + 1):
        samples.append(sample)
        state = cursor.state()
        states.append((number, state, _written(state, number)))
    for number, state, was in states:
        if (now := json.dumps(state)) != was:
            raise AssertionError(f"its state after {number} samples changed while reading went on: {was} became {now}")
    return samples


def _check_notes(pipe: Pipe[Any], state: Any) -> None:
    _, _, note, _, below = state
    if not pipe.op.accepts(note):
        raise AssertionError(
            f"{pipe.op.name()} said {note!r} to here.rest(), and its accepts() refuses that: its snapshots cannot be "
            "loaded; let accepts() return True for every note that the op makes"
        )
    for inner, inputs in zip(pipe.inputs, below, strict=True):
        _check_notes(inner, inputs)


def _check_loader(pipe: Pipe[Any], equal: Equality) -> None:
    inline = Loader(pipe, seed=SEED, world=World())
    with Loader(pipe, seed=SEED, workers=2, kind="thread", world=World()) as threads:
        for epoch in range(2):
            _compare(list(inline), list(threads), equal, f"two threads deliver something else in epoch {epoch}")
