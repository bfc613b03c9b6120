"""Ahead: what an op over a source that reads many samples in one call tells it of the samples that come next."""

from collections.abc import Callable, Iterable, Sequence

from headrace.op import Indexed

Ahead = Callable[[Sequence[int]], None]


def ahead_of(inner: Indexed, wanted: Callable[[Sequence[int]], Iterable[int]]) -> Ahead | None:
    """`ahead` of an op over one input: `wanted(positions)` are the positions of the input that it asks for."""
    ahead = inner.ahead
    return None if ahead is None else lambda positions: ahead(list(wanted(positions)))


def ahead_in(inputs: Iterable[Indexed], find: Callable[[int], Iterable[tuple[Indexed, int]]]) -> Ahead | None:
    """`ahead` of an op over several inputs: `find(position)` are the inputs that it asks, and for which position."""
    if all(inner.ahead is None for inner in inputs):
        return None

    def ahead(positions: Sequence[int]) -> None:
        wanted: dict[Indexed, list[int]] = {}
        for position in positions:
            for inner, place in find(position):
                wanted.setdefault(inner, []).append(place)
        for inner, places in wanted.items():
            if inner.ahead is not None:
                inner.ahead(places)

    return ahead
