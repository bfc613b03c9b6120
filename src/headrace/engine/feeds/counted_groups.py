"""Counted groups: the batches of this rank, cut from what all ranks have counted, as `plan.counted` deals them."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.feeds.place import Groups, Place
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.wire.messages import Reply, Ticket
from headrace.errors import SnapshotRefused
from headrace.plan.reach import Standing

if TYPE_CHECKING:
    from headrace.engine.feeds.counted import Evaluated
    from headrace.plan.counted import Step


class Inside(NamedTuple):
    """A mark inside a step: so many groups of it are gone."""

    before: Standing
    groups: int


class CountedGroups(Groups):
    """The batches of this rank, as all counts say."""

    awaits_ranks = True

    def __init__(self, source: "Evaluated", group: int | None) -> None:
        """`group`: a step is made of groups of so many outputs, which are grouped again; None: it is one batch."""
        self._source, self._group = source, group
        self._parts: deque[Ticket] = deque()
        """What is left of a step that is handed out group by group."""
        self._filled: dict[int, int] = {}
        """By the number of a batch: how many of its samples only fill it."""

    @property
    def backlog(self) -> int:
        return 0  # how far positions are evaluated ahead follows from the rounds

    def push(self, entry: Entry) -> None:
        raise AssertionError("outputs are taken where they are counted")

    def next(self, owner: object) -> Ticket | None:
        source = self._source
        source.look()
        if self._parts:
            return self._parts.popleft()
        steps = source.steps
        if not steps.steps:
            if steps.over and not self.ended:
                self.ended = True
                source.note_end()
            return None
        step = steps.steps[0]
        refs = source.error_of(step) if step.failed else source.find(step)
        if refs is None:
            return None
        steps.steps.popleft()
        ticket = self._cut(owner, step) if self._group and not step.failed else self._ticket(owner, step, refs)
        source.drop(step.after)
        source.look()
        return ticket

    def _ticket(self, owner: object, step: "Step", refs: list[tuple[Block, int, int]] | BaseException) -> Ticket:
        ticket = Ticket(owner, 1, self._source.epoch, step.number, ([], 0, 1))
        ticket.before, ticket.after = step.before, step.after
        ticket.kept, ticket.skips = (step.before.skipped, step.after.skipped), step.after.skipped
        if isinstance(refs, BaseException):
            ticket.error = refs
            return ticket
        numbers = (*step.numbers, *range(step.after.base, step.after.base + step.filled))
        ticket.payload = (refs, numbers, 0)
        ticket.blocks = [block for block, *_ in refs]
        for block in ticket.blocks:
            block.hold()
        if step.filled:
            self._filled[step.number] = step.filled
        return ticket

    def _cut(self, owner: object, step: "Step") -> Ticket:
        """The first group of a step; the others follow."""
        many, size = len(step.positions), self._group or 1
        starts = range(0, many, size)
        for nth, start in enumerate(starts):
            its = slice(start, start + size)
            part = step._replace(
                positions=step.positions[its], outputs=step.outputs[its], numbers=step.numbers[its],
                number=step.number * len(starts) + nth,
            )  # fmt: skip
            refs = self._source.find(part)
            assert isinstance(refs, list)
            ticket = self._ticket(owner, part, refs)
            if nth:
                ticket.before = Inside(step.before, nth)
            if start + size < many:
                ticket.after = Inside(step.before, nth + 1)
            self._parts.append(ticket)
        return self._parts.popleft()

    def entries(self, reply: Reply, block: Block) -> Iterator[Entry]:
        for entry in super().entries(reply, block):
            entry.closes = entry.stop == block.count and isinstance(entry.after, Standing)
            yield entry

    def await_ranks(self) -> bool:
        return self._source.await_ranks()

    def mask(self, ticket: Ticket) -> list[bool] | None:
        filled = self._filled.get(ticket.number)
        if not filled:
            return None
        numbers = ticket.payload[1]
        return [i < len(numbers) - filled for i, number in enumerate(numbers) if number not in ticket.avoid]

    def at(self, mark: object) -> Place:
        if isinstance(mark, Inside):
            raise SnapshotRefused(
                "after an error in a group that is grouped again, this rank stands inside a step of all ranks, which "
                "no snapshot can say; take one before the error, or batch once"
            )
        assert isinstance(mark, Standing)
        return Regrouped(self._source.at(mark), 0, mark.base)
