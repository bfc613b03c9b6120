"""Ahead: what an op tells its source of the samples that come next.

ahead(positions)          these are asked for now: a source that reads many samples in one call reads them
ahead.later(positions)    these are asked for after them: a source that fetches what it reads may begin to
"""

from collections.abc import Callable, Iterable, Sequence

from headrace.op import Indexed, Upcoming


def ahead_of(inner: Indexed, wanted: Callable[[Sequence[int]], Iterable[int]]) -> Upcoming | None:
    """`ahead` of an op over one input: `wanted(positions)` are the positions of the input that it asks for."""
    ahead = inner.ahead
    if ahead is None:
        return None
    now, later = ahead.now, ahead.later
    return Upcoming(
        lambda positions: now(list(wanted(positions))),
        None if later is None else lambda positions: later(list(wanted(positions))),
        ahead.look,
    )


def ahead_in(inputs: Iterable[Indexed], find: Callable[[int], Iterable[tuple[Indexed, int]]]) -> Upcoming | None:
    """`ahead` of an op over several inputs: `find(position)` are the inputs that it asks, and for which position."""
    known = [inner.ahead for inner in inputs if inner.ahead is not None]
    if not known:
        return None

    def sorted_by_input(positions: Sequence[int]) -> Iterable[tuple[Upcoming, list[int]]]:
        wanted: dict[Indexed, list[int]] = {}
        for position in positions:
            for inner, place in find(position):
                wanted.setdefault(inner, []).append(place)
        return [(inner.ahead, places) for inner, places in wanted.items() if inner.ahead is not None]

    def now(positions: Sequence[int]) -> None:
        for ahead, places in sorted_by_input(positions):
            ahead(places)

    def later(positions: Sequence[int]) -> None:
        for ahead, places in sorted_by_input(positions):
            if ahead.later is not None:
                ahead.later(places)

    return Upcoming(now, later if any(ahead.later for ahead in known) else None, max(ahead.look for ahead in known))
