"""The plan of a SwiftLoader: arithmetic that shares every sample once, in arcs that rotate and are mixed nearby."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doors.swift.plan import ArcPlan, part

plans = st.builds(
    ArcPlan,
    consumers=st.integers(1, 5),
    workers=st.integers(1, 4),
    batch_size=st.integers(1, 7),
    shuffle=st.booleans(),
    nearby=st.integers(0, 12),
    seed=st.integers(-5, 2**70),
)


def epoch_of(plan: ArcPlan, length: int, epoch: int, consumer: int) -> list[list[int]]:
    return [plan.indices(length, epoch, consumer, b) for b in range(plan.batches(length, consumer))]


def arc_of(plan: ArcPlan, length: int, epoch: int, worker: int) -> list[int]:
    """What one worker of consumer 0 reads."""
    return [i for batch in epoch_of(plan, length, epoch, 0)[worker :: plan.workers] for i in batch]


@given(plans, st.integers(0, 120), st.integers(0, 9))
def test_each_epoch_of_all_consumers_holds_every_sample_once_and_no_empty_batch(
    plan: ArcPlan, length: int, epoch: int
) -> None:
    everything = [batch for c in range(plan.consumers) for batch in epoch_of(plan, length, epoch, c)]
    assert Counter(i for batch in everything for i in batch) == Counter(range(length))
    assert all(1 <= len(batch) <= plan.batch_size for batch in everything)


@given(plans, st.integers(0, 120))
def test_all_consumers_make_the_same_number_of_steps_where_that_is_possible(plan: ArcPlan, length: int) -> None:
    counts = {plan.batches(length, consumer) for consumer in range(plan.consumers)}
    if plan.batch_size > 1 and length >= plan.consumers * plan.workers:
        assert len(counts) == 1
    else:
        assert max(counts) - min(counts) <= 1


@given(st.integers(0, 100), st.integers(1, 9))
def test_parts_are_consecutive_and_differ_by_at_most_one(length: int, parts: int) -> None:
    cuts = [part(length, parts, number) for number in range(parts)]
    assert [i for start, size in cuts for i in range(start, start + size)] == list(range(length))
    sizes = [size for _, size in cuts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_the_share_of_a_consumer_is_one_stretch_cut_into_batches_when_nothing_is_shuffled() -> None:
    plan = ArcPlan(2, 2, 3, shuffle=False, nearby=15, seed=1)
    assert epoch_of(plan, 21, 0, 0) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    assert epoch_of(plan, 21, 5, 1) == [[11, 12, 13], [14, 15, 16], [17, 18, 19], [20]]


def test_shuffled_each_worker_ends_with_a_short_batch_of_its_own() -> None:
    plan = ArcPlan(1, 2, 3, shuffle=True, nearby=4, seed=1)
    assert [len(b) for b in epoch_of(plan, 20, 0, 0)] == [3, 3, 3, 3, 3, 3, 1, 1]
    assert sorted(arc_of(plan, 20, 0, 0)) == list(range(10))
    assert sorted(arc_of(plan, 20, 1, 0)) == list(range(10, 20))


@pytest.mark.parametrize(
    ("length", "consumers", "workers", "size", "expected"),
    [
        (1, 2, 2, 4, [[1], []]),  # one sample, three empty workers
        (2, 1, 2, 4, [[1, 1]]),  # one-sample workers
        (4, 1, 2, 4, [[2, 2]]),  # two-sample workers
        (3, 2, 2, 2, [[1, 1], [1]]),  # fewer samples than workers
        (9, 2, 1, 2, [[2, 2, 1], [2, 1, 1]]),  # the second ends on a full batch and cuts it in two
        (12, 2, 1, 4, [[4, 2], [4, 2]]),
        (9, 2, 1, 4, [[4, 1], [2, 2]]),
    ],
)
def test_short_and_empty_workers_are_fine(
    length: int, consumers: int, workers: int, size: int, expected: list[list[int]]
) -> None:
    plan = ArcPlan(consumers, workers, size, shuffle=True, nearby=3, seed=1)
    for epoch in range(4):
        assert [[len(b) for b in epoch_of(plan, length, epoch, c)] for c in range(consumers)] == expected


def test_after_as_many_epochs_as_workers_each_worker_has_read_everything_once() -> None:
    plan = ArcPlan(2, 3, 4, shuffle=True, nearby=5, seed=1)
    read = Counter(i for epoch in range(6) for i in arc_of(plan, 60, epoch, 1))
    assert read == Counter(range(60))


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 5), st.integers(0, 1000))
def test_no_sample_moves_further_than_the_window_on_the_way_round(
    length: int, window: int, epoch: int, seed: int
) -> None:
    read = arc_of(ArcPlan(1, 1, 4, shuffle=True, nearby=window, seed=seed), length, epoch, 0)
    # The way round begins at an unknown sample: some start must fit all windows.
    assert any(
        all(
            {(start + p) % length for p in range(first, min(first + window, length))}
            == set(read[first : first + window])
            for first in range(0, length, window)
        )
        for start in range(length)
    )


def test_a_window_of_one_only_turns_the_arc() -> None:
    read = arc_of(ArcPlan(1, 1, 4, shuffle=True, nearby=1, seed=3), 50, 0, 0)
    assert read != list(range(50))
    assert all((b - a) % 50 == 1 for a, b in itertools.pairwise(read))


def test_a_window_of_zero_mixes_the_whole_arc() -> None:
    read = arc_of(ArcPlan(1, 1, 4, shuffle=True, nearby=0, seed=3), 1000, 0, 0)
    far = sum(1 for a, b in itertools.pairwise(read) if min((a - b) % 1000, (b - a) % 1000) > 100)
    assert far > 600  # 800 are expected of a uniform order


def test_the_first_epoch_is_shuffled_and_epochs_workers_and_seeds_differ() -> None:
    plan = ArcPlan(1, 2, 5, shuffle=True, nearby=25, seed=3)
    relative = {
        (seed, epoch, worker): tuple((i - min(arc)) for i in arc)
        for seed in (3, 4)
        for epoch in range(3)
        for worker in range(2)
        for arc in [arc_of(ArcPlan(1, 2, 5, True, 25, seed), 200, epoch, worker)]
    }
    assert len(set(relative.values())) == len(relative)
    assert relative[3, 0, 0] != tuple(range(100))
    assert epoch_of(plan, 200, 1, 0) == epoch_of(ArcPlan(1, 2, 5, True, 25, 3), 200, 1, 0)


def test_the_order_is_frozen() -> None:
    """Jobs that are resumed, and ranks with different versions, rely on it: change the plan only with a reason."""
    assert epoch_of(ArcPlan(1, 2, 3, True, 4, 7), 12, 1, 0) == [[8, 9, 10], [0, 4, 3], [11, 7, 6], [5, 2, 1]]
    assert epoch_of(ArcPlan(1, 1, 3, True, 0, 7), 9, 0, 0) == [[3, 8, 6], [7, 4, 5], [1, 2, 0]]


def test_a_batch_that_does_not_exist_is_refused() -> None:
    with pytest.raises(IndexError, match="outside an epoch of 2 batches"):
        ArcPlan(1, 1, 4, True, 4, 7).indices(8, 0, 0, 2)
