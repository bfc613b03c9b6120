"""Snapshots from a hostile or broken disk: each is refused with one clear error, or is a snapshot; none executes."""

import copy
import json
import random
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import SnapshotRefused
from tests.depth import depth
from tests.laws.pipes import Numbers, double, odd, some, stream

PIPES = {
    "indexed": Pipe.of(Numbers(60)).shuffle().map(double).batch(4),
    "filtered": Pipe.of(Numbers(60)).shuffle().filter(odd).batch(4),
    "streamed": Pipe.of(stream(60)).shuffle(window=8).flatmap(some).sharding_filter().map(double).batch(4),
    "branched": Pipe.of(stream(30)).mix(Pipe.of(Numbers(30))).enumerate().map(double),
    "in the consumer": Pipe.of(Numbers(60)).filter(odd).batch(3).shuffle(buffer_size=4).header(9),
}

NASTY: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1.5, float("nan"), float("inf"), "", "x", "p", "r", "s",
    "end", [], [[]], {}, {"a": 1}, [None], "__import__('os')._exit(1)", "cos\nsystem\n(S'exit 1'\ntR.",
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a snapshot."""
    found = [at] if at else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        found += places(part, (*at, key))
    return found


def mutated(state: Any, chance: random.Random) -> Any:
    state = copy.deepcopy(state)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        *path, last = chance.choice(places(state) or [()]) or [None]
        if last is None:
            return copy.deepcopy(chance.choice(NASTY))
        inner = state
        for key in path:
            inner = inner[key]
        act = chance.randrange(4)
        if act == 0:
            del inner[last]
        elif act == 1 and isinstance(inner[last], int):
            inner[last] += chance.choice((-1, 1, 7, 1000))
        elif act == 2 and isinstance(inner[last], list):
            inner[last] = inner[last] * 2
        else:
            inner[last] = copy.deepcopy(chance.choice(NASTY))
    return state


def at_position(value: Any) -> Any:
    at = copy.deepcopy(state_of("indexed")["at"])
    at["place"]["position"] = value
    return at


def taken(pipe: Pipe[Any], at: int) -> Any:
    with Loader(pipe, seed=3) as loader:
        samples = iter(loader)
        for _ in range(at):
            next(samples)
        return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(PIPES))
def test_a_mutated_snapshot_is_refused_or_gives_samples_and_never_another_error(name: str) -> None:
    chance = random.Random(name)
    told: list[str] = []
    for i in range(depth(300, 2500)):
        state = mutated(taken(PIPES[name], i % 4 + 1) if i % 50 == 0 else state_of(name), chance)
        with Loader(PIPES[name], seed=3) as loader:
            try:
                loader.load_state_dict(state)
                samples = iter(loader)
                for _ in range(5):
                    next(samples, None)
            except SnapshotRefused as error:
                told.append(str(error))
            except Exception as error:
                pytest.fail(f"{type(error).__name__}: {error}\nfrom {state}")
    assert len(told) > depth(100, 1000)
    assert all("\n" not in line and len(line) < 500 for line in told)


_STATES: dict[str, Any] = {}


def state_of(name: str) -> Any:
    if name not in _STATES:
        _STATES[name] = taken(PIPES[name], 3)
    return _STATES[name]


@pytest.mark.parametrize("name", list(PIPES))
def test_a_snapshot_cut_anywhere_is_no_snapshot(name: str, tmp_path: Any) -> None:
    text = json.dumps(state_of(name))
    path = tmp_path / "place.json"
    step = depth(7, 1)
    for length in range(0, len(text), step):
        path.write_text(text[:length])
        with pytest.raises(SnapshotRefused, match=r"place\.json"):
            Loader(PIPES[name], seed=3, autosave=path)


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["large", "small"])
@pytest.mark.parametrize("where", ["seed", "epoch", "version", "at"])
def test_a_number_too_long_to_print_is_refused(where: str, value: int) -> None:
    state = state_of("indexed")
    with pytest.raises(SnapshotRefused):
        Loader(PIPES["indexed"], seed=3).load_state_dict(
            {**state, where: at_position(value) if where == "at" else value}
        )


def test_lists_too_deep_to_print_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SnapshotRefused):
        Loader(PIPES["indexed"], seed=3).load_state_dict({**state_of("indexed"), "at": at_position(deep)})


def test_words_of_a_snapshot_cannot_write_lines_into_a_log() -> None:
    state = state_of("filtered")
    state["pipe"][0] = "another"
    state["ops"] = ["evil\nERROR: all is lost \x1b[31m" + "x" * 1000]
    with Loader(PIPES["filtered"], seed=3) as loader, pytest.raises(SnapshotRefused) as refused:
        loader.load_state_dict(state)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400
