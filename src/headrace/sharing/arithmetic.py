"""Ranks share by arithmetic: each works out its part, and how many steps all will make, without communication.

`Sharing` is also the base of the other kinds: it has every method that a loader calls.
"""

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from headrace.engine.epoch import Epoch, Start
from headrace.engine.feeds.counted import Counted
from headrace.engine.feeds.place import Setting, chain
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, JobPlace, RunPlace, plain_epoch_place
from headrace.engine.plain import Json
from headrace.engine.policy import Policy
from headrace.engine.program import Program
from headrace.errors import BadOption, NoLength, SnapshotRefused
from headrace.op import Each
from headrace.ops.shape.batch import Batch
from headrace.pipe.graph import Pipe
from headrace.plan.share import Share, deal
from headrace.plan.world import World
from headrace.ranks.agree import Agreement
from headrace.sharing.worlds import in_world

log = logging.getLogger("headrace")


@dataclass(eq=False)
class Sharing:
    """Ranks share by arithmetic."""

    program: Program
    _pipe: Pipe[Any]
    _world: World
    _ends: str
    _timeout: float
    _agreement: Agreement | None = field(default=None, init=False)
    _verified: bool = field(default=False, init=False)
    exchanges: ClassVar[bool] = False
    """Ranks tell each other while an epoch runs how far they are."""
    each_by_itself: ClassVar[bool] = False
    """A place of this job is a `JobPlace`."""

    def check(self, at: EpochPlace | None) -> EpochPlace | None:
        """The place of a snapshot, translated for this world, if it fits; the program may get another stage for it."""
        if isinstance(at, JobPlace):
            if len(at.ranks) != self._world.share_ranks:
                self._refuse(len(at.ranks))
            if not self.each_by_itself:
                raise SnapshotRefused("the snapshot is of ranks that each stood by itself; those of this pipe do not")
            return at.fit(self.program)
        if at is None:
            return None
        if at.ahead is not None and self._world.share_ranks > 1:
            raise SnapshotRefused(
                "the snapshot was taken with ordered=False in one process, when some batches had come before their "
                "turn: what is left cannot be shared by arithmetic; finish the epoch there, or use ordered=True"
            )
        if _is_counted(at):
            from headrace.sharing import counting

            plain = counting.uncounted_place(at, self.program)
            if plain is None and self._world.share_ranks == 1:
                self.program = counting.with_pass_through(self.program)
            at = plain or at
        if self.program.steps_known:
            at = in_world(at, self.program, self._world)
        return at.fit(self.program)

    def is_over(self, epoch: int, at: EpochPlace | None) -> bool:
        """Whether nothing of an epoch is left after this place, as far as arithmetic can tell."""
        if not isinstance(at, RunPlace) or at.place is None or at.gone or at.ahead or at.ops:
            return False
        first, *later = chain(at.place)
        if not isinstance(first, Position) or any(isinstance(p, Regrouped) and p.offset for p in later):
            return False
        setting = Setting(self.program, Policy(), epoch, self._world, self._ends, lambda slot: None)
        return first.open(setting, 0, None).next(None) is None

    def first(self, number: int) -> int:
        """The number that rank 0 has, on all ranks (without a connection: this rank's). All call it before an epoch."""
        self._connect()
        return number if self._agreement is None else self._agreement.broadcast(number)

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        """What the engine of this rank needs to run an epoch from this place on."""
        self._verify(epoch, at)
        return self.alone(epoch, at)

    def alone(self, epoch: int, at: EpochPlace | None) -> Start:
        """The same, without a word to other ranks: for a process that makes the batches of this rank once more."""
        if isinstance(at, JobPlace):
            raise BadOption(
                "this epoch was resumed where ranks had come to different places: its batches cannot be traced from "
                "there; ask for those of an epoch that began at its start"
            )
        if not _is_counted(at):
            return Start(at)
        from headrace.sharing.counting import alone

        return alone(self.program, self._world, self._ends, epoch, at)

    def mask(self, epoch: Epoch[Any]) -> list[bool] | None:
        """Which samples of the batch delivered last are real, where some only fill it."""
        program = self.program
        filling = [s for s in program.stages if s.group and program.ends(s.number, self._ends) in ("pad", "repeat")]
        if not filling:
            return None
        from headrace.ops.order.shuffle import InBatchShuffle  # (here: few ask for masks)

        behind = [node.op for node in (*program.last.nodes, *program.tail)]
        kept = all(isinstance(op, Each) and not isinstance(op, InBatchShuffle) for op in behind)
        if filling != [program.last] or not kept:
            raise BadOption(
                f"with ends={self._ends!r} batches are filled before ops that leave out, regroup or shuffle what they "
                "get, so which samples of the result are real is not known; batch at the end of the pipe, or use "
                "ends='short' or 'drop'"
            )
        return self._last_mask(epoch)

    def _last_mask(self, epoch: Epoch[Any]) -> list[bool] | None:
        return epoch.mask()

    def made_twice(self) -> int:
        """How many positions this rank has made that are another's."""
        return 0

    def forget_epoch(self) -> None:
        """The loader goes to another epoch: the one begun last no longer counts."""

    def after_end(self, epoch: int) -> tuple[int, EpochPlace | None] | None:
        """Epoch and place of the job after this rank has ended an epoch; None: the next epoch begins."""
        return None

    def length(self, epoch: int) -> int:
        """How many batches this epoch has on this rank."""
        program, ranks, rank = self.program, self._world.share_ranks, self._world.share_rank
        total, first = program.pipe.length(), program.stages[0]
        whole = all(isinstance(node.op, Each) for node in program.tail)
        one_each = all(isinstance(node.op, Each) for node in first.ops)
        if program.indexed and len(program.stages) == 1 and whole and (total is not None or one_each):
            samples = program.head.length()
            if samples is None and (planned := program.positions(epoch).length) < ENDLESS:
                samples = planned  # the rows of shuffled documents, for one, are others in every epoch
            if first.balance is not None:
                raise NoLength("how many steps balance() makes at the end of an epoch depends on the lengths there")
            if samples is not None and first.group is not None and first.single:
                return Share(samples, first.group, ranks, rank, program.ends(0, self._ends)).steps
            if samples is not None and first.group is None:
                return len(deal(samples if total is None else total, ranks, rank))
        if total is None or ranks > 1:
            raise NoLength(
                f"the length of this loader is not known in advance: {_decider(program.pipe)} decides it while it "
                "runs; if you know it, say pipe.set_length(n) behind it"
            )
        node = program.pipe
        while isinstance(node.op, Each) and len(node.inputs) == 1:
            node = node.inputs[0]
        if isinstance(node.op, Batch) and program.ends(program.last.number, self._ends) == "drop":
            return total if (samples := node.inputs[0].length()) is None else samples // node.op.size
        return total

    def close(self, wait: bool = True) -> None:
        """End the connections to other ranks. `wait`: if they need something of this process, until they do not."""
        if self._agreement is not None:
            self._agreement.close()

    def _verify(self, epoch: int, at: EpochPlace | None) -> None:
        """Once per loader: ranks that are connected check that they have the same pipe, seed, epoch and snapshot."""
        if self._verified or self._world.ranks == 1:
            return
        self._connect()
        if self._agreement is not None:
            self._agreement.same(self._facts(epoch, at))
        self._verified = True

    def _connect(self) -> None:
        if self._agreement is None:
            self._agreement = Agreement.of(self._world, self._timeout)

    def _facts(self, epoch: int, at: EpochPlace | None) -> dict[str, Any]:
        return {
            "pipe": self._pipe.fingerprint(),
            "seed": self.program.seed,
            "length": self._pipe.length(),
            "batch size": [stage.group for stage in self.program.stages],
            "ends": self._ends,
            "epoch": epoch,
            "snapshot": plain_epoch_place(at) if self.program.indexed else _how_far(at),
        }

    def _refuse(self, ranks: int) -> NoReturn:
        raise SnapshotRefused(
            f"this snapshot was taken on {ranks} ranks, and this loader runs on {self._world.share_ranks}: behind the "
            "place where ranks part this pipe does more than filter, map and batch once, so what each rank held cannot "
            f"be given to others; go on with {ranks} ranks, or start the epoch anew"
        )


def _how_far(at: EpochPlace | None) -> Json:
    """How many samples of a stream are behind a place. (Places of different forms may stand at one sample.)"""
    if not isinstance(at, RunPlace):
        return plain_epoch_place(at)
    if at.ops:
        return at.ops[0].emitted + at.ops[0].skip
    return at.place.base + at.gone * at.place.ranks if isinstance(at.place, Regrouped) else None


def _is_counted(at: EpochPlace | None) -> bool:
    """Whether a place is one of ranks that count."""
    return isinstance(at, RunPlace) and at.place is not None and isinstance(chain(at.place)[0], Counted)


ENDLESS = 1 << 40
"""More samples than any epoch has: a head that says so has no end."""


def _decider(pipe: Pipe[Any]) -> str:
    """The first op whose length is not known, though those of its inputs are."""
    for node in pipe.nodes():
        if node.length() is None and all(source.length() is not None for source in node.inputs):
            return node.op.describe()
    return "the number of ranks"
