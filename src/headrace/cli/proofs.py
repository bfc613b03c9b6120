"""What `headrace verify` reads and compares.

    in place    what a source holds is the same after a reading; reported only when it is not
    repeat      read twice inline: equal. If not, the pipe is no function of (seed, epoch), and nothing else can hold
    once        every position of the epoch is fetched once, counted in the tickets that a reading really answered
    workers     with so many workers of a kind: the same batches in the same order
    resume      stopped after so many batches, saved as JSON, loaded with other workers: the rest follows exactly
    ranks       read as each of N ranks: the same number of steps, and together every position once

What is compared are digests of batches, so that an epoch of any size fits in memory.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from headrace.cli.subject import Subject
from headrace.errors import SnapshotRefused
from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.observe.lineage import read_epoch
from headrace.observe.meter import Meter
from headrace.op import Spot, place
from headrace.pipe.cursor import Opening
from headrace.pipe.graph import Pipe
from headrace.plan.share import Share, deal
from headrace.plan.world import World

_CAUSES = (
    "something in the pipe is no function of the sample (the time, a generator that seeds itself, a file that changes, "
    "a cache); nothing else can be proved before that is mended"
)

_CARRIED = (
    "if random values are drawn in it, they go on differently after a resume: set reproducible=True, or draw from "
    "headrace.rng()"
)


class ProofOptions(NamedTuple):
    workers: tuple[int, ...] = (1, 2, 3)
    kinds: tuple[str, ...] = ()
    """Empty: processes; threads too, but a difference there is only a remark."""
    ranks: int = 1
    cuts: int = 4
    batches: int | None = None
    """Only the first so many of an epoch; None: all."""
    epoch: int = 0


class Proof(NamedTuple):
    name: str
    holds: bool | None
    """None: a remark."""
    detail: str

    def line(self) -> str:
        return f"{'ok' if self.holds else 'note' if self.holds is None else 'FAILS':6}{self.name:27}{self.detail}"


class Positions(Meter):
    """A meter that counts how often each position of the dataset was fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[int] = Counter()

    def count(self, stage: int, reply: Any) -> None:
        super().count(stage, reply)
        if stage == 0 and reply.ticket.strand is None:
            start, stop, extra = reply.ticket.payload
            self.seen.update(range(start, stop))
            self.seen.update(extra)


class Reading(NamedTuple):
    """An epoch, or the front of it, as it was read once."""

    digests: list[bytes]
    """Of its batches."""
    positions: Positions


def prove(subject: Subject, options: ProofOptions) -> Iterator[Proof]:
    """One proof after the other."""
    with _loader(subject, workers=0) as inline:
        samples = _source_samples(inline.pipe)
        first = read(inline, options)
        again = read(inline, options)
        yield from _changed_in_place(inline.pipe, samples)
        known = inline.program.indexed and len(inline.program.stages) == 1
        repeat = _compare("repeat", first.digests, again.digests, f"{len(first.digests)} batches, read twice inline")
        if not repeat.holds:
            yield Proof("repeat", False, f"{repeat.detail} between two readings inline: {_CAUSES}")
            return
        yield repeat
        if not first.digests:
            yield Proof("empty", None, "the epoch has no batches, so there is nothing to compare")
            return
        yield _once("once, inline", inline, first, options) if known else _counted(inline, first, options)
    yield from _workers(subject, options, first, known)
    yield from _resume(subject, options, first.digests)
    if options.ranks > 1:
        yield from _ranks(subject, options)


def _loader(subject: Subject, **changes: object) -> Loader[Any]:
    """Batches are compared in order, also those of a loader that may deliver them in any (`ordered=False`)."""
    return subject.loader(**changes, ordered=True)


def read(loader: Loader[Any], options: ProofOptions) -> Reading:
    """Read an epoch, or the front of it, once."""
    positions = Positions()
    epoch = read_epoch(loader.program, loader.policy, options.epoch, loader.world, loader.ends, meter=positions)
    with closing(epoch) as batches:
        return Reading([digest(batch) for batch in islice(batches, options.batches)], positions)


# --- changes in place -------------------------------------------------------------------------------------------------

COMPARED = 200
"""How many samples of a source are compared, before and after a reading."""


def _source_samples(pipe: Pipe[Any]) -> dict[int, list[bytes]]:
    """Digests of samples of each source with random access, by the number of its node. A source whose samples differ
    from one look to the next is left out."""
    first, second = (
        {number: _digests(node) for number, node in enumerate(pipe.nodes()) if not node.inputs} for _ in range(2)
    )
    return {number: found for number, found in first.items() if found and found == second[number]}


def _digests(source: Pipe[Any]) -> list[bytes]:
    place.spot = Spot()
    indexed = source.indexed(0, 0, place.spot)
    if indexed is None:
        return []
    step = max(1, indexed.length // COMPARED)
    return [_digest(indexed.get, position) for position in range(0, indexed.length, step)]


def _digest(get: Callable[[int], Any], position: int) -> bytes:
    try:
        return digest(get(position))
    except Exception as error:  # a sample that cannot be read shows when the epoch is read
        return digest(repr(error))


def _changed_in_place(pipe: Pipe[Any], samples: dict[int, list[bytes]]) -> Iterator[Proof]:
    nodes = pipe.nodes()
    for number, before in samples.items():
        if _digests(nodes[number]) != before:
            yield Proof(
                "in place",
                False,
                f"reading changes what {nodes[number].op.describe()} holds: an op after it changes its sample in "
                "place, so every epoch sees other values, and every worker others; let that op change a copy",
            )


# --- every position once ----------------------------------------------------------------------------------------------


def _once(name: str, loader: Loader[Any], reading: Reading, options: ProofOptions) -> Proof:
    wanted, left_out = _expected(loader, options.epoch)
    seen = reading.positions.seen
    twice = [p for p, n in seen.items() if n > wanted.get(p, 0)]
    lost = [] if options.batches is not None else [p for p, n in wanted.items() if seen[p] < n]
    if twice or lost:
        return Proof(name, False, f"fetched too often: {_few(twice)}; never fetched: {_few(lost)}")
    rest = f"; {left_out} are left out, as drop_last or ends= say" if left_out else ""
    return Proof(name, True, f"{len(seen)} positions, each once{rest}")


def _expected(loader: Loader[Any], epoch: int) -> tuple[Counter[int], int]:
    """How often each position has to be fetched on this rank, and how many are left out on purpose."""
    program, world = loader.program, loader.world
    indexed = program.head.indexed(program.seed, epoch)
    assert indexed is not None
    length, ranks, rank = indexed.length, world.share_ranks, world.share_rank
    stage = program.stages[0]
    if stage.group is None:
        of_rank = deal(length, ranks, rank, by_remainder=indexed.parts is not None)
        return Counter(of_rank), length - length // ranks * ranks
    policy, parts = "drop" if stage.drop_last else loader.ends, indexed.parts is not None
    share = Share(length, stage.group, ranks, rank, policy, by_remainder=parts)
    return Counter(p for step in range(share.steps) for p in share.block(step).positions()), share.left_out


def _counted(loader: Loader[Any], reading: Reading, options: ProofOptions) -> Proof:
    """A stream has no positions to count: the graph read without the engine must have as many samples."""
    if loader.world.share_ranks > 1 or options.batches is not None:
        return Proof("once", None, "a stream, read in part: what is compared below is all that can be")
    plain = sum(1 for _ in Opening(loader.pipe.ordinals(), loader.seed, options.epoch).open(loader.pipe))
    if plain != len(reading.digests):
        return Proof("once", False, f"{len(reading.digests)} delivered, but the graph by itself gives {plain}")
    return Proof("once", True, f"{plain} delivered, as many as the graph gives by itself")


# --- workers ----------------------------------------------------------------------------------------------------------


def _workers(subject: Subject, options: ProofOptions, first: Reading, known: bool) -> Iterator[Proof]:
    kinds = options.kinds or ("process", "thread")
    for kind in kinds:
        for workers in options.workers if options.kinds or kind == "process" else options.workers[-1:]:
            with _loader(subject, workers=workers, kind=kind) as loader:
                reading = read(loader, options)
                name = f"workers={workers}, {kind}"
                same = _compare(name, first.digests, reading.digests, "the same batches in the same order as inline")
                if kind == "thread" and not options.kinds and not same.holds:
                    remark = "threads do not seed global generators: draw from headrace.rng() to be the same there too"
                    same = Proof(name, None, f"{same.detail}; {remark}")
                yield same
                if known:
                    yield _once(f"once, {name}", loader, reading, options)


def _compare(name: str, want: list[bytes], got: list[bytes], detail: str) -> Proof:
    for number, (a, b) in enumerate(zip(want, got, strict=False)):
        if a != b:
            return Proof(name, False, f"batch {number} differs")
    if len(want) != len(got):
        return Proof(name, False, f"{len(got)} batches instead of {len(want)}")
    return Proof(name, True, detail)


# --- resume -----------------------------------------------------------------------------------------------------------


def cuts(length: int, count: int) -> list[int]:
    """After how many of `length` batches to stop: one cut is in the middle, a second at the end; more are spread evenly
    from the start to the end."""
    if count <= 2:
        return sorted({length // 2, length})[:count]
    return sorted({round(k * length / (count - 1)) for k in range(count)})


def _resume(subject: Subject, options: ProofOptions, whole: list[bytes]) -> Iterator[Proof]:
    most = max(options.workers)
    kind = options.kinds[0] if options.kinds else "process"
    ways: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"workers": 0}, {"workers": most, "kind": kind}),
        ({"workers": most, "kind": kind}, {"workers": 0}),
        ({"workers": 1, "kind": kind}, {"workers": most, "kind": kind}),
    ]
    for number, cut in enumerate(cuts(len(whole), options.cuts)):
        before, after = ways[number % len(ways)]
        rest_count = None if options.batches is None else len(whole) - cut
        with _loader(subject, **before, epoch=options.epoch) as loader:
            front, state = _front(loader, cut)
            saved = json.dumps(state)
        with _loader(subject, **after, epoch=0) as loader:
            try:
                rest = _rest(loader, json.loads(saved), rest_count)
            except SnapshotRefused as refused:
                yield Proof(f"resume after {cut}", False, f"its own snapshot is refused: {refused}")
                continue
        detail = f"workers {before['workers']} -> {after['workers']}, a snapshot of {len(saved)} bytes"
        yield _compare(f"resume after {cut}", whole, front + rest, detail)


def _front(loader: Any, cut: int | None) -> tuple[list[bytes], Any]:
    """Digests of the first `cut` batches of an epoch, and the state of the loader behind them."""
    epoch = iter(loader)  # (held until the state is taken: with its last reference the epoch would end)
    return [digest(batch) for batch in islice(epoch, cut)], loader.state_dict()


def _rest(loader: Any, state: Any, count: int | None) -> list[bytes]:
    """Digests of the batches (at most `count`) that follow from a state."""
    loader.load_state_dict(state)
    return [digest(batch) for batch in islice(loader, count)]


# --- ranks ------------------------------------------------------------------------------------------------------------


def _ranks(subject: Subject, options: ProofOptions) -> Iterator[Proof]:
    seen: Counter[int] = Counter()
    wanted: Counter[int] = Counter()
    steps: list[int] = []
    for rank in range(options.ranks):
        with _loader(subject, workers=0, world=World(rank=rank, ranks=options.ranks)) as loader:
            if not loader.program.traceable:
                remark = (
                    "not checked: how many batches each rank gets shows only while all of them run; start "
                    f"`headrace run --num-instances {options.ranks} python YOUR_PROGRAM` and compare what arrives"
                )
                yield Proof("ranks", None, remark)
                return
            reading = read(loader, options)
            seen += reading.positions.seen
            wanted += _expected(loader, options.epoch)[0]
            steps.append(len(reading.digests))
    if len(set(steps)) > 1:
        yield Proof("ranks", False, f"steps differ: {steps}")
    elif options.batches is None and seen != wanted:
        wrong = [p for p in wanted | seen if wanted[p] != seen[p]]
        yield Proof("ranks", False, f"{len(wrong)} positions come too often or not at all: {_few(wrong)}")
    else:
        yield Proof("ranks", True, f"{options.ranks} ranks, {steps[0]} steps each, {len(seen)} positions among them")


def _few(positions: list[int]) -> str:
    shown = ", ".join(map(str, sorted(positions)[:5]))
    return f"{shown}, ... {len(positions)} in all" if len(positions) > 5 else shown or "none"


# --- loaders that are no Loader ---------------------------------------------------------------------------------------


def prove_stateful(loader: Any, count: int, batches: int | None) -> Iterator[Proof]:
    """A loader that is no `Loader` but has a state: from the same state follow the same batches."""
    epoch = iter(loader)
    start = loader.state_dict()  # not before: torch draws the epoch's seeds when the iterator is made
    whole = [digest(batch) for batch in islice(epoch, batches)]
    del epoch
    again = _rest(loader, start, batches)
    yield _compare("repeat", whole, again, f"{len(whole)} batches, twice from the same state")
    carried = getattr(loader, "reproducible", None) is False
    for cut in cuts(len(whole), count):
        loader.load_state_dict(start)
        front, state = _front(loader, cut)
        rest = _rest(loader, state, None if batches is None else len(whole) - cut)
        proof = _compare(f"resume after {cut}", whole, front + rest, "the rest followed exactly")
        yield proof if proof.holds or not carried else proof._replace(detail=f"{proof.detail}; {_CARRIED}")
