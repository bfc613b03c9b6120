"""PT-02, PT-05 to PT-10: which process reads which samples, for how many steps, and what is left out."""

import logging
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.world import World
from headrace.replicas import DataLoader, Options

sizes = st.integers(1, 5)


def loaders(samples: int, batch: int, processes: int, seed: int = 0, **more: Any) -> list[DataLoader]:
    """The loader of every process of a job."""
    return [
        DataLoader(
            Options(world=World(p, processes)).randomSeed(seed),
            range(samples),
            batch_size=batch,
            collate_fn=list,
            **more,
        )
        for p in range(processes)
    ]


def read(job: list[DataLoader]) -> list[list[list[int]]]:
    """One epoch: by process, by step."""
    return [list(loader) for loader in job]


def flat(parts: Any) -> list[int]:
    return [sample for part in parts for sample in (flat(part) if isinstance(part, list) else [part])]


@pytest.mark.parametrize(("replicas", "processes", "steps"), [(1, 1, 24), (8, 1, 3), (2, 4, 3)])
def test_the_steps_of_chapter_five(replicas: int, processes: int, steps: int) -> None:
    for p in range(processes):
        options = Options(world=World(p, processes)).deviceIterations(4).replicationFactor(replicas)
        options.Training.gradientAccumulation(8)
        assert len(DataLoader(options, range(50_000), batch_size=64)) == steps


@given(st.integers(1, 200), sizes, sizes)
def test_every_process_reads_a_block_of_its_own_in_equally_many_steps(samples: int, batch: int, processes: int) -> None:
    steps = samples // (batch * processes)
    if not steps:
        with pytest.raises(BadOption):
            loaders(samples, batch, processes)
        return
    job = loaders(samples, batch, processes)
    assert [len(loader) for loader in job] == [steps] * processes
    for p, parts in enumerate(read(job)):
        assert [len(part) for part in parts] == [batch] * steps
        assert flat(parts) == list(range(p * steps * batch, (p + 1) * steps * batch))


def test_what_is_left_out_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    # 100 samples, steps of 4 x 10: 20 stay behind, which a remainder by the block would not see.
    with caplog.at_level(logging.WARNING, logger="headrace.replicas"):
        job = loaders(103, 10, 4)
    assert [loader.left_out for loader in job] == [(2, 3, 23)] * 4
    (record,) = caplog.records
    assert "leaves out 2 batches and 3 samples" in record.getMessage()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="headrace.replicas"):
        whole = loaders(80, 10, 4) + loaders(83, 10, 4, drop_last=False)
    assert [loader.left_out for loader in whole] == [(0, 0, 0)] * 8
    assert not caplog.records


@pytest.mark.parametrize("processes", [1, 4])
def test_too_few_samples_for_one_step_are_refused_with_all_three_numbers(processes: int) -> None:
    with pytest.raises(BadOption, match=rf"9 samples \(N\).*{processes} processes \(P\) x 10 samples.*\(C\)"):
        loaders(9, 10, processes)


@given(st.integers(1, 100), sizes, sizes, st.sampled_from(["short", "pad", "repeat"]), st.booleans())
def test_without_drop_last_every_sample_comes_and_steps_are_equal(
    samples: int, batch: int, processes: int, ends: Any, shuffle: bool
) -> None:
    if ends == "short" and samples < processes:
        with pytest.raises(BadOption, match="cannot be shared"):
            loaders(samples, batch, processes, drop_last=False)
        return
    job = loaders(samples, batch, processes, drop_last=False, ends=ends, shuffle=shuffle)
    parts, masks = [], []
    for loader in job:
        for part in loader:
            parts.append(part)
            masks.append(loader.mask)
            assert loader.mask is not None
            assert len(part) == len(loader.mask)
    assert len(parts) == len(job[0]) * processes
    assert {len(loader) for loader in job} == {len(job[0])}
    real = [
        s for part, mask in zip(parts, masks, strict=True) for s, kept in zip(part, mask or [], strict=True) if kept
    ]
    assert sorted(real) == list(range(samples))
    if ends == "short":
        assert all(parts)
        assert real == flat(parts)
    else:
        assert {len(part) for part in parts} == {batch}


def test_short_is_the_default_and_sizes_of_one_step_differ_by_at_most_one() -> None:
    # Torch's own arithmetic would give 4, 4, 3 and 3 steps here, and training would hang.
    job = read(loaders(50, 4, 4, drop_last=False))
    for step in zip(*job, strict=True):
        assert max(map(len, step)) - min(map(len, step)) <= 1
    with pytest.raises(BadOption, match="set drop_last=False"):
        loaders(50, 4, 4, ends="pad")


@given(st.integers(10, 200), sizes, st.integers(1, 3), st.integers(0, 5))
def test_a_shuffled_epoch_is_one_permutation_shared_by_all_processes(
    samples: int, batch: int, processes: int, seed: int
) -> None:
    if samples < batch * processes:
        return
    job = loaders(samples, batch, processes, seed, shuffle=True)
    used = samples // (batch * processes) * batch * processes
    epochs = [flat(read(job)) for _ in range(3)]
    for epoch in epochs:
        assert len(epoch) == len(set(epoch)) == used
        assert set(epoch) <= set(range(samples))
    for one, next_one in pairwise(epochs):
        assert set(one) | set(next_one) == set(range(samples)), "what one epoch leaves out, the next one has"


def test_every_epoch_has_another_order_and_every_seed_too() -> None:
    job = loaders(1000, 10, 2, seed=1, shuffle=True)
    first, second = flat(read(job)), flat(read(job))
    other = flat(read(loaders(1000, 10, 2, seed=2, shuffle=True)))
    assert len({tuple(order) for order in (first, second, other, range(1000))}) == 4
    assert flat(read(loaders(1000, 10, 2, seed=1, shuffle=True))) == first


def test_each_sample_is_left_out_equally_often() -> None:
    job = loaders(13, 5, 2, shuffle=True)
    missing = [s for _ in range(13) for s in set(range(13)) - set(flat(read(job)))]
    assert sorted(missing) == sorted(list(range(13)) * 3)


def test_without_a_seed_all_processes_agree_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="headrace.replicas"):
        job = [
            DataLoader(Options(world=World(p, 2)), range(100), batch_size=5, shuffle=True, collate_fn=list)
            for p in range(2)
        ]
    assert sorted(flat(read(job))) == list(range(100))
    assert "seed 0" in caplog.text


def test_without_automatic_partitioning_every_process_reads_everything() -> None:
    for parts in read(loaders(12, 3, 2, auto_distributed_partitioning=False)):
        assert flat(parts) == list(range(12))


def test_ranks_of_one_model_parallel_group_read_the_same() -> None:
    job = [
        DataLoader(Options(world=World(p, 4, replicas=2)), range(12), batch_size=3, collate_fn=list) for p in range(4)
    ]
    zero, one, two, three = read(job)
    assert zero == one
    assert two == three
    assert sorted(flat(zero + two)) == list(range(12))


def test_random_values_differ_between_processes() -> None:
    import random

    def draw(samples: list[int]) -> float:
        return random.random()

    drawn = [
        [*DataLoader(Options(world=World(p, 2)), range(8), batch_size=2, collate_fn=draw, num_workers=0)]
        for p in range(2)
    ]
    assert len({*drawn[0], *drawn[1]}) == 4


@pytest.mark.parametrize("step", range(3))
def test_after_a_resume_the_mask_is_that_of_the_step_at_hand(step: int) -> None:
    """Two processes share 25 samples in steps of 6: the one sample too many makes the last full step two short ones."""
    for process in range(2):
        begun = loaders(25, 6, 2, drop_last=False)[process]
        steps = iter(begun)
        for _ in range(step):
            next(steps)
        again = loaders(25, 6, 2, drop_last=False)[process]
        again.load_state_dict(begun.state_dict())
        left = [(len(batch), again.mask) for batch in again]
        assert left == [(size, [True] * size) for size in (6, 4 - process, 3)[step:]]
