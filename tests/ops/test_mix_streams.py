"""Mixtures of streams follow the stages as mixtures of lists do, though ends are noticed only when they are reached."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe
from headrace.errors import BadOption, NoLength
from headrace.plan.mixture import BLOCK
from tests.depth import depth

Weights = tuple[int, ...]
Sample = tuple[int, int]
MOST = 3 * BLOCK


class Stream:
    """Samples that can only be read in order."""

    def __init__(self, name: int, length: int) -> None:
        self.name, self.length = name, length

    def __iter__(self) -> Iterator[Sample]:
        return iter([(self.name, i) for i in range(self.length)])


def mixed(lengths: list[int], stages: dict[int, Weights], ends: Any, streams: set[int]) -> list[Sample]:
    """What a mixture of these inputs gives, of which some are streams."""
    pipes: list[Any] = [
        Pipe.of(Stream(name, length) if name in streams else list(Stream(name, length)))
        for name, length in enumerate(lengths)
    ]
    later = {start: weights for start, weights in stages.items() if start}
    pipe = pipes[0].mix(*pipes[1:], weights=stages[0], stages=later, ends=ends)
    return list(islice(iter(Loader(pipe, seed=3)), MOST + 1))


def check_rule(samples: list[Sample], lengths: list[int], stages: dict[int, Weights]) -> None:
    """Every sample comes from a source that has a weight where it stands; a stage of which nothing is left is replaced
    by the next one, and where none is left the mixture ends."""
    coming = sorted(stages)
    given = [0] * len(lengths)
    now = coming.pop(0)
    for position, sample in enumerate([*samples, None]):
        while coming and (
            coming[0] <= position or not any(w and g < n for w, g, n in zip(stages[now], given, lengths, strict=True))
        ):
            now = coming.pop(0)
        alive = [bool(w and g < n) for w, g, n in zip(stages[now], given, lengths, strict=True)]
        if sample is None:
            assert not any(alive), f"ends at {position} though {alive} have a weight and samples"
        else:
            source, number = sample
            assert alive[source], f"sample {position} is of source {source}, of {alive}"
            assert number == given[source]
            given[source] += 1


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], dict[int, Weights]]:
    count = draw(st.integers(2, 3))
    lengths = draw(st.lists(st.sampled_from([0, 1, 5, 10, 40, 700]), min_size=count, max_size=count))
    weights = st.lists(st.sampled_from([0, 1, 2, 5]), min_size=count, max_size=count).filter(any).map(tuple)
    starts = {0} | draw(st.sets(st.sampled_from([1, 4, 20, 100, BLOCK, 1500]), max_size=3))
    return lengths, {start: draw(weights) for start in sorted(starts)}


@settings(max_examples=depth(60, 1000), deadline=None)
@given(cases(), st.sets(st.integers(0, 2), min_size=1))
def test_streams_follow_the_rule_that_lists_follow(case: Any, streams: set[int]) -> None:
    lengths, stages = case
    in_lists, in_streams = mixed(lengths, stages, "drop", set()), mixed(lengths, stages, "drop", streams)
    check_rule(in_lists, lengths, stages)
    check_rule(in_streams, lengths, stages)
    if all(stages[max(stages)]):
        assert sorted(in_lists) == sorted(in_streams)


@settings(max_examples=depth(40, 500), deadline=None)
@given(cases())
def test_streams_and_lists_are_one_order_as_long_as_no_source_has_ended(case: Any) -> None:
    lengths, stages = case
    plenty = [length + MOST for length in lengths]
    for ends in ("drop", "first", "forever"):
        assert mixed(plenty, stages, ends, set())[:MOST] == mixed(plenty, stages, ends, {0, 1, 2})[:MOST]


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.length


def counted(make: Any) -> Any:
    """A length, or the error that there is instead."""
    try:
        return make()
    except (NoLength, BadOption) as error:
        return type(error)


@settings(max_examples=depth(150, 2000), deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 3, 20]), min_size=2, max_size=3),
    st.lists(st.sampled_from([(1, 1, 1), (3, 1, 2), (1, 5, 0), (0, 1, 1)]), min_size=1, max_size=2),
    st.sampled_from(["first", "all", "drop"]),
    st.sets(st.integers(0, 2)),
    st.integers(0, 3),
)
def test_len_is_how_many_samples_come_or_is_refused(
    lengths: list[int], weights: list[Weights], ends: Any, streams: set[int], epoch: int
) -> None:
    """Where a stream has ended shows only when its next sample is asked for, and when that is depends on the epoch."""
    pipes: list[Any] = [
        Pipe.of(SizedStream(name, length) if name in streams else list(Stream(name, length)))
        for name, length in enumerate(lengths)
    ]
    first, last = weights[0][: len(lengths)], weights[-1][: len(lengths)]
    pipe = pipes[0].mix(*pipes[1:], weights=first, stages={7: last}, ends=ends)

    def count() -> int:
        loader = Loader(pipe, seed=3)
        loader.set_epoch(epoch)
        return len(list(islice(loader, MOST)))  # (where a stream has weight 0 at last, "all" has no end)

    told, come = counted(lambda: len(pipe)), counted(count)
    in_lists = streams.isdisjoint(range(len(lengths)))
    assert told == come if in_lists or told is not NoLength else isinstance(come, int)
    if ends == "drop" and all(last):
        assert told == sum(lengths)


@pytest.mark.parametrize("streams", [set(), {0, 1}], ids=["lists", "streams"])
def test_a_source_that_joins_later_joins_when_the_others_have_ended(streams: set[int]) -> None:
    assert len(mixed([10, 10], {0: (1, 0), 50: (1, 1)}, "drop", streams)) == 20


@pytest.mark.parametrize("streams", [set(), {0, 1, 2}], ids=["lists", "streams"])
def test_a_stage_whose_only_source_has_ended_is_the_end(streams: set[int]) -> None:
    samples = mixed([5, 40, 1], {0: (2, 1, 5), 20: (0, 0, 1)}, "drop", streams)
    assert len(samples) == 20
    assert {0, 2} <= {source for source, _ in samples}


def test_a_mixture_of_streams_goes_on_from_its_note_behind_a_stage_that_was_pulled_forward() -> None:
    def pipe() -> Pipe[Any]:
        return Pipe.of(Stream(0, 10)).mix(Pipe.of(Stream(1, 10)), weights=[1, 0], stages={50: [1, 1]})

    whole = list(Loader(pipe(), seed=3))
    for stop in range(21):
        first = Loader(pipe(), seed=3)
        got = list(islice(iter(first), stop))
        second = Loader(pipe(), seed=3)
        second.load_state_dict(first.state_dict())
        assert got + list(second) == whole
