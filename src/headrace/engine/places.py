"""Places: a mark out of a snapshot, checked piece by piece before anything is run from it.

A place is None (the start of the epoch) or `[mark, skip, skipped]`: where the ticket at hand begins, how many of its
outputs are gone, and how many samples have failed before it. A mark is what the feeds write:

    ["p", position]                                          positions; ["p", position, size] inside a block of these
    ["l", number]                                            listed items
    ["s", turn, [[state, block, skip, over], ...]]           strands
    ["r", mark of the stage before, offset, base, number]    regrouped samples
    ["j", behind, [start, levels, atoms], block, [[tickets, gone], ...]]     positions taken in turn (see `turns`)
    ["d", finished ranges, parts]                            blocks that ranks took from a counter (see `dynamic`)

When ops run in the consumer the place is a tree of cursor states, `[emitted, skip, note, turn, inputs]`, with such a
place at its end. Where ranks vote, the place of the job may be `["w", steps, [place of each rank]]` (see `voting`).
"""

from typing import Any

from headrace.engine.program import Program
from headrace.engine.snapshot import brief
from headrace.engine.turns import Rest
from headrace.errors import SnapshotRefused

LARGEST = 2**63
MANY = 2**20
"""More positions than one ticket ever has."""


def check_place(at: Any, program: Program) -> Any:
    """The place, if it can belong to this program."""
    if at is None:
        return None
    if isinstance(at, list) and at and at[0] == "w":
        _, steps, places = _list(at, 3, "the place of a job")
        if not isinstance(places, list) or not places:
            raise SnapshotRefused("the places of the ranks are not a list")
        return ("w", _count(steps), [_tail(place, program, len(program.tail)) for place in places])
    return _tail(at, program, len(program.tail))


def check_done(at: Any) -> Any:
    """The place, if it is one of dynamic sharding."""
    if at is None:
        return None
    mark, gone, skipped = _list(at, 3, "the place of a snapshot")
    if mark is None:
        return None
    if isinstance(mark, list) and mark[:1] == ["p"] and not gone:
        # Taken with static sharding, which had come to one position everywhere.
        mark = ["d", [[0, _list(mark, 2, "a position")[1]]] if mark[1:] != [0] else [], []]
    if not isinstance(mark, list) or not mark or mark[0] != "d":
        raise SnapshotRefused(
            "this snapshot was not taken with sharding='dynamic': make the loader with sharding='static'"
        )
    _, finished, parts = _list(mark, 3, "the blocks of a snapshot")
    checked = [_list(part, 2, "a block of which some samples are delivered") for part in _some(parts)]
    if not all(ranges for ranges, _ in checked):
        raise SnapshotRefused("a block of the snapshot is empty")
    done = ("d", _ranges(finished), tuple((_ranges(ranges), _count(skip)) for ranges, skip in checked))
    return done, _count(gone), _count(skipped)


def _ranges(value: Any) -> tuple[tuple[int, int], ...]:
    found = tuple((_count(start), _count(stop)) for start, stop in (_list(r, 2, "a range") for r in _some(value)))
    if any(start >= stop for start, stop in found):
        raise SnapshotRefused("a range of the snapshot ends before it begins")
    return found


def _some(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise SnapshotRefused(f"a list is expected in the snapshot, not {brief(value)}")
    return value


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
    if isinstance(mark, list) and mark and mark[0] == "d":
        raise SnapshotRefused("this snapshot was taken with sharding='dynamic': make the loader with that")
    if feed == "positions" and program.stages[stage].group is None and isinstance(mark, list) and mark[:1] == ["j"]:
        return _turns(mark)
    if not isinstance(mark, list) or not mark or mark[0] != letter:
        raise SnapshotRefused(f"the snapshot's place does not fit stage {stage} of this pipe ({feed})")
    if letter == "p" and len(mark) == 3:
        return ("p", *_numbers(mark[1:], 2, "a position"))
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


def _turns(mark: list[Any]) -> Any:
    _, behind, rest, block, progress = _list(mark, 5, "a place in turns")
    start, levels, atoms = _list(rest, 3, "what is left of an epoch")
    counts = tuple(tuple(_count(given) for given in _some(level)) for level in _some(levels))
    begun = tuple(
        (tuple(_numbers(piece, 3, "a piece of a ticket") for piece in _some(pieces)), _count(skip))
        for pieces, skip in (_list(atom, 2, "a ticket that was begun") for atom in _some(atoms))
    )
    ranks = tuple(_numbers(rank, 2, "the progress of a rank") for rank in _some(progress))
    if (
        not ranks
        or not all(counts)
        or not all(pieces for pieces, _ in begun)
        or not all(count and stride for pieces, _ in begun for _, stride, count in pieces)
    ):
        raise SnapshotRefused("the turns of the snapshot are empty")
    if not 0 < _count(block) <= MANY or any(sum(c for _, _, c in pieces) > MANY for pieces, _ in begun):
        raise SnapshotRefused("a block of the snapshot is empty, or too large to be one")
    return ("j", _count(behind), Rest(_count(start), counts, begun), block, ranks)  # type: ignore[arg-type]


def _numbers(value: Any, size: int, what: str) -> tuple[int, ...]:
    return tuple(_count(number) for number in _list(value, size, what))


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
