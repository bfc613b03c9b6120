"""Mixtures: exact shares, random access, stages, ends. Examples are worked out by hand or by a loop beside them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.mixture import NEVER, PERIOD, Ends, Mixture, Schedule, WeightStage, schedule, whole_weights

weights = st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(any).map(tuple)


def by_the_rule(given: tuple[int, ...]) -> list[int]:
    """Tijdeman's rule as it is stated: the reference."""
    period, others = sum(given), max(1, len(given) - 1)
    counts, chosen = [0] * len(given), []
    for k in range(1, period + 1):
        may = [i for i, w in enumerate(given) if w and 2 * others * (w * k - period * counts[i]) >= period]
        urgency = {i: Fraction(-2 * others * (given[i] * k - period * counts[i]), given[i]) for i in may}
        base = {i: Fraction((2 * others - 1) * period, given[i]) for i in may}
        best = min(may, key=lambda i: (urgency[i] + base[i], i))
        counts[best] += 1
        chosen.append(best)
    return chosen


def table(given: tuple[int, ...]) -> Schedule:
    return schedule(given, (0,) * len(given))


def mixture(
    lengths: tuple[int, ...], *stages: tuple[int, tuple[int, ...]], ends: Ends = "first", block: int = 16
) -> Mixture:
    return Mixture(lengths, tuple(WeightStage(*stage) for stage in stages), 7, ends, block)


def everything(made: Mixture, most: int = 10_000) -> list[tuple[int, int]]:
    drawn = made(np.arange(min(made.length, most)))
    return list(zip(drawn.source.tolist(), drawn.number.tolist(), strict=True))


@pytest.mark.parametrize(
    ("given", "expected"),
    [((5, 3, 2), "0102010210"), ((7, 2, 1), "0010020010"), ((2, 1, 1), "0120"), ((1,), "0"), ((0, 3), "111")],
)
def test_a_period_as_it_is_worked_out_by_hand(given: tuple[int, ...], expected: str) -> None:
    assert "".join(map(str, table(given).source)) == expected


@given(weights)
def test_a_period_follows_the_rule_and_every_prefix_has_its_shares(given: tuple[int, ...]) -> None:
    made = table(given)
    if len(given) > 1:
        assert made.source.tolist() == by_the_rule(given)
    counts = np.cumsum(made.source[:, None] == np.arange(len(given)), axis=0)
    ideal = np.outer(np.arange(1, sum(given) + 1), given) / sum(given)
    assert np.abs(counts - ideal).max() < 1


def test_a_hundred_equal_sources_are_fair_too() -> None:
    counts = np.cumsum(table((1,) * 100 + (50,)).source == 100)
    assert np.abs(counts - np.arange(1, 151) / 3).max() < 1


@st.composite
def mixtures(draw: st.DrawFn, ends: Ends) -> Mixture:
    count = draw(st.integers(1, 5))
    each = st.lists(st.integers(0 if ends == "first" else 1, 9), min_size=count, max_size=count).filter(any).map(tuple)
    starts = sorted(draw(st.sets(st.integers(1, 200), max_size=4)) | {0})
    lengths = draw(st.lists(st.integers(1, 60), min_size=count, max_size=count))
    return mixture(tuple(lengths), *((start, draw(each)) for start in starts), ends=ends)


@pytest.mark.parametrize("ends", ["first", "all", "drop"])
@given(data=st.data())
def test_each_source_gives_its_samples_in_turn_and_any_place_can_be_looked_up(ends: Ends, data: st.DataObject) -> None:
    made = data.draw(mixtures(ends))
    drawn = everything(made)
    for i in range(len(made.lengths)):
        assert [n for s, n in drawn if s == i] == list(range(sum(s == i for s, _ in drawn)))
    some = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=10)) if drawn else []
    alone = made(np.array(some, np.int64))
    assert list(zip(alone.source.tolist(), alone.number.tolist(), strict=True)) == [drawn[p] for p in some]


@given(mixtures("drop"))
def test_with_drop_every_sample_comes_exactly_once(made: Mixture) -> None:
    assert made.length == sum(made.lengths)
    assert sorted(everything(made)) == [(i, n) for i, size in enumerate(made.lengths) for n in range(size)]


@given(mixtures("first"))
def test_with_first_some_source_has_just_given_its_last_sample(made: Mixture) -> None:
    if made.length > 10_000:  # only sources of weight 0 are left
        return
    drawn = everything(made)
    counts = [sum(s == i for s, _ in drawn) for i in range(len(made.lengths))]
    assert any(count == size for count, size in zip(counts, made.lengths, strict=True))
    assert all(count <= size for count, size in zip(counts, made.lengths, strict=True))


@given(mixtures("all"))
def test_with_all_every_source_was_given_whole_and_one_of_them_only_just(made: Mixture) -> None:
    drawn = everything(made)
    counts = [sum(s == i for s, _ in drawn) for i in range(len(made.lengths))]
    assert all(count >= size for count, size in zip(counts, made.lengths, strict=True))
    assert any(count == size for count, size in zip(counts, made.lengths, strict=True))


def test_ends_as_they_are_worked_out_by_hand() -> None:
    assert mixture((3, 4, 5), (0, (2, 1, 1))).length == 5
    assert mixture((3, 4, 5), (0, (2, 1, 1)), ends="all").length == 19
    dropped = mixture((3, 4, 5), (0, (2, 1, 1)), ends="drop")
    assert [(stage.start, stage.weights) for stage in dropped._stages] == [
        (0, (2, 1, 1)),
        (5, (0, 1, 1)),
        (10, (0, 0, 1)),
    ]
    assert mixture((3,), (0, (1,)), ends="forever").length > 10**14


def test_an_empty_source_ends_what_draws_from_it_and_nothing_else() -> None:
    assert mixture((3, 0), (0, (1, 1))).length == 0
    assert mixture((3, 0), (0, (1, 0))).length == 3
    assert mixture((30, 0), (0, (1, 0)), (20, (1, 1))).length == 20
    assert mixture((3, 0), (0, (1, 0)), ends="all").length == 3
    assert mixture((3, 0), (0, (1, 0)), ends="forever").length == NEVER
    assert mixture((3, 0), (0, (0, 1)), ends="drop").length == 0
    left_out = mixture((3, 0), (0, (1, 1)), (1, (0, 1)), (4, (1, 1)), ends="drop")
    assert everything(left_out) == [(0, 0), (0, 1), (0, 2)]


@given(st.lists(st.tuples(*[st.integers(0, 30)] * 3).filter(any), min_size=2, max_size=12), st.data())
def test_a_change_of_weights_changes_nothing_before_it_and_keeps_the_shares(
    changes: list[tuple[int, ...]], data: st.DataObject
) -> None:
    made = mixture((7, 11, 13), (0, changes[0]), ends="forever")
    ideal, last = np.zeros(3), 0
    for new in changes[1:]:
        at = made.next_border(last + data.draw(st.integers(1, 100)))
        before = everything(made, at)
        ideal += np.array(made.stages[-1].weights) * (at - last) / sum(made.stages[-1].weights)
        made = replace(made, stages=(*made.stages, WeightStage(at, new)))
        assert everything(made, at) == before
        so_far = made._stages[-1].given
        assert so_far.tolist() == [sum(s == i for s, _ in before) for i in range(3)]
        assert np.abs(so_far - ideal).max() < 2
        last = at


@pytest.mark.parametrize("ends", ["first", "all", "drop", "forever"])
@given(data=st.data())
def test_the_next_border_is_one_place_and_a_change_there_keeps_what_comes_before(
    ends: Ends, data: st.DataObject
) -> None:
    made = data.draw(mixtures(ends))
    wanted = data.draw(st.integers(0, min(made.length, 500)))
    border = made.next_border(wanted)
    assert wanted <= border == made.next_border(border) <= made.length
    assert all(made.next_border(between) == border for between in range(wanted, border))
    if 0 < border < made.length:
        new = data.draw(st.tuples(*[st.integers(1, 9)] * len(made.lengths)))
        kept = tuple(stage for stage in made.stages if stage.start < border)
        later = Mixture(made.lengths, (*kept, WeightStage(border, new)), made.key, ends, made.block)
        assert everything(later, border) == everything(made, border)
        assert made.before(border) == later.before(border)


def test_weights_change_only_where_a_block_ends() -> None:
    made = mixture((100, 100), (0, (1, 1)), ends="forever")
    assert [made.next_border(p) for p in (0, 1, 16, 17)] == [0, 16, 16, 32]


def test_a_block_holds_the_same_samples_whatever_the_key() -> None:
    stages = (WeightStage(0, (5, 3, 2)),)
    one, two = (Mixture((1000, 1000, 1000), stages, key, "forever") for key in (1, 2))
    drawn = [everything(made, 1024) for made in (one, two)]
    assert drawn[0] != drawn[1]
    assert sorted(drawn[0]) == sorted(drawn[1])


def test_a_trillion_positions_are_as_quick_as_ten() -> None:
    made = Mixture((10**11, 10**9), (WeightStage(0, (99, 1)),), 7, "forever")
    drawn = made(np.array([10**12, 10**12 + 1]))
    assert (np.abs(drawn.number - 10**12 * np.array([0.99, 0.01])[drawn.source]) < 2048).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([0.7, 0.3], (7, 3)),
        ([1, 1], (1, 1)),
        ([2, 4, 6], (1, 2, 3)),
        ([0, 5], (0, 1)),
        ([1 / 3, 2 / 3], (1, 2)),
        ([3], (1,)),
    ],
)
def test_weights_become_whole_numbers(given: list[float], expected: tuple[int, ...]) -> None:
    assert whole_weights(given) == expected


def test_weights_that_do_not_fit_are_rounded_to_the_largest_period() -> None:
    rounded = whole_weights([np.pi, np.e, 1.0])
    assert sum(rounded) == PERIOD
    assert np.abs(np.array(rounded) / PERIOD - np.array([np.pi, np.e, 1]) / (np.pi + np.e + 1)).max() < 1 / PERIOD


@pytest.mark.parametrize("given", [[], [0, 0], [1, -1], [1.0, 1e-9]])
def test_weights_that_would_lose_a_source_are_refused(given: list[float]) -> None:
    with pytest.raises(BadOption):
        whole_weights(given)


def test_wrong_mixtures_are_refused() -> None:
    with pytest.raises(BadOption, match="the first starts at 0"):
        mixture((1,), (3, (1,)))
    with pytest.raises(BadOption, match="give 2 whole numbers"):
        mixture((1, 1), (0, (1,)))
    with pytest.raises(BadOption, match="source 1 has no samples, so it can never begin again"):
        mixture((1, 0), (0, (1, 1)), ends="forever")
    with pytest.raises(BadOption, match="lengths"):
        mixture((1, -1), (0, (1, 1)))
    with pytest.raises(BadOption, match="source 1 has weight 0"):
        mixture((1, 5), (0, (1, 0)), ends="all")
    with pytest.raises(BadOption, match="choose one of"):
        mixture((1,), (0, (1,)), ends="never")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="outside a mixture of 3"):
        mixture((3,), (0, (1,)))(np.array([3]))


def test_the_order_is_frozen() -> None:
    """Snapshots store a position and rely on what comes there: these numbers must never change."""
    made = Mixture((10, 10, 10), (WeightStage(0, (5, 3, 2)),), 7, "first", 8)
    assert everything(made, 12) == [
        (2, 0), (1, 0), (1, 1), (0, 0), (0, 1), (0, 2), (0, 3), (2, 1), (0, 4), (1, 2), (2, 2), (0, 5)
    ]  # fmt: skip
