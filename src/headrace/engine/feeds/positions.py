"""Positions: the samples of an indexed head, dealt out by arithmetic.

    Batches   whole batches of this rank
    Items     single samples in blocks, where nothing says how many belong together; ranks take them in turn

Both stand at a `Position`. Ranks need not communicate: everything follows from (length, world, start).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.program import Stage
from headrace.engine.wire.messages import Ticket
from headrace.errors import SnapshotRefused, warn_once
from headrace.plan.share import Share, deal
from headrace.plan.world import World


@dataclass(frozen=True, slots=True)
class Position(Place):
    """Everything below `position` is delivered.

    Before a block of single samples, `size` is how many samples the block has, and they lie `ranks` apart: each of so
    many ranks has a block like it.
    """

    label: ClassVar[str] = "a position"
    kind: ClassVar[str] = "positions"
    feed: ClassVar[str] = "positions"
    position: int = 0
    size: int = 0
    ranks: int = 1

    def check(self) -> None:
        if not self.ranks:
            raise SnapshotRefused("the snapshot's position is one of no ranks")

    def describe(self) -> str:
        return f"sample {self.position}"

    def inputs(self, world: World) -> int:
        return self.position // world.share_ranks

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        program = setting.program
        indexed = program.positions(setting.epoch)
        check_inside(self.position, indexed.length)
        if (
            indexed.trouble and setting.world.share_ranks == 1
        ):  # (several ranks divide the units that are open at a time)
            warn_once(indexed.trouble)
        first, ends = program.stages[stage], program.ends(stage, setting.ends)
        if first.balance is not None:
            from headrace.engine.feeds.balanced import balanced

            return balanced(setting, first.balance, indexed, self.position, drops=ends == "drop")
        parts = indexed.parts is not None
        if first.group is None:
            # Where ops decide how many samples there are, ranks tell each other: no position need be left out.
            uneven = not program.one_to_one or program.skips
            return Items(program.block, setting.world, setting.epoch, indexed.length, self.position, parts, uneven)
        return Batches(first, setting.world, ends, setting.epoch, indexed.length, self.position, parts)


def check_inside(position: int, length: int) -> None:
    """Raise if a snapshot stands behind the end of the data."""
    if position > length:
        raise SnapshotRefused(f"the snapshot stands at sample {position}, but there are only {length} now")


class Batches(Feed):
    """Positions of the head, in the batches of this rank. `parts`: the order has parts, and each rank has its own.

    Its marks are numbers of steps.
    """

    def __init__(
        self, stage: Stage, world: World, ends: str, epoch: int, length: int, start: int, parts: bool = False
    ) -> None:
        assert stage.group is not None
        ranks, rank = world.share_ranks, world.share_rank
        self.share = Share(length, stage.group, ranks, rank, ends, start, parts)
        self._before = start // stage.group
        self._epoch = epoch
        self._step = 0

    def next(self, owner: object) -> Ticket | None:
        step, share = self._step, self.share
        if step >= share.steps:
            self.ended = True
            return None
        self._step = step + 1
        # The number of the batch among those of all ranks: random values depend on it, so where ranks take whole
        # batches they are the same in every world.
        number = self._before + step * share.ranks + share.rank
        ticket = Ticket(owner, 0, self._epoch, number, share.block(step).payload())
        ticket.before = step
        ticket.after = step + 1
        return ticket

    def seek(self, output: int) -> int:
        """Go to the ticket that output number `output` of this rank comes from; its index in that ticket."""
        if output >= self.share.steps:
            raise IndexError(self.share.steps)
        self._step = output
        return 0

    def at(self, mark: object) -> Place:
        return Position(self.share.delivered(mark)) if isinstance(mark, int) else super().at(mark)

    def mask(self, ticket: Ticket) -> list[bool] | None:
        block = self.share.block((ticket.number - self._before) // self.share.ranks)
        real = zip(block.positions(), block.mask(), strict=True)
        return [true for position, true in real if position not in ticket.avoid] if block.filled else None


class Items(Feed):
    """Positions of the head, in blocks that mean nothing but convenience; ranks take single items in turn."""

    def __init__(
        self, block: int, world: World, epoch: int, length: int, start: int, parts: bool = False, uneven: bool = False
    ) -> None:
        self._block = block
        self._ranks = world.share_ranks
        self._length = length
        self.positions = deal(length, self._ranks, world.share_rank, start, parts, uneven)
        """All that this rank receives of the epoch from `start` on."""
        self._start = start
        self._epoch = epoch
        self._at = 0

    def next(self, owner: object) -> Ticket | None:
        at, ranks, start = self._at, self._ranks, self._start
        if at >= len(self.positions):
            self.ended = True
            return None
        if ranks == 1:
            # Blocks lie at multiples of their size wherever the epoch goes on from.
            stop = min(at + self._block - (start + at) % self._block, len(self.positions))
            payload: Any = (start + at, start + stop, ())
            number = (start + at) // self._block
        else:
            stop = min(at + self._block, len(self.positions))
            payload = (0, 0, tuple(self.positions[at:stop]))
            number = payload[2][0]
        self._at = stop
        ticket = Ticket(owner, 0, self._epoch, number, payload)
        ticket.before = Position(start + at * ranks, stop - at, ranks)
        ticket.after = Position(min(start + stop * ranks, self._length))
        return ticket

    def seek(self, output: int) -> int:
        if output >= len(self.positions):
            raise IndexError(len(self.positions))
        before = self._start if self._ranks == 1 else 0
        self._at = max(0, output - (before + output) % self._block)
        return output - self._at

    def behind(self, ticket: Ticket, position: int) -> object:
        before, (start, _, extra) = ticket.before, ticket.payload
        assert isinstance(before, Position)
        gone = 1 + (extra.index(position) if extra else position - start)
        stands = min(before.position + gone * before.ranks, self._length)
        return Position(stands, before.size - gone, before.ranks) if gone < before.size else Position(stands)
