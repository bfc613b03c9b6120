"""Ranks that count, with trouble: errors that the caller passes over, filled and dropped ends, workers that die."""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadPipe, HeadraceError, PoisonSample
from tests.depth import depth
from tests.laws.pipes import Numbers
from tests.ranks.test_counted_pipes import THREADS, Fragile, Keep, Many, first, keyed
from tests.ranks.together import together

Event = list[Any] | str


def events(loader: Loader[Any], most: int) -> list[Event]:
    """Steps and errors, in turn."""
    got: list[Event] = []
    samples = iter(loader)
    while len(got) < most:
        try:
            got.append(next(samples))
        except StopIteration:
            break
        except (ValueError, RuntimeError) as error:
            if isinstance(error, HeadraceError) or not (
                type(error) is ValueError or "another rank failed" in str(error)
            ):
                raise
            got.append("error")
    return got


def joined(steps: tuple[Event, ...]) -> list[Any] | str:
    """An event of all ranks."""
    kinds = {type(step) for step in steps}
    assert len(kinds) == 1, "an error of all ranks, or a step of all"
    return "error" if str in kinds else [x for step in steps for x in step]


def passed_over(seed: int) -> None:
    chance = random.Random(seed)
    n, modulus, ranks = chance.choice([7, 40, 97, 203]), chance.choice([5, 13, 50]), chance.choice([2, 3, 4])
    size, flat = chance.choice([1, 2, 5]), chance.random() < 0.4
    pipe = Pipe.of(Numbers(n)).shuffle() if chance.random() < 0.7 else Pipe.of(Numbers(n))
    pipe = pipe.map(keyed).map(Fragile(modulus))
    pipe = pipe.flatmap(Many(3)) if flat else pipe.filter(Keep(4, 1))
    how, stop = chance.choice(THREADS), chance.choice([10**6, chance.randint(1, 12)])
    others, later = chance.choice([1, 2, 3]), chance.choice(THREADS)
    with Loader(pipe.batch(size * ranks), seed=3) as loader:
        alone = events(loader, 10**6)
    with Loader(pipe, seed=3, on_error="skip") as loader:
        good = Counter(map(repr, loader))

    def begin(world: World) -> Any:
        with Loader(pipe.batch(size), seed=3, world=world, **how) as loader:
            return events(loader, stop), json.dumps(loader.state_dict())

    def rest(world: World) -> Any:
        with Loader(pipe.batch(size), seed=3, world=world, **later) as loader:
            loader.load_state_dict(json.loads(state))
            return events(loader, 10**6)

    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            begun = together(ranks, begin, monkeypatch)
            assert len({len(got) for got, _ in begun}) == 1
            assert len({state for _, state in begun}) == 1
            state = begun[0][1]
            both = [joined(step) for step in zip(*(got for got, _ in begun), strict=True)]
            failed = both.count("error")
            if not flat:
                same = [sorted(map(repr, event)) for event in alone]
                assert [sorted(map(repr, event)) for event in both[:-2]] == same[: max(0, len(both) - 2)]
            if json.loads(state)["epoch"] == 0:
                then = together(others, rest, monkeypatch) if others > 1 else [rest(World())]
                assert len({len(got) for got in then}) == 1
                after = [joined(step) for step in zip(*then, strict=True)]
                failed += after.count("error")
                both += after
        except BadPipe as error:
            assert "samples are left" in str(error)  # noqa: PT017
            return
    delivered = Counter(repr(x) for event in both if not isinstance(event, str) for x in event)
    assert not delivered - good, "twice, or new"
    missing = sum((good - delivered).values())
    assert missing <= failed * max(size * ranks, size * others), "what fills no step before an error is passed over"


@pytest.mark.timeout(depth(120, 3000))
@pytest.mark.parametrize("ten", range(depth(8, 200)))
def test_errors_come_at_the_same_step_of_all_ranks_and_the_rest_follows_also_in_another_world(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        try:
            passed_over(seed)
        except BaseException as error:
            error.add_note(f"passed_over({seed})")
            raise


def filled(seed: int) -> None:
    chance = random.Random(seed)
    ends = chance.choice(["pad", "repeat", "drop", "short"])
    n, ranks, size = chance.choice([0, 1, 2, 7, 40, 97]), chance.choice([1, 2, 3, 4]), chance.choice([1, 2, 5, 16])
    pipe = Pipe.of(Numbers(n)).shuffle() if chance.random() < 0.7 else Pipe.of(Numbers(n))
    pipe = pipe.map(keyed)
    pipe = pipe.flatmap(Many(3)) if chance.random() < 0.4 else pipe.filter(Keep(4, 1))
    how, stop = chance.choice(THREADS), chance.choice([10**6, chance.randint(1, 9)])
    batches = pipe.batch(size).map(list) if chance.random() < 0.3 else pipe.batch(size)
    with Loader(pipe, seed=3) as loader:
        everything = Counter(map(repr, loader))
    total = sum(everything.values())

    def read(loader: Loader[Any], most: int) -> list[tuple[list[str], list[bool]]]:
        return [
            ([repr(x) for x in batch], loader.mask() or [True] * len(batch))
            for _, batch in zip(range(most), loader, strict=False)
        ]

    def begin(world: World) -> Any:
        with Loader(batches, seed=3, world=world, ends=ends, **how) as loader:
            got = read(loader, stop)
            for step in range(min(2, len(got))):
                assert [repr(x) for x in loader.lineage(step).batch()] == got[step][0]
            return got, json.dumps(loader.state_dict())

    def rest(world: World) -> Any:
        with Loader(batches, seed=3, world=world, ends=ends, **how) as loader:
            loader.load_state_dict(json.loads(state))
            return read(loader, 10**6)

    with pytest.MonkeyPatch.context() as monkeypatch:
        try:
            begun = together(ranks, begin, monkeypatch) if ranks > 1 else [begin(World())]
        except BadPipe as error:
            assert f"{total} samples are left" in str(error)  # noqa: PT017
            assert ends == "short"
            assert 0 < total < ranks
            return
        state = begun[0][1]
        parts = [[got for got, _ in begun]]
        if json.loads(state)["epoch"] == 0:
            parts.append(together(ranks, rest, monkeypatch) if ranks > 1 else [rest(World())])
    real: Counter[str] = Counter()
    steps = 0
    for part in parts:
        assert len({len(got) for got in part}) == 1
        steps += len(part[0])
        for got in part:
            for batch, mask in got:
                assert len(batch) == len(mask)
                assert ends == "short" or len(batch) == size
                real.update(x for x, true in zip(batch, mask, strict=True) if true)
    whole = size * ranks
    if ends == "drop":
        assert not real - everything
        assert sum(real.values()) == total // whole * whole
    else:
        assert real == everything
    if ends != "short":
        assert steps == (total // whole if ends == "drop" else -(-total // whole))


@pytest.mark.timeout(depth(120, 3000))
@pytest.mark.parametrize("ten", range(depth(8, 200)))
def test_the_last_step_is_filled_or_dropped_and_the_mask_says_what_is_real(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        try:
            filled(seed)
        except BaseException as error:
            error.add_note(f"filled({seed})")
            raise


# --- workers that die -------------------------------------------------------------------------------------------------


class Deadly:
    """Kills its worker, at some samples: once, or each time."""

    def __init__(self, folder: Path, once: bool, modulus: int) -> None:
        self._folder, self._once, self._modulus = folder, once, modulus

    def __call__(self, x: Any) -> bool:
        number = first(x)
        if number % self._modulus == 3:
            met = self._folder / f"{number}"
            if not (self._once and met.exists()):
                met.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return number % 3 > 0


@pytest.mark.timeout(depth(120, 600))
@pytest.mark.parametrize("method", ["server", "forkserver"])
def test_workers_that_are_killed_change_nothing_on_any_rank(method: Any, tmp_path: Path) -> None:
    alone = list(Loader(Pipe.of(Numbers(200)).shuffle().filter(Keep(3, 1)).map(keyed).batch(8), seed=3))

    def body(world: World) -> Any:
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        pipe = Pipe.of(Numbers(200)).shuffle().filter(Deadly(folder, True, 40)).map(keyed).batch(4)
        with Loader(pipe, seed=3, world=world, workers=2, start_method=method) as loader:
            return list(loader)

    with pytest.MonkeyPatch.context() as monkeypatch:
        got = together(2, body, monkeypatch)
    for step, whole in zip(zip(*got, strict=True), alone, strict=True):
        assert sorted(x for batch in step for x in batch) == sorted(whole)


@pytest.mark.timeout(depth(120, 600))
@pytest.mark.parametrize("on_poison", ["skip", "raise"])
def test_a_sample_that_kills_every_worker_is_left_out_or_an_error_of_all_ranks(on_poison: Any, tmp_path: Path) -> None:
    (tmp_path / "met").mkdir()

    def body(world: World) -> Any:
        pipe = Pipe.of(Numbers(200)).filter(Deadly(tmp_path / "met", False, 90)).batch(4)
        got: list[Any] = []
        with Loader(pipe, world=world, workers=2, start_method="server", on_poison=on_poison) as loader:
            try:
                got.extend(loader)
            except (PoisonSample, RuntimeError) as error:
                return got, error
            return got, None

    with pytest.MonkeyPatch.context() as monkeypatch:
        results = together(2, body, monkeypatch)
    steps = [batches for batches, _ in results]
    delivered = sorted(x for batches in steps for batch in batches for x in batch)
    good = [x for x in range(200) if x % 3 > 0 and x % 90 != 3]
    if on_poison == "skip":
        assert [error for _, error in results] == [None, None]
        assert len(steps[0]) == len(steps[1])
        assert delivered == good
    else:
        assert delivered == []
        errors = [error for _, error in results]
        assert any(isinstance(error, PoisonSample) for error in errors)
        assert all(isinstance(error, PoisonSample) or "another rank" in str(error) for error in errors)
