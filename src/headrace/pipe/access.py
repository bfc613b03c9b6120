"""Random access through a graph: from the sources up, as far as every op offers it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.op import Each, Flat, Here, Indexed, Many, place, timed

if TYPE_CHECKING:
    from headrace.pipe.cursor import Opening
    from headrace.pipe.graph import Pipe


def random_access(node: "Pipe[Any]", opening: "Opening", turn: int, paired: bool = False) -> Indexed | None:
    """Random access to the samples of a node, in one of its turns, or None.

    `paired`: an op further on pairs these samples with others, so nothing is left out of one of them.
    """
    below = []
    for source in node.inputs:
        inner = (gathered if node.op.gathers else random_access)(source, opening, turn, paired or node.op.pairs)
        if inner is None:
            return None
        below.append(inner)
    here = opening.here(node, turn, paired)
    found = node.op.index(tuple(below), here)
    if found is not None:
        if here.clock is not None and found not in below:
            _time(found, here)
        # A length that does not follow from those of the inputs follows from the order: documents that are packed.
        found.varies = node.op.length(tuple(None if one.varies else one.length for one in below)) is None
        found.again = lambda next_turn: random_access(node, opening, next_turn, paired) or found
    return found


def _time(found: Indexed, here: Here) -> None:
    """Measure how long the op takes, in every way that it can be asked."""
    found.get = timed(found.get, here)
    found.take = None if found.take is None else timed(found.take, here)
    found.many = None if found.many is None else timed(found.many, here)
    found.ahead = None if found.ahead is None else found.ahead._replace(now=timed(found.ahead.now, here))


def gathered(node: "Pipe[Any]", opening: "Opening", turn: int, paired: bool = False) -> Indexed | None:
    """Random access to lists: what filters and flatmaps made of each sample of the last node with random access."""
    plain = random_access(node, opening, turn, paired)
    if plain is not None:
        fetch = plain.get
        found = Indexed(plain.length, lambda position: [fetch(position)])
        found.lengths, found.varies, found.ahead = plain.lengths, plain.varies, plain.ahead
        if (fetch_many := plain.many) is not None:
            found.many = lambda positions: [[sample] for sample in fetch_many(positions)]
        return found
    op = node.op
    if not isinstance(op, Each | Flat) or op.coarse or op.consumer:
        return None
    below = gathered(node.inputs[0], opening, turn, paired)
    if below is None:
        return None
    here, get_below = opening.here(node, turn, paired), below.get
    made = timed(op.spread if isinstance(op, Flat) else lambda sample: (op.apply(sample),), here)

    def get(position: int) -> list[Any]:
        out: list[Any] = []
        for sample in get_below(position):
            place.at(here, position)
            try:
                out.extend(made(sample))
            except Exception as error:
                here.spot.skip(here, position, error)
        return out

    found = Indexed(below.length, get)
    found.varies, found.ahead = below.varies, below.ahead
    if isinstance(op, Each) and op.together:
        found.many = _many(op, below, here)
    return found


def _many(op: Each[Any, Any], below: Indexed, here: Here) -> Many:
    """What an op makes of all lists at these positions in one call."""
    get_below, many_below, apply_all = below.get, below.many, timed(op.apply_all, here)

    def many(positions: Sequence[int]) -> list[list[Any]]:
        lists = [get_below(position) for position in positions] if many_below is None else many_below(positions)
        place.at(here, positions[0])
        made = iter(apply_all([sample for samples in lists for sample in samples]))
        return [list(islice(made, len(samples))) for samples in lists]

    return many


def has_random_access(data: object) -> bool:
    """Whether samples of `data` can be had by their number."""
    if isinstance(data, Mapping | set | frozenset | Iterator):
        return False
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return False
    # torch's IterableDataset inherits a __getitem__ that only raises; what iterates by itself is a stream.
    return not any(c.__name__ == "IterableDataset" for c in type(data).__mro__)
