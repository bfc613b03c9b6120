"""Places: a mark out of a snapshot, checked piece by piece before anything is run from it.

A place is None (the start of the epoch) or `[mark, skip, skipped]`: where the ticket at hand begins, how many of its
outputs are gone, and how many samples have failed before it. A mark is what the feeds write:

    ["p", position]                                          positions
    ["l", number]                                            listed items
    ["s", turn, [[state, block, skip, over], ...]]           strands
    ["r", mark of the stage before, offset, base, number]    regrouped samples

When ops run in the consumer the place is a tree of cursor states, `[emitted, skip, note, turn, inputs]`, with such a
place at its end.
"""

from typing import Any

from headrace.engine.program import Program
from headrace.engine.snapshot import brief
from headrace.errors import SnapshotRefused

LARGEST = 2**63


def check_place(at: Any, program: Program) -> Any:
    """The place, if it can belong to this program."""
    if at is None:
        return None
    if not program.tail:
        return _place(at, program)
    return _tail(at, program, len(program.tail))


def _tail(at: Any, program: Program, depth: int) -> Any:
    if depth == 0:
        return _place(at, program)
    parts = _list(at, 5, "the state of an op")
    inner = _list(parts[4], 1, "the inputs of an op in the consumer")
    return [_count(parts[0]), _count(parts[1]), parts[2], _count(parts[3]), [_tail(inner[0], program, depth - 1)]]


def _place(at: Any, program: Program) -> Any:
    # Under a tail the turn of a cycle stands behind.
    size = 4 if program.tail else 3
    mark, *counts = _list(at, size, "the place of a snapshot")
    checked = None if mark is None else _mark(mark, program, len(program.stages) - 1)
    return (checked, *map(_count, counts))


def _mark(mark: Any, program: Program, stage: int) -> Any:
    feed = program.stages[stage].feed
    letter = {"positions": "p", "listed": "l", "strand": "s", "refs": "r"}[feed]
    if not isinstance(mark, list) or not mark or mark[0] != letter:
        raise SnapshotRefused(f"the snapshot's place does not fit stage {stage} of this pipe ({feed})")
    if letter in "pl":
        return (letter, _count(_list(mark, 2, "a position")[1]))
    if letter == "r":
        _, inner, offset, base, number = _list(mark, 5, "a place among regrouped samples")
        return ("r", _mark(inner, program, stage - 1), _count(offset), _count(base), _count(number))
    _, turn, strands = _list(mark, 3, "a place in strands")
    if not isinstance(strands, list) or not strands:
        raise SnapshotRefused("the snapshot's strands are not a list")
    if len(strands) != program.strands:
        raise SnapshotRefused(
            f"the snapshot was taken with strands={len(strands)}; make the loader with that, not {program.strands}"
        )
    return ("s", _count(turn), [_strand(s, program) for s in strands])


def _strand(strand: Any, program: Program) -> Any:
    state, block, skip, over = _list(strand, 4, "a strand")
    if not isinstance(over, bool):
        raise SnapshotRefused(f"a strand of the snapshot says {over!r} where true or false is expected")
    return (None if state is None else _cursor(state, program.head), _count(block), _count(skip), over)


def _cursor(state: Any, node: Any) -> Any:
    emitted, skip, note, turn, inputs = _list(state, 5, f"the state of {node.op.name()}")
    inputs = _list(inputs, len(node.inputs), f"the inputs of {node.op.name()}")
    if not node.op.accepts(note):
        raise SnapshotRefused(
            f"{node.op.name()} never notes {brief(note)}: this snapshot is damaged, or of another pipe"
        )
    below = [_cursor(s, n) for s, n in zip(inputs, node.inputs, strict=True)]
    return [_count(emitted), _count(skip), note, _count(turn), below]


def _list(value: Any, size: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != size:
        raise SnapshotRefused(f"{what} is not a list of {size}, but {brief(value)}")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST:
        raise SnapshotRefused(f"a whole number >= 0 is expected in the snapshot, not {brief(value)}")
    return value
