"""Executor: runs tickets of a program, in whatever thread or process it finds itself.

Of a ticket, its stage, epoch, number and payload come here. `number` says which ticket of its stage it is, the same in
every run: random values depend on it and on nothing else. The payload depends on what feeds the stage:

    positions   (start, stop, extra)          positions of the head, then those of the tuple `extra`
    refs        (samples, base, stride)       samples of the stage before, already decoded; their numbers: `numbered`
    listed      the object itself             what the consumer's iterator gave
    strand      (strand, state)               the next block of a strand, from `state` if it is not open here

Outputs come back as a list. The executor notes where it is (`place`) before it calls user code, so that an error, a
death or a stuck worker can be named after the op and the sample.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from headrace.context import timed_spread
from headrace.engine.program import OFTEN, RARELY, Program, Stage
from headrace.engine.wire.independent import independent
from headrace.engine.wire.messages import AHEAD, ALONE, FAILED_HERE, GROUPED, WHOLE, Fault, Skip, failure, numbered
from headrace.nested import rough_bytes
from headrace.op import Clock, Each, Flat, Here, Indexed, Spot, Take, Upcoming, place, timed
from headrace.ops.copies import IMMUTABLE
from headrace.pipe.cursor import Cursor, Opening, State
from headrace.pipe.graph import Pipe
from headrace.plan.seed import ImportWatcher, numbered_keys, seed_globals

STRAND_SECONDS = 0.02
"""A strand hands on what it has after this long, so that a slow stream still flows."""

STRAND_BYTES = 64 * 1024
"""About so many bytes of samples make a block: large samples are handed on one by one."""

ASK_AGAIN = 16
"""Tickets after which it is asked again whether rows are worth their keeping."""
Chain = list[tuple[Here, Callable[[Any], Any], bool]]


class Executor:
    """Runs tickets."""

    def __init__(
        self,
        program: Program,
        seeds: bool,
        caught: type[BaseException] = BaseException,
        note: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """`caught`: errors that fail one position of a ticket, and not all of it; `note` is told of each at once."""
        self.program = program
        self._caught = caught
        self._note_error = note
        self.spot = Spot()
        if program.skips:
            self.spot.leave_out = self._leave_out
        self.header: Any = [0, 0, 0]
        """Where the position at hand is written, for whoever looks after a death: (ticket, position, begun)."""
        self._seeds = seeds and program.keyed
        if self._seeds:
            ImportWatcher.watch("numpy")
            ImportWatcher.watch("torch")
        self._opened: dict[int, _Opened] = {}
        self._by_position = False
        self._rows_pay = True
        self._ran, self._timed_next = 0, program.timed
        self.timings: dict[int, float] | None = None
        """Seconds of the last ticket by op, if it was one that is timed."""
        self.skipped: list[Skip] = []
        """Samples of the last ticket that failed and were left out."""
        self.faults: list[Fault] = []
        """Of the last ticket, the positions that failed where each has outputs of its own."""
        self.counts: list[int] | None = None
        """Of the last ticket: how many outputs each position has, where each has outputs of its own."""

    def run(
        self, stage_number: int, epoch: int, number: int, payload: object, avoid: tuple[int, ...] = ()
    ) -> list[Any]:
        """The outputs of one ticket; positions in `avoid` are left out."""
        self._ran += 1
        opened = self._epoch(epoch)
        if self._ran == self._timed_next:
            opened = opened.timed
            self._timed_next += self.program.timed * (1 if self._ran < OFTEN or self.program.timed == 1 else RARELY)
        stage = self.program.stages[stage_number]
        place.spot, place.rows, self.spot.failed, self.spot.state = self.spot, None, None, None
        if self._seeds and stage.feed != "strand":
            # (Before single positions too: a source may read all of a ticket in one call.)
            seed_globals(opened.keys[stage_number](number))
        self.skipped.clear()
        self.faults, self.counts = [], None
        self._by_position = stage.feed == "positions"
        if self._by_position:
            outputs = self._positions(opened, stage, number, payload, avoid)
        elif stage.feed == "refs":
            outputs = self._samples(opened, stage, number, payload, avoid)
        else:
            self._note(number)
            outputs = [] if number in avoid else self._push(opened.chains[stage_number], payload, number)
        self.spot.here = place.rows = None  # not after an error: whoever reports it asks where()
        self.timings = opened.read_clock()
        return outputs

    def _note(self, position: int) -> None:
        header = self.header
        header[1] = position
        header[2] = 1

    def strand(self, epoch: int, strand: int, block: int, state: State | None) -> tuple[list[Any], bool, State | None]:
        """The next block of a strand: its samples, whether it has ended, and where it is now."""
        opened = self._epoch(epoch)
        self.skipped.clear()
        self.faults, self.counts = [], None
        self._by_position = False
        self.timings = None
        at, cursor = opened.strands.pop(strand, (-1, None))
        if cursor is None or at != block:
            if state is None and block > 0:
                return [], True, None  # the block before failed: an iterator that has raised is over
            cursor = self._open_strand(opened, strand, state)
            for other in self._opened.values():
                if other is not opened:
                    other.strands.pop(strand, None)  # what an epoch that was left has open of it ends here
            if block == 0 and self.program.head.op.opens:
                opened.strands[strand] = (1, cursor)
                return [], False, cursor.state()
        samples: list[Any] = []
        ended = False
        until = time.monotonic() + STRAND_SECONDS
        op = self.program.head.op
        begun = cursor.emitted
        self._note(begun)
        most = self.program.strand_block
        fresh = op.fresh
        try:
            while len(samples) < most:
                sample = next(cursor)
                samples.append(sample if fresh else independent(sample))
                if len(samples) == 1:
                    most = min(most, max(1, STRAND_BYTES // rough_bytes(samples[0])))
                if time.monotonic() > until:
                    break
        except StopIteration:
            ended = True
        except self._caught as error:
            if cursor.emitted != begun + len(samples):
                raise  # (An exception that came from outside can come between a sample and its counting.)
            self._fails(len(samples), WHOLE, error)
            if not op.goes_on or not isinstance(error, Exception):
                return samples, True, None
        self.spot.here = None
        if self.program.timed == 1:
            self.timings = opened.timed.read_clock()
        opened.strands[strand] = (block + 1, cursor)
        return samples, ended, cursor.state()

    def close(self) -> None:
        """Nothing more is asked for: streams that are open here end."""
        self._opened.clear()

    def _open_strand(self, opened: "_Opened", strand: int, state: State | None) -> Cursor:
        opening = Opening(
            opened.ordinals,
            self.program.seed,
            opened.epoch,
            strand,
            self.program.strands,
            seed_globals if self._seeds else None,
            self.spot,
            opened.timed.clock if self.program.timed == 1 else None,
        )
        return opening.open(self.program.head, state)

    def _epoch(self, epoch: int) -> "_Opened":
        found = self._opened.get(epoch)
        if found is None:
            found = self._opened[epoch] = _Opened(self.program, epoch, self.spot)
            # The ones opened first go first: epochs may be asked for in any order.
            for old in list(self._opened)[:-2]:
                del self._opened[old]
        return found

    def _positions(
        self, opened: "_Opened", stage: Stage, number: int, payload: Any, avoid: tuple[int, ...]
    ) -> list[Any]:
        start, stop, extra = payload
        asked: Sequence[int] = range(start, stop) if not extra else [*range(start, stop), *extra]
        wanted = [p for p in asked if p not in avoid] if avoid else asked
        chain = opened.chains[stage.number]
        get, ahead = opened.indexed.get, opened.ahead
        if ahead is not None and ALONE not in avoid and wanted:
            self.header[1], self.header[2] = wanted[0], AHEAD
            ahead(wanted)
            if ahead.later is not None:
                opened.look(ahead, wanted)
        if stage.group is not None:
            # (Samples that were too small for rows are so again, but it is asked now and then.)
            if stage.in_rows and (self._rows_pay or self._ran % ASK_AGAIN == 1):
                get = place.in_rows(get, len(wanted), opened.ordinals[id(self.program.head)])
            group = self._fetch(get, wanted) if not stage.columnar else self._take(opened.indexed.take, wanted, number)
            self.spot.index = None  # a whole batch from here on
            if place.rows is not None:
                self._rows_pay = not place.rows.empty
            self.header[2] = GROUPED
            return self._push(chain, group, number) if group else []
        return self._each(get, asked, avoid, chain, opened.sample_keys[stage.number] if self._seeds else None)

    def _each(
        self,
        get: Callable[[int], Any],
        asked: Sequence[int],
        avoid: tuple[int, ...],
        chain: Chain,
        key: Callable[[int], int] | None,
    ) -> list[Any]:
        """The outputs of these positions, each by itself: one that fails has an error in their place.

        Each is seeded by itself, so that it is the same whichever ticket it is made in.
        """
        header, spot = self.header, self.spot
        header[2] = 1
        outputs: list[Any] = []
        counts = self.counts = []
        for position in asked:
            if position in avoid:
                counts.append(0)
                continue
            header[1] = position
            spot.index = None
            before = len(outputs)
            if key is not None:
                seed_globals(key(position))
            try:
                sample = get(position)
                if chain:
                    outputs += [independent(output) for output in self._push(chain, sample, position)]
                else:
                    outputs.append(sample if type(sample) in IMMUTABLE else independent(sample))
            except self._caught as error:
                if self.program.skips and isinstance(error, Exception):
                    self._skip(position, error)
                else:
                    self._fails(len(outputs), position, error)
                    counts.append(FAILED_HERE)
                    continue
            counts.append(len(outputs) - before)
        return outputs

    def _fails(self, before: int, position: int, error: BaseException) -> None:
        """A position has failed, behind so many outputs of the ticket."""
        self._note_error(error)
        self.faults.append((before, position, error))
        self.spot.here = self.spot.failed = None

    def _fetch(self, get: Callable[[int], Any], wanted: Sequence[int]) -> list[Any]:
        """The samples at these positions, for one group."""
        header = self.header
        header[2] = 1
        spot = self.spot
        samples: list[Any] = []
        append = samples.append
        skips = self.program.skips
        for position in wanted:
            header[1] = position
            spot.index = None
            try:
                append(get(position))
            except Exception as error:
                if not skips:
                    raise
                self._skip(position, error)
        return samples

    def _take(self, take: Take | None, wanted: Sequence[int], number: int) -> Any:
        """The columns of all these positions at once."""
        import numpy as np

        if not wanted:
            return None
        assert take is not None
        self._note(wanted[0])
        self.header[2] = GROUPED
        try:
            return take(np.array(wanted, dtype=np.int64), None)
        except Exception as error:
            if not self.program.skips:
                raise
            self._skip(number, error)
            return None

    def _samples(self, opened: "_Opened", stage: Stage, number: int, payload: Any, avoid: tuple[int, ...]) -> list[Any]:
        samples, base, stride = payload
        inner = opened.inners[stage.number]
        chain = opened.chains[stage.number]
        done: list[Any] = []
        # How many samples of a stream come in one ticket depends on time, so here each sample is seeded by itself.
        each = self._seeds and stage.group is None
        key = opened.sample_keys[stage.number]
        for position, sample in zip(numbered(base, stride), samples, strict=False):
            if position in avoid:
                continue
            self._note(position)
            if each:
                seed_globals(key(position))
            if stage.group is not None:
                done += self._push(inner, sample, position)
                continue
            try:
                done += [independent(output) for output in self._push(chain, sample, position)]
            except self._caught as error:
                self._fails(len(done), position, error)
        if stage.group is None:
            return done
        self.header[2] = GROUPED
        return self._push(chain, done, number) if done else []

    def _push(self, chain: Chain, unit: object, position: int) -> list[Any]:
        """One unit through a chain of ops."""
        if self.program.skips:
            return self._push_what_works(chain, unit, position)
        spot = self.spot
        units = [unit]
        for here, call, flat in chain:
            spot.here = here
            spot.position = position
            if flat:
                units = [v for u in units for v in call(u)]
            elif len(units) == 1:
                units = [call(units[0])]
            else:
                units = [call(u) for u in units]
        return units

    def _push_what_works(self, chain: Chain, unit: object, position: int) -> list[Any]:
        """The same; what fails is left out by itself, and what a file gave before it broke is kept."""
        spot = self.spot
        units = [unit]
        for here, call, flat in chain:
            spot.here = here
            spot.position = position
            made: list[Any] = []
            for one in units:
                try:
                    if flat:
                        for part in call(one):
                            made.append(part)  # noqa: PERF402 - what came before an error stays
                    else:
                        made.append(call(one))
                except Exception as error:
                    self._skip(position, error)
            units = made
        return units

    def _leave_out(self, position: int, error: Exception) -> None:
        self._skip(self._position(position), error, whole=False)

    def _position(self, own: int) -> int:
        """The position in the epoch of a sample of which an op says its `own` number: where the op makes one output of
        several samples, it is that of the output."""
        return self.header[1] if self._by_position and self.header[2] != GROUPED else own

    def _skip(self, position: int, error: Exception, whole: bool = True) -> None:
        self.skipped.append((position, self._op(), failure(error), self._index(), whole))

    def where(self) -> str:
        """The op and the sample at hand: its position in the epoch, and which one of its source it is."""
        spot = self.spot
        at = self.header[1] if spot.failed is None else self._position(spot.failed)
        position, source = spot.position if spot.here is not None else -1, ""
        if (index := self._index()) is not None and index != at:
            # (Ops before a shuffle count as the source does: the position in the epoch is in the header.)
            position, source = at, f" (index {index} of the dataset)"
        at = f", at position {position}{source}" if position >= 0 else ""
        return "while the pipe was read" if spot.here is None else f"in {self._op()}{at}"

    def _index(self) -> int | None:
        """Which sample of its source the one at hand is, where each is fetched by its position."""
        return self.spot.index if self._by_position else None

    def _op(self) -> str:
        here = self.spot.here
        return "the pipe" if here is None else self.program.pipe.nodes()[here.ordinal].op.describe()


class _Opened:
    """A program in one epoch."""

    def __init__(self, program: Program, epoch: int, spot: Spot, clock: Clock | None = None) -> None:
        self.epoch = epoch
        self.ordinals = program.pipe.ordinals()
        self._spot = spot
        self.clock = clock
        opening = Opening(self.ordinals, program.seed, epoch, spot=spot, clock=clock)
        self.strands: dict[int, tuple[int, Cursor]] = {}
        self.inners = [_chain(opening, stage.inner) for stage in program.stages]
        self.chains = [_chain(opening, stage.nodes, stage is program.last) for stage in program.stages]
        self.keys = [numbered_keys(program.seed, epoch, "ticket", stage.number) for stage in program.stages]
        """Of each ticket, by its number."""
        self.sample_keys = [numbered_keys(program.seed, epoch, "sample", stage.number) for stage in program.stages]
        self._program = program
        self._indexed: Indexed | None = None
        self._told = 0
        """The first position of which the source was not told yet."""

    @cached_property
    def ahead(self) -> Upcoming | None:
        """Who is told of the samples of a ticket: the source, or the first op if they cost the source nothing."""
        get, ops = self.indexed.get, self._program.stages[0].ops
        soon = ops[0].op.soon if ops and isinstance(ops[0].op, Each) and self.indexed.light else None
        if self.indexed.ahead is not None or soon is None:
            return self.indexed.ahead

        def begin(positions: Sequence[int]) -> None:
            for position in positions:
                soon(get(position))

        return Upcoming(begin)

    def look(self, ahead: Upcoming, wanted: Sequence[int]) -> None:
        """Tell the source what comes after these positions, as far as it wants to know and does not know yet.

        Other workers, and other ranks, take some of it. What they take is near, or they have told their own source.
        """
        step = wanted[-1] - wanted[-2] if len(wanted) > 1 else 1
        if step > 0 and ahead.later is not None:
            # (Positions of a rank that takes every so many of them stay its own.)
            first = wanted[-1] + step
            begin = max(first, self._told + (first - self._told) % step)
            until = min(first + ahead.look * step, self.indexed.length)
            if later := range(begin, until, step):
                self._told = until
                ahead.later(later)

    @cached_property
    def timed(self) -> "_Opened":
        """The same, with a clock around every op."""
        return _Opened(self._program, self.epoch, self._spot, Clock())

    def read_clock(self) -> dict[int, float] | None:
        if not self.clock:
            return None
        seconds = dict(self.clock)
        self.clock.clear()
        return seconds

    @property
    def indexed(self) -> Indexed:
        if self._indexed is None:
            head = self._program.head_as_kept()
            self._indexed = head.indexed(self._program.seed, self.epoch, self._spot, self.clock)
            assert self._indexed is not None
        return self._indexed


def _chain(opening: Opening, nodes: Sequence[Pipe[Any]], departs: bool = False) -> Chain:
    chain: Chain = []
    for node in nodes:
        here, op = opening.here(node), node.op
        if isinstance(op, Each):
            chain.append((here, timed(op.depart if departs and node is nodes[-1] else op.apply, here), False))
        else:
            assert isinstance(op, Flat), "anything else cannot run sample by sample, and ends a stage"
            chain.append((here, timed_spread(op.spread, here), True))
    return chain
