"""The law of the text path: stopped at any step, gone on with other workers and ranks, the same tokens come.

Ranks are simulated in this process, over workers that answer in any order. Where lengths are known (stored tokens) the
rows of all ranks together are one sequence, whatever the world. Where text is tokenized on the way, windows are packed
where they are read: the rows are the same ones, each comes exactly once, and each rank gets its windows in order.
"""

import json
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.engine.dealing import Dealing
from headrace.engine.places import RunPlace, plain_epoch_place
from headrace.engine.policy import Policy
from headrace.engine.program import Program, cut
from headrace.engine.run import Run
from headrace.engine.snapshot import snapshot
from headrace.engine.worlds import in_turns, in_world
from headrace.observe.meter import Meter
from headrace.sharing.arithmetic import FEW, with_passing
from tests.depth import depth
from tests.engine.scripted import Script, ScriptedWorkers
from tests.ops.text_data import letters, texts

SEED = 3
SOURCES = [texts(40, 1), texts(60, 2), texts(50, 3)]


def long_enough(text: str) -> bool:
    return len(text) % 5 != 1


def mixture(sources: list[Pipe[Any]], ends: Any = "drop") -> Pipe[Any]:
    first, *others = sources
    return first.mix(*others, weights=[5, 3, 2], ends=ends)


def tokenized() -> Pipe[Any]:
    made = mixture([Pipe.of(source).shuffle() for source in SOURCES]).filter(long_enough)
    return made.tokenize(letters, eos=0)


def known(source: list[str]) -> Pipe[Any]:
    return Pipe.of(source).tokenize(letters).sized([len(letters(text)) for text in source])


UNKNOWN: dict[str, Any] = {
    "split": lambda ranks: tokenized().pack(24, window=16).batch(3),
    "fit": lambda ranks: tokenized().pack(24, how="fit", form="flat", window=16).batch(3),
    "bucket": lambda ranks: tokenized().bucket(80, window=16),
}
KNOWN: dict[str, Any] = {
    "split": lambda ranks: mixture([known(s).shuffle() for s in SOURCES]).pack(24, window=16).batch(12 // ranks),
    "fit": lambda ranks: (
        mixture([known(s).shuffle() for s in SOURCES]).pack(24, how="fit", window=16).batch(12 // ranks)
    ),
    "rows mixed": lambda ranks: mixture([known(s).pack(24, form="flat").shuffle() for s in SOURCES]).batch(12 // ranks),
    "balance": lambda ranks: mixture([known(s).shuffle() for s in SOURCES]).balance(rows=12, window=48),
}


def bare(sample: Any) -> list[bytes]:
    """The tokens of a batch, row by row."""
    return [bytes(np.asarray(row["tokens"] if isinstance(row, dict) else row, np.int32)) for row in sample]


class Rank:
    """One rank of a job, from a place of the whole job."""

    def __init__(self, pipe: Pipe[Any], at: RunPlace | None, rank: int, ranks: int, chance: random.Random) -> None:
        world = World(rank=rank, ranks=ranks)
        program = cut(pipe, SEED, divided=ranks > 1)
        self.known = program.steps_known
        if not self.known:
            program = with_passing(program, FEW)
        indexed = program.head.indexed(SEED, 0)
        assert indexed is not None
        self.at = at
        if self.known:
            self.at = None if at is None else in_world(at, program, world)
        else:
            self.at = in_turns(at, program, world, indexed.length)
        self.dealing = None if self.known else self._dealing(program, indexed.length)
        workers = ScriptedWorkers(Script(chance.randrange(2**32), chance.randint(1, 6), chance.randint(1, 4)))
        workers.open(program)
        policy = Policy.of({"workers": chance.randint(1, 3), "kind": "thread"})
        here = None if self.at is None else self.at.fit(program)
        self.run = Run(program, policy, workers, 0, world, Meter(), ends="short", at=here)

    def _dealing(self, program: Program, length: int) -> Dealing:
        assert self.at is not None
        return Dealing.of(self.at, length, program.last.group or 0, drops=False)


def read(samples: Iterator[Any], most: int) -> list[list[bytes]]:
    return [bare(sample) for sample in islice(samples, most)]


def steps_of(
    made: Any, ranks: int, steps: int, place: str | None, chance: random.Random
) -> tuple[list[bytes], str | None, int]:
    """The rows of so many steps of all ranks, step by step; where the job stands then; and steps that all have made."""
    at = None if place is None else RunPlace.read(json.loads(place))
    everyone = [Rank(made(ranks), at, rank, ranks, chance) for rank in range(ranks)]
    delivered = [read(one.run, steps) for one in everyone]
    rows = [row for step in zip(*delivered, strict=False) for batch in step for row in batch]
    made_by_all = min(map(len, delivered))
    rows += [row for mine in delivered for batch in mine[made_by_all:] for row in batch]
    if made_by_all < steps:
        return rows, None, made_by_all
    if everyone[0].known:
        places = {json.dumps(plain_epoch_place(one.run.place())) for one in everyone}
        assert len(places) == 1
        return rows, places.pop(), steps
    dealing = everyone[0].dealing
    assert dealing is not None
    joint = dealing.place([dealing.progress_of(one.run.place()) for one in everyone], steps, 0)
    state = snapshot(made(ranks), SEED, 0, joint)
    assert len(json.dumps(state)) <= 1024 + 40 * len(SOURCES)
    return rows, json.dumps(plain_epoch_place(joint)), steps


@pytest.mark.timeout(depth(60, 3000))
@pytest.mark.parametrize("name", UNKNOWN)
def test_rows_of_text_that_is_tokenized_on_the_way_come_once_in_any_world(name: str) -> None:
    whole, _, _ = steps_of(UNKNOWN[name], 1, 10**6, None, random.Random(0))
    alone = [row for batch in Loader(UNKNOWN[name](1), seed=SEED) for row in bare(batch)]
    assert whole == alone  # of one rank the sequence is the same too, for any workers
    for case in range(depth(10, 1700)):
        chance = random.Random(case)
        ranks, others, steps = chance.randint(1, 4), chance.randint(1, 4), chance.randint(1, 8)
        first, place, _ = steps_of(UNKNOWN[name], ranks, steps, None, chance)
        rest = [] if place is None else steps_of(UNKNOWN[name], others, 10**6, place, chance)[0]
        assert sorted(first + rest) == sorted(whole), f"case {case}: {ranks} ranks, {steps} steps, then {others}"
        if ranks == others == 1:
            assert first + rest == whole


@pytest.mark.timeout(depth(60, 3000))
@pytest.mark.parametrize("name", KNOWN)
def test_rows_of_known_lengths_are_one_sequence_in_any_world(name: str) -> None:
    whole, _, _ = steps_of(KNOWN[name], 1, 10**6, None, random.Random(0))
    for case in range(depth(8, 1300)):
        chance = random.Random(case)
        ranks, others, steps = chance.choice([1, 2, 3, 4]), chance.choice([1, 2, 3, 4]), chance.randint(1, 5)
        first, place, made = steps_of(KNOWN[name], ranks, steps, None, chance)
        assert made == steps
        assert place is not None
        rest, _, _ = steps_of(KNOWN[name], others, 10**6, place, chance)
        if name == "balance":  # a step is dealt by cost: within it the order is that of ranks
            assert sorted(first) == sorted(whole[: 12 * steps])
            assert sorted(rest) == sorted(whole[12 * steps :])
        else:
            assert first + rest == whole, f"case {case}: {ranks} ranks, {steps} steps, then {others}"


@pytest.mark.timeout(depth(60, 3000))
def test_worker_processes_give_the_same_rows_after_a_change_of_workers() -> None:
    pipe = UNKNOWN["fit"](1)
    whole = [row for batch in Loader(pipe, seed=SEED) for row in bare(batch)]
    for case in range(depth(2, 300)):
        chance = random.Random(case)
        with Loader(pipe, seed=SEED, workers=chance.randint(1, 3), kind="process") as loader:
            first = [row for batch in islice(iter(loader), chance.randint(1, 12)) for row in bare(batch)]
            state = json.loads(json.dumps(loader.state_dict()))
        with Loader(pipe, seed=SEED, workers=chance.randint(1, 3), kind="process") as loader:
            loader.load_state_dict(state)
            assert first + [row for batch in loader for row in bare(batch)] == whole
