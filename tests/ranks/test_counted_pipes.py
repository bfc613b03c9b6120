"""Random pipes whose ops decide how many samples there are, over random worlds, cuts, errors, ends and workers.

Ranks are threads of this process. What comes out is every sample of the epoch once, or counted as left out; steps are
equal; the place is one for the whole job and continues anywhere; where ops choose, steps do not depend on ranks.
"""

import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import headrace
from headrace import Budget, Loader, Pipe, World
from headrace.errors import BadPipe
from tests.depth import depth
from tests.laws.pipes import Numbers, stream
from tests.ranks.test_parts_dealt import numbers
from tests.ranks.together import together

THREADS: list[dict[str, Any]] = [{"workers": n, "kind": "thread"} for n in (1, 2, 3)]
"""Never inline: that lends itself the generators of the whole process, and here ranks are threads of one."""


@dataclass(frozen=True)
class Keep:
    modulus: int
    rest: int

    def __call__(self, x: Any) -> bool:
        return bool(first(x) % self.modulus >= self.rest)


@dataclass(frozen=True)
class Rare:
    modulus: int

    def __call__(self, x: Any) -> bool:
        return bool(first(x) % self.modulus == 1)


@dataclass(frozen=True)
class Many:
    most: int

    def __call__(self, x: Any) -> list[Any]:
        return [(first(x), x, i) for i in range(first(x) % (self.most + 1))]


@dataclass(frozen=True)
class Fragile:
    modulus: int

    def __call__(self, x: Any) -> Any:
        if first(x) % self.modulus == 2:
            raise ValueError(first(x))
        return x


def first(x: Any) -> int:
    while not isinstance(x, int):
        x = x[0]
    return x


def keyed(x: Any) -> Any:
    return first(x), x, float(headrace.rng().random())


def mapped(batch: list[Any]) -> list[Any]:
    return list(batch)


@dataclass
class Case:
    """A pipe, and what is known of it."""

    pipe: Callable[[int], Pipe[Any]]
    """Of the size of a batch."""
    options: dict[str, Any]
    said: str
    chooses: bool
    """Steps do not depend on ranks."""
    batched: bool
    counted: bool
    """Its place loads on any number of ranks, and nothing is left out (but single samples)."""


def drawn(chance: random.Random) -> Case:
    n = chance.choice([0, 1, 5, 17, 40, 97, 203, 300])
    source = chance.choice(["numbers", "numbers", "numbers", "list", "parts", "stream"])
    said = [f"{source} {n}"]
    counted, chooses = source != "stream", source not in ("stream", "parts")
    if source == "parts" and n < 5:
        source = "numbers"
    made: dict[str, Callable[[], Pipe[Any]]] = {
        "numbers": lambda: Pipe.of(Numbers(n)),
        "list": lambda: Pipe.of(list(range(n))),
        "parts": lambda: numbers(tuple([n // 5] * 4 + [n - 4 * (n // 5)]), 2),
        "stream": lambda: Pipe.of(stream(n)).sharding_filter(),
    }
    steps: list[Callable[[Pipe[Any]], Pipe[Any]]] = []
    if source not in ("stream", "parts") and chance.random() < 0.6:
        steps.append(lambda p: p.shuffle())
        said.append("shuffle")
    changes = 0
    options: dict[str, Any] = {}
    for _ in range(chance.randint(1, 4)):
        op = chance.choice(["keep", "keep", "rare", "many", "keyed", "unbatch"])
        said.append(op)
        if op == "keep":
            m = chance.randint(1, 7)
            keep = Keep(m, chance.randrange(m))
            steps.append(lambda p, k=keep: p.filter(k))
            changes += 1
        elif op == "rare":
            rare = Rare(chance.choice([2, 3, 4, 13, 50]))
            steps.append(lambda p, k=rare: p.filter(k))
            changes += 1
        elif op == "many":
            many = Many(chance.choice([1, 2, 4, 20 if n < 50 else 3]))
            steps.append(lambda p, k=many: p.flatmap(k))
            changes, chooses = changes + 1, False
        elif op == "unbatch":
            steps.append(lambda p: p.map(pair).unbatch())
            changes, chooses = changes + 1, False
        else:
            steps.append(lambda p: p.map(keyed))
    if chance.random() < 0.3:
        fragile = Fragile(chance.choice([3, 11, 50]))
        steps.insert(chance.randrange(len(steps) + 1), lambda p: p.map(fragile))
        options["on_error"] = chance.choice(["skip", Budget(count=10**6)])
        said.append(f"fails {fragile.modulus}")
        changes += 1
    batched = chance.random() < 0.75
    finish = batched and chance.random() < 0.4
    if not changes:
        steps.append(lambda p: p.filter(Keep(3, 1)))

    def pipe(size: int) -> Pipe[Any]:
        made_ = made[source]()
        for step in steps:
            made_ = step(made_)
        made_ = made_.batch(size) if batched else made_
        return made_.map(mapped) if finish else made_

    if not batched:
        chooses = False
    return Case(pipe, options, " ".join(said) + (" batch" if batched else ""), chooses, batched, counted)


def pair(x: Any) -> list[Any]:
    return [(first(x), x, "a"), (first(x), x, "b")]


def shown(sample: Any, batched: bool) -> list[str]:
    return [repr(x) for x in sample] if batched else [repr(sample)]


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"

    def __enter__(self) -> "Records":
        logging.getLogger("headrace").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("headrace").removeHandler(self)

    def left_out(self, size: int) -> int:
        samples = sum(map(int, re.findall(r"(\d+) samples (?:of this rank )?are left out", self.text)))
        batches = sum(map(int, re.findall(r"(\d+) batches of this rank are left out", self.text)))
        return samples + size * batches


def attempt(seed: int) -> str:
    """One random case; what kind it was."""
    chance = random.Random(seed)
    case = drawn(chance)
    whole_size = chance.choice([1, 2, 3, 4, 6, 12, 24])
    with Loader(case.pipe(whole_size), seed=3, **case.options) as alone:
        reference = [shown(x, case.batched) for x in alone]
    expected = Counter(x for step in reference for x in step)
    skips = "on_error" in case.options
    if skips and case.batched:
        # One process leaves the batches of samples that fail short; ranks fill theirs with the samples that follow.
        flat = [x for step in reference for x in step]
        reference = [flat[i : i + whole_size] for i in range(0, len(flat), whole_size)]
    done: list[list[str]] = []
    state: str | None = None
    ranks = total = alone_once = 0
    story = f"{case.said}, {sum(expected.values())} samples, global batch {whole_size}"
    with Records() as records:
        while True:
            few = [r for r in (1, 2, 3, 4) if whole_size % r == 0] if case.chooses else [1, 2, 3, 4]
            if state is None or case.counted:
                ranks = chance.choice(few)
            alone_once += ranks == 1
            size = max(1, whole_size // ranks)
            steps = chance.randint(0, 12) if chance.random() < 0.6 else None
            how = chance.choice(THREADS)
            tell = chance.random() < 0.3
            story += f"; {ranks} ranks x {size}, {steps} steps, {how['workers']} workers"
            left = sum(expected.values()) - sum(map(len, done))

            def body(
                world: World,
                state: str | None = state,
                size: int = size,
                steps: int | None = steps,
                how: dict[str, Any] = how,
                tell: bool = tell,
            ) -> Any:
                with Loader(case.pipe(size), seed=3, world=world, **how, **case.options) as loader:
                    if state is not None:
                        loader.load_state_dict(json.loads(state))
                    got: list[Any] = []
                    states: list[str] = []
                    for sample in loader:
                        got.append(shown(sample, case.batched))
                        states.append(json.dumps(loader.state_dict()))
                        if len(got) == steps:
                            break
                    if tell:
                        for step in range(min(2, len(got))) if case.counted or state is None else ():
                            again = shown(loader.lineage(step).batch(), case.batched)
                            assert again == got[step], ("lineage", step, again, got[step])
                        loader.stats()
                        loader.explain()
                    return got, states, json.dumps(loader.state_dict())

            with pytest.MonkeyPatch.context() as monkeypatch:
                try:
                    results = together(ranks, body, monkeypatch) if ranks > 1 else [body(World())]
                except BadPipe as error:
                    error.add_note(f"attempt({seed}): {story}")
                    if case.counted and f"{left} samples are left" not in str(error):
                        raise
                    assert case.batched or not case.counted or not done, story
                    assert not case.counted or 0 < left < ranks, story
                    return story
                except BaseException as error:
                    error.add_note(f"attempt({seed}): {story}")
                    raise
            try:
                got = [rank[0] for rank in results]
                assert len({len(rank) for rank in got}) == 1, "equal steps"
                assert len({tuple(rank[1]) for rank in results}) == 1, "one place after each step"
                assert len({rank[2] for rank in results}) == 1, "one place at the end"
                assert all(sample or not case.batched for rank in got for sample in rank), "no empty batch"
                for step in zip(*got, strict=True):
                    done.append([x for batch in step for x in batch])
                    total += 1
                state = results[0][2]
                if steps == 0:
                    state = None if not total else state
                ended = json.loads(state)["epoch"] == 1 if state else False
                if ended or (steps is None):
                    break
            except BaseException as error:
                error.add_note(f"attempt({seed}): {story}")
                raise
    try:
        delivered = Counter(x for step in done for x in step)
        assert not delivered - expected, ("twice or new", list((delivered - expected).items())[:5])
        missing = sum((expected - delivered).values())
        assert missing <= records.left_out(whole_size), ("lost", missing, records.text)
        assert not missing or not case.batched or not case.counted, ("left out", missing)
        if case.chooses and not (skips and alone_once):
            sets = [frozenset(s) for s in done if len(s) == whole_size]
            assert sets[: len(reference) - 2] == [frozenset(s) for s in reference[:-2]], "steps depend on ranks"
    except BaseException as error:
        error.add_note(f"attempt({seed}): {story}")
        raise
    return story


@pytest.mark.timeout(depth(120, 3000))
@pytest.mark.parametrize("ten", range(depth(10, 300)))
def test_whatever_the_pipe_every_sample_comes_once_in_equal_steps_and_from_any_place(ten: int) -> None:
    for seed in range(10 * ten, 10 * ten + 10):
        attempt(seed)
