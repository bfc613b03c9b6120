"""Run: one epoch, from tickets to batches. This is the one loop.

    feeds ──tickets──> workers ──replies──> window (back in order) ──> next stage's feed
                                                                  └──> deliver: decode, tail, yield

Later stages are served first, so that what is begun gets finished. The window bounds how far work may run ahead of
delivery; a ticket that waits for a busy worker stays here, so that whoever is free can take it.
"""

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from headrace.engine.delivery import AnyOrder, open_many, place_after, raisable
from headrace.engine.feeds.block import AssembledReply, Block
from headrace.engine.feeds.place import Feed, Groups, Setting, chain, open_feeds
from headrace.engine.feeds.strands import Strands
from headrace.engine.places import RunPlace
from headrace.engine.policy import Budget, Policy, too_many
from headrace.engine.program import Program
from headrace.engine.wire import codec
from headrace.engine.wire.messages import WHOLE, Fault, Reply, Ticket
from headrace.engine.workers.inline import STREAMED
from headrace.engine.workers.protocol import Workers
from headrace.errors import Closed, SnapshotRefused
from headrace.observe.meter import Meter
from headrace.plan.world import World

_NOTHING: Any = object()


class Run:
    """One epoch."""

    def __init__(
        self,
        program: Program,
        policy: Policy,
        workers: Workers,
        epoch: int,
        world: World,
        meter: Meter,
        *,
        ends: str = "short",
        at: RunPlace | None = None,
        first: Feed | None = None,
    ) -> None:
        """`at` is where to go on; `first` is the feed of the first stage, where the place does not say which it is."""
        self.program = program
        self.policy = policy
        self.workers = workers
        self.epoch = epoch
        self.meter = meter
        self._arena = workers.arena
        self._last = len(program.stages) - 1
        self._assembled = program.assembled
        at = at or RunPlace()
        setting = Setting(program, policy, epoch, world, ends, workers.release)
        self._feeds: list[Feed] = open_feeds(at.place, setting, first)
        self._streamed = self._feeds[0].streamed
        self._unordered = not policy.ordered and not self._streamed and program.last.single  # (batches only)
        unordered = (self._unordered or at.ahead) and first is None  # (else who made the tickets counts them)
        self._any = AnyOrder(at, program.last.group or 0) if unordered else None
        self._groups = [feed for feed in self._feeds[1:] if isinstance(feed, Groups)]
        """For each stage but the last, the feed of the next stage, which takes its results."""
        self._meeting = [feed for feed in self._feeds if feed.awaits_ranks]
        self._pending: list[Ticket | None] = [None] * len(program.stages)
        self._issued, self._expect = [0] * len(program.stages), [0] * len(program.stages)
        self._windows: list[dict[int, Reply]] = [{} for _ in program.stages]
        self.outstanding = 0
        """How many tickets the workers have."""
        self._delivered = 0
        self._ready: deque[Any] = deque()
        self._outputs: Iterator[Any] = iter(())
        self._faults: deque[Fault] = deque()
        """Errors among these outputs that were not raised yet."""
        self._began = at
        self.ticket: Ticket | None = None
        """The ticket whose results are being handed out."""
        self.taken = 0
        """How many outputs of that ticket have been handed out."""
        self.failed = False
        """The exception that is being raised belongs to one ticket: after it the run can go on with the next ticket."""
        self._skip, self._counts = at.gone, policy.skips
        self._skips = [at.skipped, *([0] * self._last)]
        self._inputs = [0] * len(program.stages) if at.place is None else [p.inputs(world) for p in chain(at.place)]
        self.skipped = at.skipped
        """How many samples have been left out, up to what was delivered."""
        self.ended = self._abandoned = False
        self._busy_until = 0.0 if workers.concurrent else math.inf
        """The time (of `perf_counter`) until which the workers probably have enough to do."""
        self.exhausted = False
        """Every ticket of the epoch has been answered: there is nothing left that a worker could do for it."""
        self._owner = os.getpid()
        self.consistent = True
        """False while the loop sends or receives: after an exception there these workers must not be used again."""
        workers.begin()

    # --- delivery -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            while self._faults and self._faults[0][0] == self.taken:
                self._raise()
            output = next(self._outputs, _NOTHING)
            if output is not _NOTHING:
                self.taken += 1
                if self._skip:
                    self._skip -= 1
                    continue
                return output
            if not self._ready:
                if self.ended:
                    if self._abandoned:
                        raise Closed("this loader was closed while it was being read")
                    if self._skip:
                        raise SnapshotRefused(f"the snapshot stands {self._skip} samples beyond the end of the data")
                    raise StopIteration
                self._pump()
                continue
            item = self._ready.popleft()
            self._delivered += 1
            if time.perf_counter() > self._busy_until:
                self.keep_busy()
            ticket = item.ticket
            if self._any is None:
                ticket.kept = item.kept
            else:
                self._any.delivers(ticket, item.kept)
            self.ticket, self.taken, ticket.many = ticket, 0, 1
            if item.state is not None:
                ticket.noted = (item.worker, item.state)
            self.skipped = item.skips
            if item.faults:
                self._faults.extend(item.faults)
                ticket.breaks = [(before, self._behind(ticket, position)) for before, position, _ in item.faults]
                item.faults, ticket.error = (), None
            try:
                if item.count == 1 and not self._skip and not self._faults:
                    self.taken = 1
                    return codec.open_one(item, self._arena)
                outputs = open_many(item, self._arena)
            except Exception:  # what came cannot be unpickled here
                self.failed = True
                raise
            ticket.many = len(outputs)
            self._outputs = iter(outputs)

    def _behind(self, ticket: Ticket, position: int) -> object:
        return None if position == WHOLE else self._feeds[-1].behind(ticket, position)

    def _raise(self) -> None:
        """Raise the error in the place of the next output, unless it was passed before the epoch went on here."""
        *_, error = self._faults.popleft()
        if self._skip:
            return
        self.failed = True
        try:
            raise raisable(error)
        finally:
            del error  # or traceback and frame would keep each other, and the workers, until gc finds them

    # --- the loop -----------------------------------------------------------------------------------------------------

    def keep_busy(self, take: bool = True) -> None:
        """Take the replies that are there and send more tickets, so that no worker is idle while the user trains."""
        self._enter()
        for reply in self.workers.collect() if take else ():
            self._accept(reply)
        self._issue()
        self.workers.flush()
        if self.workers.concurrent:
            self.exhausted = not self.outstanding and self._all_ended()
            self._busy_until = math.inf if self.exhausted else time.perf_counter() + self.workers.rest
        self.consistent = True

    def _enter(self) -> None:
        if os.getpid() != self._owner:
            raise Closed(
                f"this iterator belongs to process {self._owner}, of which this one is a copy: call iter(loader) here"
            )
        self.consistent = False

    def _pump(self) -> None:
        self._enter()
        # The end of a stage opens the way for the next one, so with nothing in flight one look per stage may be needed.
        for looks in range(len(self.program.stages) + 1):
            self._issue(starving=looks > 0)
            if self._ready:
                self.consistent = True
                return
            if self.outstanding:
                break
            if self._all_ended():
                self.ended = self.consistent = True
                return
        # (Not while a batch is on its way that other ranks may have already: they wait for this rank's step then.)
        later = any(self._pending[1:]) or self._expect[1:] != self._issued[1:]
        if later or not any(feed.await_ranks() for feed in self._meeting):
            self._wait()
        self.consistent = True

    def wait_for_earlier(self) -> None:
        """Wait until the workers have done what they were given in the epochs before; `keep_busy` follows."""
        self._enter()
        while self.workers.running() > self.outstanding:
            self._wait()

    def _wait(self) -> None:
        started = time.perf_counter()
        replies = self.workers.wait(self.policy.timeout)
        self.meter.waited += (waited := time.perf_counter() - started)
        if not replies and self.policy.timeout is not None and waited >= self.policy.timeout:
            self.workers.replace_stuck(self.policy)
        for reply in replies:
            self._accept(reply)

    def _issue(self, starving: bool = False) -> None:
        """Hand out tickets, later stages first, as long as the window is open and somebody is free."""
        limit = self._window()
        for stage in range(self._last, -1, -1):
            feed = self._feeds[stage]
            # With nothing at all in flight a stage is fed however much lies before the next one: it lacks something.
            while self._room(stage, limit) or (starving and stage < self._last and not self.outstanding):
                ticket = self._pending[stage] or feed.next(self)
                if ticket is None:
                    if feed.ended and stage < self._last:
                        self._close(stage)
                    break
                ticket.order = self._issued[stage]
                gone = stage == self._last and self._any is not None and not self._any.begins(ticket)
                if gone or ticket.error is not None:
                    self._answer(ticket, None if gone else ticket.error)
                    continue
                if self._assembled and stage == self._last:
                    self._issued[stage] += 1
                    self._expect[stage] += 1
                    self._ready.append(AssembledReply(ticket, self.program.last.group is not None))
                    continue
                if self.policy.pinned and ticket.pin is None:
                    ticket.pin = ticket.order
                if not self.workers.submit(ticket):
                    self._pending[stage] = ticket
                    break
                self._pending[stage] = None
                self._issued[stage] += 1
                self.outstanding += 1

    def _answer(self, ticket: Ticket, error: BaseException | None) -> None:
        """Answer a ticket without a worker: the stage before has failed, or its results were delivered already."""
        ticket.release_inputs()
        reply = Reply(ticket)
        reply.outputs = []
        if error is not None:
            reply.faults = ((0, WHOLE, error),)
        self._issued[ticket.stage] += 1
        self._windows[ticket.stage][ticket.order] = reply
        self._settle(ticket.stage)

    def _room(self, stage: int, limit: int) -> bool:
        if stage == self._last:
            return self._issued[stage] - self._delivered < limit
        return self._issued[stage] - self._expect[stage] + self._groups[stage].backlog < limit

    def _window(self) -> int:
        policy = self.policy
        if not policy.workers:
            return STREAMED if self._streamed else 1
        wanted, deeper = policy.window or 8 * policy.workers, self.workers.ahead
        if not (largest := self._arena.largest):
            return max(wanted, deeper)
        affordable = self._arena.budget // largest
        return min(max(wanted, min(deeper, affordable // 2)), max(affordable, policy.workers + 1, policy.window or 0))

    def _close(self, stage: int) -> None:
        """If every ticket of a stage is answered, let the next stage form its last, incomplete group."""
        if self._expect[stage] == self._issued[stage]:
            self._groups[stage].closed = True

    def _all_ended(self) -> bool:
        settled = self._expect == self._issued and not any(self._pending)
        return settled and all(feed.ended for feed in self._feeds)

    def _accept(self, reply: Reply) -> None:
        ticket = reply.ticket
        if ticket.owner is not self:
            self._discard(reply)
            ticket.release_inputs()
            return
        self.outstanding -= 1
        if ticket.blocks:
            ticket.release_inputs()
        self.meter.count(ticket.stage, reply)
        self._windows[ticket.stage][ticket.order] = reply
        self._settle(ticket.stage)

    def _settle(self, stage: int) -> None:
        """Pass on the replies whose turn has come: to the next stage, or to the consumer."""
        window = self._windows[stage]
        if stage == self._last and self._unordered:
            for order in list(window):
                reply = window.pop(order)
                if self._counts:
                    self._count_skips(stage, reply)
                self._ready.append(reply)
                self._expect[stage] += 1
            return
        feed = self._feeds[stage]
        any_order = feed.streamed and stage == self._last and not self.policy.ordered
        while window if any_order else self._expect[stage] in window:
            reply = window.pop(min(window) if any_order else self._expect[stage])
            self._expect[stage] += 1
            if self._counts:
                self._count_skips(stage, reply)
            if stage == self._last and not feed.streamed:
                self._ready.append(reply)
                continue
            if reply.count == 0 and not reply.faults:
                if stage == self._last:
                    self._delivered += 1  # nothing of it will ever be taken, so its place in the window is free
                if reply.slot is not None:
                    # Nothing came through a filter: an empty block must not hold memory until its group is full.
                    self.workers.release(reply.slot)
                    reply.slot, reply.outputs = None, []
            for entry in feed.entries(reply, Block(reply, self.workers.release)):
                if stage == self._last:
                    self._ready.append(AssembledReply.of(entry))
                else:
                    self._groups[stage].push(entry)
        if stage < self._last and self._feeds[stage].ended:
            self._close(stage)

    def _discard(self, reply: Reply) -> None:
        """Give back the memory of a reply that nobody will read: its epoch was abandoned."""
        block = reply.ticket.append_to
        if block is not None and block.slot_given_away and block.slot is not None:
            block.slot_given_away = False  # others still read the block that it has grown in: the last of them frees it
        elif reply.slot is not None:
            self.workers.release(reply.slot)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def _count_skips(self, stage: int, reply: Reply) -> None:
        """Count what was left out, in order: the same samples exhaust a budget at the same place in every run."""
        ticket, before = reply.ticket, self._skips[stage]
        self._inputs[stage] = self._feeds[stage].seen(self._inputs[stage], reply)
        now = self._skips[stage] = before + len(reply.skipped)
        reply.skips = ticket.skips + now
        reply.kept = (ticket.kept[0] + before, ticket.kept[1] + now)
        if not reply.skipped:
            return
        ticket.avoid += tuple(position for position, *_, whole in reply.skipped if whole)
        self.meter.skip(self.epoch, stage, reply.skipped)
        if isinstance(budget := self.policy.on_error, Budget) and budget.spent(reply.skips, self._inputs[stage]):
            reply.faults = ((0, WHOLE, too_many(budget, reply.skips, *reply.skipped[-1][:3])),)

    def place(self) -> RunPlace:
        """Where the epoch stands: at the ticket at hand, with so many of its outputs, and all errors before, gone."""
        ticket = self.ticket
        if ticket is None:
            return self._began
        return place_after(self._feeds[-1], ticket, self.taken, len(ticket.breaks) - len(self._faults))

    def place_at(self, ticket: Ticket, taken: int) -> RunPlace:
        """Where it stood when so many outputs of a ticket were gone."""
        return place_after(self._feeds[-1], ticket, taken)

    def start(self) -> RunPlace:
        """Where it began: where its streams stood when they were opened, if they say that."""
        feed = self._feeds[-1]
        if not self.program.head.op.opens or not isinstance(feed, Strands):
            return self._began
        while feed.start is None and self.consistent and not self.ended:
            self._pump()
        return self._began if feed.start is None else RunPlace(feed.start, 0, self._began.skipped)

    def streams(self) -> RunPlace | None:
        """Where the streams that this run only hands on stand now, whatever of them was handed out."""
        feed = self._feeds[-1]
        return RunPlace(feed.now(), 0, self.skipped) if isinstance(feed, Strands) else None

    def mask(self) -> list[bool] | None:
        """Which samples of the batch delivered last are real, where some only fill it."""
        return None if self.ticket is None else self._feeds[-1].mask(self.ticket)

    def abandon(self) -> None:
        """Nobody will ask for more."""
        self.workers.drop(self)
        self._abandoned = self.ended = True
        for window in self._windows:
            for reply in window.values():
                self._discard(reply)
            window.clear()
        blocks = [block for feed in self._feeds for block in feed.blocks()]
        for reply in self._ready:
            if type(reply) is AssembledReply:
                for block in reply.blocks():
                    block.drop()
                    blocks.append(block)
            else:
                self._discard(reply)
        for ticket in self._pending:
            if ticket is not None:
                ticket.release_inputs()
                blocks += ticket.blocks
        for block in blocks:
            block.spend()  # the last ticket in flight that refers to it frees it
        self._ready.clear()
        self._outputs = iter(())
