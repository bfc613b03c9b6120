"""The law of the text path: stopped at any step, gone on with other workers and ranks, the same tokens come.

Ranks are simulated in this process; every token is another one, so rows cannot be mistaken for each other. The sequence
is that of the windows, and of the rows in each: one rank alone delivers it.

    lengths known       stored, or measured once behind the filter and the tokenizer: the steps of all ranks, one after
                        the other, are the sequence, before and after any stop, in any world: row s x R + r is the same
                        whatever R is
    tokenized on the    how many rows a window has is known only to whoever makes it. Ranks take windows in turn and
    way, filtered       tell each other how many rows these have; each delivers its own rows in the order of the
                        sequence, and when one has run out, what is left is dealt among all. Every row comes exactly
                        once, in equal steps, before and after any stop, in any world
"""

import json
import random
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import Loader, Pipe, World, measure
from headrace.engine.places import RunPlace, plain_epoch_place
from headrace.engine.policy import Policy
from headrace.engine.program import Program, cut
from headrace.engine.run import Run
from headrace.observe.meter import Meter
from headrace.sharing.worlds import in_world
from tests.depth import depth
from tests.engine.scripted import Script, ScriptedWorkers
from tests.ranks.together import together

SEED = 3


def words(source: int, count: int) -> list[str]:
    """Documents of other lengths, each with its number in front."""
    chance = random.Random(source)
    return [f"{1000 * source + n} {'x' * chance.randint(1, 60)}" for n in range(count)]


def letters(text: str) -> list[int]:
    """A tokenizer of which every token is another one."""
    number, _, said = text.partition(" ")
    return [int(number) * 100 + place for place in range(len(said))]


SOURCES = [words(1, 40), words(2, 60), words(3, 50)]


def long_enough(text: str) -> bool:
    return len(text) % 5 != 1


def mixture(sources: list[Pipe[Any]], ends: Any = "drop") -> Pipe[Any]:
    first, *others = sources
    return first.mix(*others, weights=[5, 3, 2], ends=ends)


def tokenized() -> Pipe[Any]:
    made = mixture([Pipe.of(source).shuffle() for source in SOURCES]).filter(long_enough)
    return made.tokenize(letters)


def known(source: list[str]) -> Pipe[Any]:
    return Pipe.of(source).tokenize(letters).sized([len(letters(text)) for text in source])


def kept(source: list[str]) -> Pipe[Any]:
    return Pipe.of(source).filter(long_enough).tokenize(letters)


FILES: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("measured")
    FILES.extend(measure(kept(source), folder / str(number)) for number, source in enumerate(SOURCES))
    yield
    FILES.clear()


def measured() -> Pipe[Any]:
    return mixture([kept(source).sized(file).shuffle() for source, file in zip(SOURCES, FILES, strict=True)])


UNKNOWN: dict[str, Any] = {
    "split": lambda ranks: tokenized().pack(24, window=16).batch(3),
    "fit": lambda ranks: tokenized().pack(24, how="fit", form="flat", window=16).batch(3),
    "bucket": lambda ranks: tokenized().bucket(80, window=16),
}
KNOWN: dict[str, Any] = {
    "split": lambda ranks: mixture([known(s).shuffle() for s in SOURCES]).pack(24, window=16).batch(12 // ranks),
    "measured, split": lambda ranks: measured().pack(24, window=16).batch(12 // ranks),
    "measured, fit": lambda ranks: measured().pack(24, how="fit", window=16).batch(12 // ranks),
    "measured, bucket": lambda ranks: measured().bucket(80, window=16),
    "rows mixed": lambda ranks: mixture([known(s).pack(24, form="flat").shuffle() for s in SOURCES]).batch(12 // ranks),
    "balance": lambda ranks: mixture([known(s).shuffle() for s in SOURCES]).balance(rows=12, window=48),
}


def bare(sample: Any) -> list[bytes]:
    """The tokens of a batch, row by row."""
    return [bytes(np.asarray(row["tokens"] if isinstance(row, dict) else row, np.int32)) for row in sample]


class Rank:
    """One rank of a job that shares by arithmetic, over workers that answer in any order, from a place of the whole
    job. All ranks have the same program."""

    def __init__(self, program: Program, at: RunPlace | None, rank: int, ranks: int, chance: random.Random) -> None:
        world = World(rank=rank, ranks=ranks)
        workers = ScriptedWorkers(Script(chance.randrange(2**32), chance.randint(1, 6), chance.randint(1, 4)))
        workers.open(program)
        policy = Policy.of({"workers": chance.randint(1, 3), "kind": "thread"})
        here = None if at is None else in_world(at, program, world).fit(program)
        self.run = Run(program, policy, workers, 0, world, Meter(), ends="short", at=here)


def read(samples: Iterator[Any], most: int) -> list[list[bytes]]:
    return [bare(sample) for sample in islice(samples, most)]


class Part(NamedTuple):
    """What a job has delivered from one place to another."""

    by_rank: list[list[list[bytes]]]
    """The rows of each step of each rank."""
    place: str | None
    """Where the job stands then; None: at its end."""

    @property
    def steps(self) -> list[bytes]:
        """The rows of all ranks, step by step."""
        return [row for step in zip_longest(*self.by_rank, fillvalue=[]) for batch in step for row in batch]

    def rows(self, rank: int) -> list[bytes]:
        return [row for batch in self.by_rank[rank] for row in batch]


def part_of(made: Any, ranks: int, steps: int, place: str | None, chance: random.Random) -> Part:
    """So many steps of all ranks that share by arithmetic."""
    at = None if place is None else RunPlace.read(json.loads(place))
    program = cut(made(ranks), SEED, divided=ranks > 1)
    assert program.steps_known
    everyone = [Rank(program, at, rank, ranks, chance) for rank in range(ranks)]
    delivered = [read(one.run, steps) for one in everyone]
    if min(map(len, delivered)) < steps:
        return Part(delivered, None)
    places = {json.dumps(plain_epoch_place(one.run.place())) for one in everyone}
    assert len(places) == 1
    return Part(delivered, places.pop())


def counted(made: Any, ranks: int, steps: int, state: str | None, workers: int) -> Part:
    """So many steps of all ranks that count."""

    def body(world: World) -> tuple[list[list[bytes]], str]:
        with Loader(made(ranks), seed=SEED, world=world, workers=workers, kind="thread") as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            return read(iter(loader), steps), json.dumps(loader.state_dict())

    with pytest.MonkeyPatch.context() as monkeypatch:
        got = together(ranks, body, monkeypatch) if ranks > 1 else [body(World())]
    assert len({state for _, state in got}) == 1, "one place for the whole job"
    text = got[0][1]
    assert len(text) <= 1024 + 200 * ranks
    return Part([mine for mine, _ in got], None if json.loads(text)["epoch"] else text)


@pytest.mark.timeout(depth(60, 6000))
@pytest.mark.parametrize("name", UNKNOWN)
def test_rows_of_text_that_is_tokenized_on_the_way_come_once_in_equal_steps_before_and_after_any_stop(
    name: str,
) -> None:
    made = UNKNOWN[name]
    batches = [bare(batch) for batch in Loader(made(1), seed=SEED)]
    whole = [row for batch in batches for row in batch]
    number = {row: i for i, row in enumerate(whole)}
    assert len(number) == len(whole)
    for case in range(depth(8, 600)):
        chance = random.Random(case)
        ranks, others, steps = chance.randint(1, 4), chance.randint(1, 4), chance.randint(1, 8)
        said = f"case {case}: {ranks} ranks, {steps} steps, then {others}"
        first = counted(made, ranks, steps, None, chance.randint(1, 3))
        rest = Part([[]] * others, None)
        if first.place is not None:
            rest = counted(made, others, 10**6, first.place, chance.randint(1, 3))
        for part in (first, rest):
            assert len({len(mine) for mine in part.by_rank}) == 1, said
            for mine in part.by_rank:
                assert all(batch and batch == sorted(batch, key=number.__getitem__) for batch in mine), said
        if first.place is not None:  # a rank's own windows, in order
            for rank in range(ranks):
                mine = [number[row] for row in first.rows(rank)]
                assert mine == sorted(mine), said
        found = sorted(number[row] for row in first.steps + rest.steps)
        if name == "bucket":  # a bucket is one output: the last step has one for every rank, or they are left out
            assert len(set(found)) == len(found), said
            given = sum(len(mine) for part in (first, rest) for mine in part.by_rank)
            assert len(batches) - given < (ranks if first.place is None else others), said
        else:
            assert found == list(range(len(whole))), said


@pytest.mark.timeout(depth(60, 3000))
@pytest.mark.parametrize("name", KNOWN)
def test_rows_of_known_lengths_are_one_sequence_in_any_world(name: str) -> None:
    made = KNOWN[name]
    alone = part_of(made, 1, 10**6, None, random.Random(0))
    whole, batches = alone.steps, len(alone.by_rank[0])
    for case in range(depth(8, 2000)):
        chance = random.Random(case)
        ranks, others, steps = chance.choice([1, 2, 3, 4]), chance.choice([1, 2, 3, 4]), chance.randint(1, 5)
        first = part_of(made, ranks, steps, None, chance)
        assert first.place is not None
        rest = part_of(made, others, 10**6, first.place, chance)
        if name == "balance":  # a step is dealt by cost: within it the order is that of ranks
            assert sorted(first.steps) == sorted(whole[: 12 * steps])
            assert sorted(rest.steps) == sorted(whole[12 * steps :])
        elif name == "measured, bucket":  # the last step has a batch for every rank, or is left out
            found = first.steps + rest.steps
            assert found == whole[: len(found)], f"case {case}: {ranks} ranks, {steps} steps, then {others}"
            given = ranks * steps + others * len(rest.by_rank[0])
            assert given > batches - others, f"case {case}: {given} of {batches} batches"
        else:
            assert first.steps + rest.steps == whole, f"case {case}: {ranks} ranks, {steps} steps, then {others}"


def processes(made: Any, ranks: int, steps: int, state: str | None, chance: random.Random) -> tuple[list[bytes], str]:
    """The rows of so many steps of all ranks, with worker processes; and the snapshot that all of them take then."""
    delivered, states = [], set()
    for rank in range(ranks):
        world = World(rank=rank, ranks=ranks)
        with Loader(made(ranks), seed=SEED, world=world, workers=chance.randint(1, 3), kind="process") as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            delivered.append(read(iter(loader), steps))
            states.add(json.dumps(loader.state_dict()))
    assert len(states) == 1
    return Part(delivered, None).steps, states.pop()


@pytest.mark.timeout(depth(60, 6000))
@pytest.mark.parametrize(
    ("made", "most"), [(UNKNOWN["fit"], 1), (KNOWN["measured, fit"], 3)], ids=["tokenized", "measured"]
)
def test_worker_processes_give_the_same_rows_after_a_change_of_workers_and_ranks(made: Any, most: int) -> None:
    whole = [row for batch in Loader(made(1), seed=SEED) for row in bare(batch)]
    for case in range(depth(1, 150)):
        chance = random.Random(case)
        first, state = processes(made, chance.randint(1, most), chance.randint(1, 6), None, chance)
        rest, _ = processes(made, chance.randint(1, most), 10**6, state, chance)
        assert first + rest == whole, f"case {case}"
