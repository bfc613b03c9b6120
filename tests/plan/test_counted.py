"""Counted order: what ranks deliver follows from the counts of their positions, in any world, cut anywhere."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace.errors import BadPipe
from headrace.plan.counted import CountedSteps, Step, deal, delivered
from headrace.plan.reach import FAILED, SKIPS, Reach, Standing
from tests.depth import depth

START = Standing((), 0, 0)
Output = tuple[int, int]


def at_random(reduced: int, deep: int) -> Callable[[Callable[[random.Random], None]], Callable[[int], None]]:
    """Run a test with so many generators, in tens."""

    def decorate(test: Callable[[random.Random], None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("ten", range(depth(reduced, deep) // 10))
        def run(ten: int) -> None:
            for seed in range(10 * ten, 10 * ten + 10):
                try:
                    test(random.Random(seed))
                except BaseException as error:
                    error.add_note(f"with random.Random({seed})")
                    raise

        run.__name__ = test.__name__
        return run

    return decorate


class Job:
    """All ranks of a job, which tell each other what `counts` says of each position."""

    def __init__(
        self, counts: list[int], ranks: int, size: int, *, ends: str = "short", at: Standing = START, gone: int = 0,
        own: bool = False, first: int = 512, most: int = 10**9, lanes: int | None = None,
    ) -> None:  # fmt: skip
        self.ranks = [
            CountedSteps(len(counts), size, ranks, r, ends, at, gone=gone, own=own, first=first, lanes=lanes)
            for r in range(ranks)
        ]
        self.steps: list[list[Step]] = []
        self.rounds = 0
        while not self.ranks[0].over and len(self.steps) < most:
            wanted = [rank.wanted() for rank in self.ranks]
            for other in wanted[1:]:
                assert [list(a) for a in other] == [list(a) for a in wanted[0]], "all ranks want the same"
            told = [[counts[p] for p in asked] for asked in wanted[0]]
            assert any(told), "every round brings something"
            self.rounds += 1
            for rank in self.ranks:
                rank.absorb(told)
            assert len({len(rank.steps) for rank in self.ranks}) == 1
            while self.ranks[0].steps and len(self.steps) < most:
                self.steps.append([rank.steps.popleft() for rank in self.ranks])

    def outputs(self) -> list[list[list[Output]]]:
        return [[list(zip(s.positions, s.outputs, strict=True)) for s in step] for step in self.steps]

    def sets(self) -> list[set[Output]]:
        return [{o for batch in step for o in batch} for step in self.outputs()]

    def all(self) -> list[Output]:
        return [o for step in self.outputs() for batch in step for o in batch]


def every(counts: list[int]) -> list[Output]:
    return [(p, k) for p, many in enumerate(counts) for k in range(max(0, many) & ((1 << SKIPS) - 1))]


def check_steps(job: Job, size: int, left: int, ends: str = "short") -> None:
    """Equal steps, no empty batch, one place; sizes as `Share` would have them."""
    for number, step in enumerate(job.steps):
        places = {s.after for s in step}
        assert len(places) == 1, "one place for all ranks"
        assert number == 0 or {s.before for s in step} == {s.after for s in job.steps[number - 1]}
        numbers = [n for s in step for n in s.numbers]
        assert len(set(numbers)) == len(numbers)
        for s in step:
            assert s.positions == sorted(s.positions)
            assert ends != "short" or s.positions
            assert len(s.positions) + s.filled <= max(size, 2 if ends == "short" else 1)
            assert ends == "short" or len(s.positions) + s.filled == size
    if ends == "short" and job.steps:
        sizes = [len(s.positions) for s in job.steps[-1]]
        assert max(sizes) - min(sizes) <= 1
    if ends == "drop":
        assert sum(map(len, job.sets())) == left - job.ranks[0].left_out


def drawn(random: random.Random, choose: bool) -> list[int]:
    n, kind = random.randint(1, 300), random.randrange(5)
    most = 1 if choose else random.choice([1, 3, 40])
    rate = random.random()
    if kind == 0:
        residue, ranks = random.randrange(4), random.randint(1, 4)
        return [random.randint(1, most) * (p % ranks == residue % ranks) for p in range(n)]
    if kind == 1:
        return [most] * n
    return [random.randint(0, most) * (random.random() < rate) for _ in range(n)]


def total(counts: list[int]) -> int:
    return len(every(counts))


@at_random(300, 10_000)
def test_by_position_the_set_of_every_global_step_is_that_of_one_rank_in_any_worlds(random: random.Random) -> None:
    counts = drawn(random, choose=random.random() < 0.7)
    whole = random.choice([1, 2, 4, 12, 24, 64])
    reference = Job(counts, 1, whole).sets()
    done: list[set[Output]] = []
    at = START
    while True:
        few = [r for r in (1, 2, 3, 4, 6, 8) if whole % r == 0]
        ranks = random.choice([*few, *few, *(r for r in (12, 24, 64) if whole % r == 0)])
        left = total(counts) - sum(map(len, done))
        if 0 < left < ranks:
            with pytest.raises(BadPipe, match=f"{left} samples are left .* for {ranks} ranks"):
                Job(counts, ranks, whole // ranks, at=at)
            ranks = 1
        most = random.randint(1, 12) if random.random() < 0.7 else 10**9
        job = Job(counts, ranks, whole // ranks, at=at, most=most, first=random.choice([1, 7, 512]))
        check_steps(job, whole // ranks, left)
        done += job.sets()
        if job.steps:
            at = job.steps[-1][0].after
            assert at.base == sum(map(len, done))
        if job.ranks[0].over and not job.ranks[0].steps:
            break
    assert sorted(o for step in done for o in step) == every(counts)
    # (The last two steps are dealt together where too few outputs would be left for all ranks.)
    assert [s for s in done if len(s) == whole][: len(reference) - 2] == reference[:-2]


@at_random(300, 10_000)
def test_own_outputs_come_once_in_equal_steps_in_any_worlds(random: random.Random) -> None:
    counts = drawn(random, choose=False)
    done: list[Output] = []
    at, own = START, True
    while True:
        ranks, size = random.choice([1, 2, 3, 5, 8, 16]), random.choice([1, 2, 5, 16])
        left = total(counts) - len(done)
        if 0 < left < ranks:
            with pytest.raises(BadPipe, match=f"{left} samples are left .* for {ranks} ranks"):
                Job(counts, ranks, size, at=at, own=own)
            ranks = 1
        job = Job(counts, ranks, size, at=at, own=own, most=random.choice([1, 4, 10**9]), first=random.choice([1, 8]))
        check_steps(job, size, left)
        done += job.all()
        if job.steps:
            at = job.steps[-1][0].after
        if job.ranks[0].over and not job.ranks[0].steps:
            break
        own = random.random() < 0.8
    assert sorted(done) == every(counts)


@at_random(100, 2000)
def test_as_long_as_every_rank_has_a_batch_nothing_is_made_twice(random: random.Random) -> None:
    counts, ranks, size = drawn(random, choose=False), random.randint(2, 5), random.randint(1, 9)
    have = [sum(many for p, many in enumerate(counts) if p % ranks == rank) for rank in range(ranks)]
    try:
        job = Job(counts, ranks, size, own=True)
    except BadPipe:
        assert sum(have) < ranks
        return
    # (One step less, where too few outputs for all ranks would follow.)
    for step in job.steps[: max(0, min(have) // size - 1)]:
        assert all(p % ranks == rank for rank, batch in enumerate(step) for p in batch.positions)


@at_random(100, 2000)
def test_other_ends_fill_or_drop_the_last_step(random: random.Random) -> None:
    ends, own = random.choice(["pad", "repeat", "drop"]), random.random() < 0.5
    counts, ranks, size = drawn(random, choose=not own), random.randint(1, 6), random.randint(1, 9)
    job = Job(counts, ranks, size, ends=ends, own=own)
    check_steps(job, size, total(counts), ends)
    outputs = job.all()
    assert len(outputs) == len(set(outputs))
    if ends == "drop":
        assert len(outputs) == total(counts) // (ranks * size) * ranks * size
        return
    assert sorted(outputs) == every(counts)
    if job.steps:
        fills = [(s.filled, s.fill_start) for s in job.steps[-1]]
        assert sum(filled for filled, _ in fills) == -total(counts) % (ranks * size)
        assert [start for _, start in fills] == [sum(f for f, _ in fills[:r]) for r in range(ranks)]
        if ends == "pad":
            assert {s.fill_from for s in job.steps[-1] if s.filled} <= {every(counts)[-1]}


@at_random(60, 3000)
def test_a_position_that_fails_is_an_error_of_all_ranks_at_one_step_and_the_rest_comes(random: random.Random) -> None:
    own = random.random() < 0.5
    counts, ranks, size = drawn(random, choose=not own), random.randint(1, 5), random.randint(1, 7)
    failing = sorted(random.sample(range(len(counts)), min(len(counts), random.randint(1, 3))))
    for position in failing:
        counts[position] = FAILED
    try:
        job = Job(counts, ranks, size, own=own)
    except BadPipe:
        return  # too few for all ranks are left behind the last error
    fails = [(number, step[0].failed) for number, step in enumerate(job.steps) if step[0].failed]
    assert sorted(f[1] for _, f in fails if f) == failing
    assert all(f is None or f[0] == f[1] % ranks for _, f in fails)
    around = {at + shift for at, _ in fails for shift in (-1, 0)}
    resumed = {*around, *random.sample(range(len(job.steps)), min(3, len(job.steps)))}
    for number, step in enumerate(job.steps):
        assert len({s.failed for s in step}) == 1
        assert len({s.after for s in step}) == 1
        if number not in resumed:
            continue
        rest = Job(counts, ranks, size, own=own, at=step[0].after)
        assert sorted(rest.all()) == sorted(
            o for later in job.outputs()[number + 1 :] for batch in later for o in batch
        )
        assert own or rest.outputs() == job.outputs()[number + 1 :]
    outputs = job.all()
    assert len(outputs) == len(set(outputs))
    lost = total(counts) - len(outputs)
    assert lost < len(failing) * size * ranks, "only what filled no step before an error is passed over"


@at_random(100, 2000)
def test_a_place_does_not_depend_on_rounds_and_one_process_can_follow_any_rank(random: random.Random) -> None:
    own = random.random() < 0.5
    counts, ranks, size = drawn(random, choose=not own), random.randint(1, 5), random.randint(1, 7)
    if 0 < total(counts) < ranks:
        return
    whole = Job(counts, ranks, size, own=own)
    for first in (1, 5):
        assert Job(counts, ranks, size, own=own, first=first).steps == whole.steps
    assert Job(counts, ranks, size, own=own, lanes=1).steps == whole.steps
    if whole.steps:
        cut = random.randrange(len(whole.steps))
        rest = Job(counts, ranks, size, own=own, at=whole.steps[cut][0].after)
        if not own:
            assert rest.outputs() == whole.outputs()[cut + 1 :]


@at_random(100, 1000)
def test_outputs_that_were_gone_are_passed_over_in_the_order_of_positions(random: random.Random) -> None:
    counts, own = drawn(random, choose=True), random.random() < 0.5
    gone = random.randint(0, total(counts))
    if 0 < total(counts) - gone < 3:
        return
    job = Job(counts, 3, 2, gone=gone, own=own, first=3)
    assert sorted(job.all()) == every(counts)[gone:]


def test_samples_that_were_left_out_are_counted_in_the_place() -> None:
    counts = [1, 1 << SKIPS, 1, 1 | (2 << SKIPS), 1, 1, 1, 1, 1, 1, 1, 1]
    job = Job(counts, 2, 2)
    assert [step[0].after.skipped for step in job.steps] == [1, 1, 1]
    assert [step[0].after.base for step in job.steps] == [4, 8, 11]


def test_rare_outputs_take_few_rounds() -> None:
    counts = [int(p % 1000 == 7) for p in range(200_000)]
    assert Job(counts, 2, 8).rounds < 250
    counts = [1] * 20_000
    assert Job(counts, 2, 64).rounds < 100


def test_what_a_rank_keeps_and_gives_away() -> None:
    owners = np.array([0, 0, 0, 1, 0, 1, 0, 0])
    assert deal(owners, np.array([[2, 2], [2, 2]])).tolist() == [0, 0, 1, 1, 2, 3, 2, 3]
    reached = (Reach(0, 2, 4, 1), Reach(1, 2, 3, 0))
    assert (delivered(reached, np.arange(6)) > 1000).tolist() == [True, True, True, False, False, False]
    assert delivered(reached, np.array([4])).tolist() == [1]


def test_few_outputs_are_refused_with_both_numbers() -> None:
    with pytest.raises(BadPipe, match=r"2 samples are left .* for 3 ranks"):
        Job([1, 0, 1], 3, 4)
    nothing: Any = Job([0, 0, 0], 3, 4)
    assert nothing.steps == []
