"""Counted: positions that ranks evaluate in turn, and the batches that follow from how many outputs each has.

    Evaluated        stage 0: the positions of this rank, and those of other ranks whose outputs this one delivers
    counted_groups   stage 1: the outputs of each step, as `plan.counted` deals them

    own positions ──> counts ──round──> counts of all ranks ──> steps ──> a batch of this rank
          └─────────────────────────── outputs ─────────────────────────────────┤
    positions of other ranks, made here once more ───────────────────────────────┘

A rank evaluates ahead of the rounds, and a round is begun as soon as its counts are known, before the steps that it
grants are needed. The place is one for the whole job: it says what is delivered, in any world.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from headrace.engine.feeds.block import Block, Entry
from headrace.engine.feeds.counted_groups import CountedGroups
from headrace.engine.feeds.place import Feed, Place, Setting
from headrace.engine.wire.messages import Reply, Ticket
from headrace.errors import RanksDisagree, SnapshotRefused
from headrace.plan.reach import FAILED, SKIPS, VOID, Reach, Standing
from headrace.plan.world import World

if TYPE_CHECKING:
    from headrace.plan.counted import CountedSteps, Lane, Step

log = logging.getLogger("headrace")
LEAD = 4
"""A round is begun when no more than so many steps are granted and not handed out."""
CHECKED = 8
"""In the first round, so many positions of another rank, and of this one, are made once more, and counts compared."""
LONGEST = 500
"""Characters of an error that are sent to the other ranks."""


@dataclass(frozen=True, slots=True)
class Counted(Place):
    """What of the positions is delivered; `passed`: so many outputs more, in the order of positions."""

    label: ClassVar[str] = "a place among counted positions"
    kind: ClassVar[str] = "counted"
    feed: ClassVar[str] = "positions"
    reached: tuple[Reach, ...] = ()
    passed: int = 0

    def check(self) -> None:
        if any(reach.residue >= reach.ranks for reach in self.reached):
            raise SnapshotRefused("a rank of the snapshot is none of its ranks")

    def describe(self) -> str:
        lowest = min(self.reached or (Reach(),), key=lambda reach: reach.position)
        more = self.passed + (lowest.outputs if len(self.reached) == 1 else 0)
        words = f"position {lowest.position}" + (f" + {more} outputs" if more else "")
        return (
            words if len(self.reached) < 2 else f"{words}, and what {len(self.reached)} ranks have delivered above it"
        )

    def inputs(self, world: World) -> int:
        return min((reach.position for reach in self.reached), default=0) // world.share_ranks

    def open(self, setting: Setting, stage: int, source: Feed | None) -> Feed:
        raise AssertionError("it needs the counts of all ranks, so sharing opens it")

    def at_one_position(self) -> Reach | None:
        """The position below which everything is delivered, and its outputs that are, if nothing above it is."""
        if self.passed or any(reach.ranks > 1 for reach in self.reached) or len(self.reached) > 1:
            return None
        return self.reached[0] if self.reached else Reach()


class Answer(Protocol):
    """What all ranks give to one round, by rank: numbers and a text."""

    @property
    def answered(self) -> bool: ...
    def wait(self) -> Sequence[tuple[list[int], bytes]]: ...


class Evaluated(Feed):
    """The positions that this rank evaluates."""

    def __init__(
        self,
        steps: "CountedSteps",
        lane: "Lane",
        ranks: int,
        rank: int,
        tell: Callable[[list[int], bytes], Answer] | None,
        epoch: int,
        block: int,
        batch: Callable[[int], tuple[int, int, tuple[int, ...]]] | None,
        checks: bool,
        ops: str,
        group: int | None,
    ) -> None:
        """`lane`: the positions of this rank. `tell` begins a round; None: this process evaluates all positions, for
        every rank. `batch`: of a head in batches, where a position is one of them, the samples of that. `ops`: those
        that decide how many outputs there are. `group`: the outputs of a group, where a batch is made of groups."""
        self.steps = steps
        self.groups = CountedGroups(self, group)
        self.made_twice = 0
        """Positions of other ranks that were made here once more."""
        self._lane, self._ranks, self._rank, self._tell = lane, ranks, rank, tell
        self.epoch, self._block, self._batch = epoch, 1 if batch else block, batch
        self._ops = ops
        self._trouble: Exception | None = None
        """Why no more rounds can be made."""
        self._round: Answer | None = None
        """The round that is under way."""
        self._counts: deque[int] = deque()
        """Of positions of this rank that are evaluated and not told."""
        self._handed_out = self._told = 0
        self._checks: dict[int, int] | None = {} if tell is None or not checks else None
        """By position of another rank: its count here, once it is known. None: they are not chosen yet."""
        self._to_check: deque[int] = deque()
        self._unchecked = 0
        self._again: deque[int] = deque()
        """Positions of other ranks to be made."""
        self._asked: set[int] = set()
        """Those that are made, or will be."""
        self._kinds: dict[Ticket, str] = {}
        """What tickets are for that are not for this rank's own positions: "again", "check" or "repeat"."""
        self._made: dict[int, tuple[Block, int, int]] = {}
        """By position: where its outputs are, and how many. This rank may have to deliver them."""
        self._uses: Counter[Block] = Counter()
        """How many positions of a block are there."""
        self._errors: dict[int, BaseException] = {}
        """By position: what it failed with here."""
        self._texts: dict[int, str] = {}
        """By rank: the error that it has told."""
        self._repeated: list[tuple[Block, int]] = []
        """The first outputs of the epoch, which fill batches."""
        self._repeat_next = self._repeat_wanted = 0

    # --- tickets ------------------------------------------------------------------------------------------------------

    def next(self, owner: object) -> Ticket | None:
        self.look()
        kind, positions = self._choose()
        if not positions:
            self.ended = self.steps.over and not self._kinds and not self._repeat_wanted
            return None
        payload = (0, 0, tuple(positions)) if self._batch is None else self._batch(positions[0])
        ticket = Ticket(owner, 0, self.epoch, positions[0], payload)
        if kind:
            self._kinds[ticket] = kind
        return ticket

    def _choose(self) -> tuple[str, list[int]]:
        """The positions to make next, and what for."""
        block = self._block
        if self._checks is None and not self.steps.over:
            self._choose_checks()
        # (Checks come after this rank's own first positions: what remembers has something to remember by then.)
        if self._again or (self._to_check and self._handed_out >= len(self._wanted())):
            kind, queue = ("again", self._again) if self._again else ("check", self._to_check)
            positions = [queue.popleft() for _ in range(min(block, len(queue)))]
            self.made_twice += len(positions)
            return kind, positions
        if self._repeat_wanted and "repeat" not in self._kinds.values():
            first, self._repeat_next = self._repeat_next, self._repeat_next + block
            return "repeat", list(range(first, min(first + block, self.steps.length)))
        if self.steps.over:
            return "", []
        many, ahead = len(self._wanted()), self._handed_out - self._told
        room = many + max(many, block) - ahead
        if many and not ahead:
            room = many  # (the first round of an epoch is short)
        mine = self._lane.ahead(min(room, block), self.steps.length).tolist() if room > 0 else []
        self._lane.take(len(mine))
        self._handed_out += len(mine)
        return "", mine

    def _wanted(self) -> Any:
        """The positions of this rank whose counts the next round is about."""
        return self.steps.wanted()[0 if self._tell is None else self._rank]

    def _choose_checks(self) -> None:
        """The last positions of the next rank, and of this one, in the first round."""
        wanted = self.steps.wanted()
        chosen = [p for rank in (self._rank + 1, self._rank) for p in wanted[rank % self._ranks][-CHECKED:].tolist()]
        self._checks, self._unchecked = {}, len(chosen)
        self._to_check.extend(chosen)

    # --- results ------------------------------------------------------------------------------------------------------

    def entries(self, reply: Reply, block: Block) -> Iterator[Entry]:
        """Take note of the outputs; those of a step are handed on by `groups`."""
        kind = self._kinds.pop(reply.ticket, "")
        counts = self._codes(reply, kind == "check")
        at = 0
        for position, code in counts:
            many = _count(code)
            if kind == "repeat":
                self._repeated += [(block, at + i) for i in range(many)]
                self._uses[block] += many
            elif many and kind != "check":
                self._made[position] = (block, at, many)
                self._uses[block] += 1
            at += many
        if not kind:
            self._counts.extend(code for _, code in counts)
        elif kind == "check":
            assert self._checks is not None
            self._checks.update(counts)
            self._unchecked -= len(counts)
        elif kind == "repeat" and (
            len(self._repeated) >= self._repeat_wanted or self._repeat_next >= self.steps.length
        ):
            self._repeat_wanted = 0
        if not self._uses[block]:
            del self._uses[block]
            block.spend()
        self.look()
        return iter(())

    def _codes(self, reply: Reply, check: bool) -> list[tuple[int, int]]:
        """The positions of a ticket, and what is told of each: how many outputs it has, and how many were left out."""
        ticket = reply.ticket
        positions = ticket.payload[2] if self._batch is None else (ticket.number,)
        if reply.counts is not None and self._batch is None:
            codes = list(reply.counts)
        else:
            codes = [1] * len(positions) if self._batch is None else [reply.count or 0]
        faults = [error for *_, error in reply.faults]
        if faults and FAILED not in codes:  # the ticket has failed as a whole
            codes = [VOID if check else FAILED] + [VOID] * (len(codes) - 1)
        failed = [position for position, code in zip(positions, codes, strict=True) if code == FAILED]
        if not check:
            self._errors.update(zip(failed, faults, strict=False))
        for position, *_ in reply.skipped:
            index = positions.index(position) if self._batch is None else 0
            codes[index] += (1 << SKIPS) * (codes[index] >= 0)
        return list(zip(positions, codes, strict=True))

    # --- rounds -------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take the answer of the round that is under way, if it is there, and begin the next one when it can be."""
        if self._round is not None and self._round.answered:
            self._take_answer()
        if self._trouble is not None:
            return
        while self._round is None and not self.steps.over and len(self.steps.steps) <= LEAD:
            many = len(self._wanted())
            if len(self._counts) < many or self._checks is None or self._unchecked:
                return
            numbers = [self._counts.popleft() for _ in range(many)]
            self._told += many
            if self._tell is None:
                self._absorb([numbers])
                continue
            failed = next((e for p, e in self._errors.items() if p % self._ranks == self._rank), None)
            text = f"{type(failed).__name__}: {failed}"[:LONGEST] if FAILED in numbers else ""
            self._round = self._tell([*numbers, *self._checks.values()], text.encode())

    def await_ranks(self) -> bool:
        """Wait for the answer of the round that is under way, if nothing can be handed out without it; else False."""
        if self.steps.steps:
            return False
        if self._trouble is not None:
            raise self._trouble
        if self._round is None:
            return False
        self._take_answer()
        self.look()
        return True

    def _take_answer(self) -> None:
        assert self._round is not None
        try:
            told = self._round.wait()
            self._round = None
            self._note(told)
        except Exception as error:  # (it is raised when the steps that are granted are made)
            self._round, self._trouble = None, error

    def _note(self, told: Sequence[tuple[list[int], bytes]]) -> None:
        for rank, (_, text) in enumerate(told):
            if text:
                self._texts[rank] = text.decode(errors="replace")
        if self._checks:
            self._compare([numbers for numbers, _ in told])
        self._checks = {}
        wanted = self.steps.wanted()
        self._absorb([numbers[: len(asked)] for (numbers, _), asked in zip(told, wanted, strict=True)])

    def _absorb(self, told: list[list[int]]) -> None:
        """Take the counts of all ranks, and ask for what the steps that they grant need of other ranks' positions."""
        known = len(self.steps.steps)
        self.steps.absorb(told)
        for step in islice(self.steps.steps, known, None):
            if step.filled and step.fill_from is None:
                self._repeat_wanted = step.fill_start + step.filled
            if self._tell is None:
                continue
            for position in (*step.positions, *(step.fill_from or ())[:1] * bool(step.filled)):
                if position % self._ranks != self._rank and position not in self._asked:
                    self._asked.add(position)
                    self._again.append(position)

    def _compare(self, rows: list[list[int]]) -> None:
        """Raise, on all ranks, where two ranks have made different numbers of outputs of one position."""
        wanted = self.steps.wanted()
        for rank, row in enumerate(rows):
            checked = row[len(wanted[rank]) :]
            for owner in ((rank + 1) % self._ranks, rank):
                asked = wanted[owner][-CHECKED:].tolist()
                theirs = rows[owner][len(wanted[owner]) - len(asked) : len(wanted[owner])]
                here, checked = checked[: len(asked)], checked[len(asked) :]
                for position, one, other in zip(asked, theirs, here, strict=True):
                    if one == other or min(one, other) < 0:  # (an error may be that of a moment)
                        continue
                    again = " when it is made once more" * (owner == rank)
                    how = f"{_outputs(one)} on rank {owner} and {_outputs(other)} on rank {rank}{again}"
                    raise self._differs(position, how)

    def _differs(self, position: int, how: str) -> RanksDisagree:
        return RanksDisagree(
            f"position {position} has {how}: {self._ops} does not decide by the sample alone. It remembers what it has "
            "seen, or draws from a generator of its own (headrace.rng() is keyed by the sample); ranks cannot share "
            "such an epoch"
        )

    # --- outputs ------------------------------------------------------------------------------------------------------

    def find(self, step: "Step") -> list[tuple[Block, int, int]] | BaseException | None:
        """Where the outputs of a step are, as stretches of blocks; None: not all are made; an error: they cannot be."""
        refs: list[tuple[Block, int, int]] = []
        wanted = list(zip(step.positions, step.outputs, strict=True))
        if step.filled and step.fill_from is not None:
            wanted += [step.fill_from] * step.filled
        elif step.filled:
            if self._repeat_wanted:
                return None
            places = [self._repeated[(step.fill_start + i) % len(self._repeated)] for i in range(step.filled)]
            refs = [(block, at, at + 1) for block, at in places]
        found: list[tuple[Block, int, int]] = []
        for position, output in wanted:
            made = self._made.get(position)
            if made is None or output >= made[2]:
                if position in self._errors and position % self._ranks != self._rank:
                    return self._errors[position]
                if made is None and position in self._asked and self._is_coming(position):
                    return None
                return self._differs(position, f"{_outputs(0 if made is None else made[2])} here and more on its rank")
            block, first, _ = made
            if found and found[-1][0] is block and found[-1][2] == first + output:
                found[-1] = (block, found[-1][1], first + output + 1)
            else:
                found.append((block, first + output, first + output + 1))
        return found + refs

    def _is_coming(self, position: int) -> bool:
        return position in self._again or any(
            kind == "again" and position in ([t.number] if self._batch else t.payload[2])
            for t, kind in self._kinds.items()
        )

    def error_of(self, step: "Step") -> BaseException:
        """The error in place of a step: this rank's own, or that of the rank on which it happened."""
        assert step.failed is not None
        rank, position = step.failed
        if (rank == self._rank or self._tell is None) and position in self._errors:
            return self._errors.pop(position)
        return RuntimeError(f"another rank failed (rank {rank}: {self._texts.get(rank)}); what it printed says more")

    def drop(self, standing: Standing) -> None:
        """What is delivered by then is needed no more."""
        everyone = max((reach.position for reach in standing.reached if reach.ranks == 1), default=0)
        below = [everyone] * self._ranks
        for residue, ranks, position, _ in standing.reached:
            if ranks == self._ranks:
                below[residue] = max(below[residue], position)
        gone = [p for p in self._asked if p < below[p % self._ranks]]
        self._asked.difference_update(gone)
        for position in self._made:  # in order, but for those of other ranks
            if position >= below[position % self._ranks] and position not in self._asked:
                break
            if position not in self._asked:
                gone.append(position)
        for position in dict.fromkeys(gone):
            if (made := self._made.pop(position, None)) is None:
                continue
            self._uses[made[0]] -= 1
            if not self._uses[made[0]]:
                del self._uses[made[0]]
                made[0].spend()

    def note_end(self) -> None:
        """Every step is handed out."""
        if self.steps.single and self.steps.left_out and self._rank == 0:
            log.warning(
                "%d samples are left out at the end of the epoch: not every one of the %d ranks can have one more",
                self.steps.left_out, self._ranks,
            )  # fmt: skip

    def blocks(self) -> list[Block]:
        return list(self._uses)

    def at(self, mark: object) -> Place:
        assert isinstance(mark, Standing)
        return Counted(mark.reached)


def _count(code: int) -> int:
    """How many outputs a position has, of which this is told."""
    return 0 if code < 0 else code & (1 << SKIPS) - 1


def _outputs(code: int) -> str:
    many = _count(code)
    return f"{many} output" + "s" * (many != 1)
