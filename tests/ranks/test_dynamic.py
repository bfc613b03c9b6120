"""Dynamic sharding: every block goes to one rank, whoever is ready for it; a snapshot is the set of finished blocks."""

import json
import random
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import Loader, Pipe, World
from headrace.engine.feeds.counter import BlocksLeft, Finished, merged
from headrace.errors import BadOption, BadPipe, NoLength, RanksDisagree, SnapshotRefused, WorkerStuck
from headrace.op import Each
from tests.depth import depth
from tests.faults.test_snapshots import mutated
from tests.laws.pipes import Numbers, drawn, odd, some, stream

torch_distributed: Any = pytest.importorskip("torch.distributed", reason="the counter lives in torch's store")


@settings(max_examples=depth(100, 3000))
@given(
    st.integers(0, 200), st.integers(1, 9), st.lists(st.tuples(st.integers(0, 220), st.integers(1, 30))), st.booleans()
)
def test_blocks_are_what_is_not_finished_in_order(
    length: int, size: int, pieces: list[tuple[int, int]], drop_last: bool
) -> None:
    finished = merged((a, a + n) for a, n in pieces if a + n <= length)
    blocks = BlocksLeft(length, size, Finished(finished), drop_last)
    got = [[p for start, stop in blocks.ranges(k) for p in range(start, stop)] for k in range(blocks.count)]
    left = [p for p in range(length) if not any(a <= p < b for a, b in finished)]
    whole = len(left) // size * size if drop_last else len(left)
    assert [p for block in got for p in block] == left[:whole]
    assert all(len(block) == size for block in got[:-1])


def keyed(x: int) -> tuple[int, float]:
    return x, float(headrace.rng().random())


SHAPES: dict[str, Any] = {
    "batches": lambda: Pipe.of(Numbers(203)).shuffle().map(keyed).batch(4),
    "samples": lambda: Pipe.of(Numbers(203)).shuffle().map(keyed),
    "filtered batches": lambda: Pipe.of(Numbers(403)).shuffle().filter(odd).map(keyed).batch(3),
    "flattened samples": lambda: Pipe.of(Numbers(103)).shuffle().flatmap(some).map(keyed),
    "filtered groups": lambda: Pipe.of(Numbers(203)).shuffle().map(keyed).batch(2).filter(lambda b: b[0][0] % 3 > 0),
}


def flat(got: list[Any]) -> list[Any]:
    return [v for x in got for v in (x if isinstance(x, list) else [x])]


class Job:
    """Ranks as threads over one store; each takes a batch only when it is its turn, in an order drawn in advance."""

    def __init__(self, pipe: Pipe[Any], ranks: int, state: Any = None, **how: Any) -> None:
        store = torch_distributed.HashStore()
        self.loaders = [
            Loader(pipe, seed=5, world=World(rank=r, ranks=ranks, store=store), sharding="dynamic", **how)
            for r in range(ranks)
        ]
        # Every loader of a process has a number of its own: here they are the same loader on several ranks.
        for loader in self.loaders:
            loader._sharing._key = "job"  # type: ignore[attr-defined]
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        self.epochs = self.begin()

    def begin(self) -> list[Any]:
        epochs: list[Any] = [None] * len(self.loaders)

        def begin(rank: int) -> None:
            epochs[rank] = iter(self.loaders[rank])

        threads = [threading.Thread(target=begin, args=(r,)) for r in range(len(self.loaders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return epochs

    def read(self, turns: list[int] | None = None) -> list[list[Any]]:
        """What the ranks get: one batch each time that it is their turn, or all there is."""
        got: list[list[Any]] = [[] for _ in self.loaders]
        for rank in turns or ():
            got[rank] += [x for _, x in zip(range(1), self.epochs[rank], strict=False)]
        if turns is None:
            for rank, epoch in enumerate(self.epochs):
                got[rank] += list(epoch)
        return got

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("seed", range(depth(3, 60)))
def test_a_job_stopped_anywhere_goes_on_in_other_worlds_with_every_sample_once(shape: str, seed: int) -> None:
    pipe = SHAPES[shape]()
    whole = flat(list(Loader(pipe, seed=5)))
    chance = random.Random(seed)
    delivered: list[Any] = []
    state: Any = None
    for ranks, workers in ((3, 0), (2, 2), (4, 0)):
        how: dict[str, Any] = {"workers": workers, "kind": "thread"} if workers else {}
        job = Job(pipe, ranks, state, **how)
        for got in job.read([chance.randrange(ranks) for _ in range(chance.randrange(12))]):
            delivered += flat(got)
        states = [loader.state_dict() for loader in job.loaders]
        assert all(s["at"]["place"] == states[0]["at"]["place"] for s in states), "the same on every rank"
        state = states[0]
        job.close()
    job = Job(pipe, 1, state)
    delivered += flat(job.read()[0])
    assert sorted(delivered) == sorted(whole)
    assert job.loaders[0].state_dict()["epoch"] == 1
    job.close()


def test_an_uneven_epoch_is_complete_and_the_next_one_has_another_order() -> None:
    job = Job(SHAPES["batches"](), 2)
    first = job.read([0] * 30 + [1, 0, 0])
    rest = job.read()
    assert len(first[0]) > 10 * len(first[1])
    got = flat([b for r in (*first, *rest) for b in r])
    assert sorted(x for x, _ in got) == list(range(203))
    job.epochs = job.begin()
    second = flat([b for r in job.read() for b in r])
    assert sorted(x for x, _ in second) == list(range(203))
    assert second != got
    job.close()


def test_random_values_are_those_of_any_other_run() -> None:
    pipe = Pipe.of(Numbers(200)).shuffle().map(drawn).batch(4)
    alone = sorted(repr(batch) for batch in Loader(pipe, seed=5))
    job = Job(pipe, 3)
    first = job.read([0, 0, 2, 1, 2, 2, 0])
    state = job.loaders[2].state_dict()
    job.close()
    job = Job(pipe, 2, state)
    assert sorted(repr(b) for r in (*first, *job.read()) for b in r) == alone
    job.close()


def test_a_snapshot_is_a_few_ranges_and_loads_at_another_batch_size() -> None:
    job = Job(Pipe.of(Numbers(10**6)).shuffle().batch(4), 2)
    first = flat([b for r in job.read([0, 1, 0, 0, 1] * 20) for b in r])
    state = job.loaders[1].state_dict()
    assert state["at"]["place"] == {"kind": "blocks", "finished": [[0, 400]], "parts": []}
    job.close()
    job = Job(Pipe.of(Numbers(10**6)).shuffle().batch(5), 1, state)
    (rest,) = job.read([0] * 10)
    job.close()
    order = next(iter(Loader(Pipe.of(Numbers(10**6)).shuffle().batch(450), seed=5)))
    assert sorted(first) + flat(rest) == sorted(order[:400]) + order[400:]


def test_a_static_snapshot_of_whole_batches_goes_on_dynamically_but_not_the_other_way() -> None:
    pipe = Pipe.of(Numbers(40)).shuffle().batch(4)
    with Loader(pipe, seed=5) as loader:
        batches = iter(loader)
        got = [next(batches), next(batches)]
        state = loader.state_dict()
    job = Job(pipe, 2, state)
    assert sorted(flat(got) + flat(job.read([1])[1] + job.read()[0])) == list(range(40))
    state = Job(pipe, 1, state).loaders[0].state_dict()
    job.close()
    with pytest.raises(SnapshotRefused, match="sharding='dynamic'"):
        Loader(pipe, seed=5).load_state_dict(state)
    filtered = Pipe.of(Numbers(40)).filter(odd).batch(4)
    with Loader(filtered) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with pytest.raises(SnapshotRefused, match="sharding='static'"):
        Loader(filtered, sharding="dynamic").load_state_dict(state)


def test_a_rank_that_has_come_to_its_end_knows_that_the_others_have_not() -> None:
    job = Job(Pipe.of(Numbers(40)).batch(4), 2)
    job.read([1])
    assert len(list(job.epochs[0])) == 9
    assert job.loaders[0].state_dict()["epoch"] == 1
    job.close()
    job = Job(Pipe.of(Numbers(40)).batch(4), 2, workers=1, kind="thread")
    job.read([1])  # it has the next two already
    got = len(list(job.epochs[0]))
    state = job.loaders[0].state_dict()
    assert (got, state["epoch"]) == (7, 0)
    assert len(list(job.epochs[1])) == 2
    assert job.loaders[0].state_dict()["epoch"] == 1
    job.close()


def test_the_length_is_not_known() -> None:
    with pytest.raises(NoLength, match="as many batches as it can"):
        len(Loader(Pipe.of(Numbers(40)).batch(4), sharding="dynamic"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ends": "pad"}, "no last step to fill"),
        ({"ends": "drop"}, "no last step to fill"),
        ({"world": World(rank=0, ranks=4, replicas=2)}, "would not take the same samples"),
        ({"sharding": "dynamical"}, "'static' or 'dynamic'"),
    ],
)
def test_what_contradicts_it_is_refused_with_the_reason(options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        Loader(Pipe.of(Numbers(40)).batch(4), **{"sharding": "dynamic", **options})


def test_ranks_meet_in_the_store_of_their_world_and_others_do_not_look_at_it() -> None:
    world = World(store=torch_distributed.HashStore())
    assert sorted(Loader(Pipe.of(Numbers(9)), world=world)) == list(range(9))
    assert world.store.num_keys() == 0
    assert sorted(Loader(Pipe.of(Numbers(9)), world=world, sharding="dynamic")) == list(range(9))
    assert world.store.num_keys() > 0


def test_equal_steps_streams_and_two_regroupings_are_refused_with_the_reason() -> None:
    with pytest.raises(BadOption, match="fullsync"):
        Loader(Pipe.of(Numbers(40)).batch(4).fullsync(), sharding="dynamic")
    with pytest.raises(BadOption, match="fullsync"):
        Loader(Pipe.of(Numbers(40)).batch(4).fullsync().map(len), sharding="dynamic")
    with pytest.raises(BadPipe, match="is a stream"):
        Loader(Pipe.of(stream(40)).batch(4), sharding="dynamic")
    with pytest.raises(BadPipe, match="more than once"):
        Loader(Pipe.of(Numbers(40)).filter(odd).batch(4).unbatch().batch(2), sharding="dynamic")
    with pytest.raises(BadOption, match="ordered=True"):
        Loader(Pipe.of(Numbers(40)).filter(odd).batch(4), sharding="dynamic", ordered=False)
    with pytest.raises(BadOption, match="MASTER_ADDR"):
        iter(Loader(Pipe.of(Numbers(40)).batch(4), sharding="dynamic", world=World(rank=0, ranks=2)))


@dataclass(frozen=True, slots=True)
class Here(Each[Any, Any]):
    """Runs in the training process."""

    consumer = True

    def apply(self, sample: Any) -> Any:
        return sample


def test_ops_in_the_training_process_change_nothing() -> None:
    pipe = SHAPES["filtered batches"]().then(Here())
    job = Job(pipe, 2)
    first = job.read([0, 1, 1, 0, 1])
    state = job.loaders[0].state_dict()
    job.close()
    job = Job(pipe, 1, state)
    assert sorted(x for x, _ in flat([b for r in (*first, *job.read()) for b in r])) == list(range(1, 403, 2))
    job.close()


def test_batches_may_come_out_of_order_within_a_rank() -> None:
    job = Job(Pipe.of(Numbers(80)).batch(4), 2, workers=3, kind="thread", ordered=False)
    first = job.read([0, 1, 1, 0, 1])
    state = job.loaders[0].state_dict()
    job.close()
    job = Job(Pipe.of(Numbers(80)).batch(4), 1, state)
    assert sorted(flat([b for r in (*first, *job.read()) for b in r])) == list(range(80))
    job.close()


def test_ranks_that_were_given_different_things_are_told_and_one_that_is_missing_is_not_waited_for_ever() -> None:
    store = torch_distributed.HashStore()

    def loader(rank: int, size: int) -> Loader[Any]:
        pipe = Pipe.of(Numbers(size)).batch(4)
        made = Loader(pipe, world=World(rank=rank, ranks=2, store=store), sharding="dynamic")
        made._sharing._key = "job"  # type: ignore[attr-defined]
        made._sharing._timeout = 0.2
        return made

    with pytest.raises(WorkerStuck, match="only 1 of 2 ranks"):
        iter(loader(0, 40))
    with pytest.raises(RanksDisagree, match="rank 1 was given another length"):
        iter(loader(1, 41))


def test_a_mutated_snapshot_is_refused_or_gives_samples() -> None:
    chance = random.Random(1)
    pipe, told = SHAPES["filtered batches"](), 0
    job = Job(pipe, 3)
    job.read([0, 1, 0, 0, 2, 2])
    state = json.loads(json.dumps(job.loaders[0].state_dict()))
    job.close()
    for _ in range(depth(300, 5000)):
        try:
            with Loader(pipe, seed=5, sharding="dynamic") as loader:
                loader.load_state_dict(mutated(state, chance))
                samples = iter(loader)
                for _ in range(5):
                    next(samples, None)
        except SnapshotRefused:
            told += 1
    assert told > depth(100, 2000)


SINGLE: dict[str, Any] = {
    "samples": lambda fn: Pipe.of(Numbers(203)).map(fn),
    "filtered samples": lambda fn: Pipe.of(Numbers(203)).map(fn).filter(odd),
    "flattened samples": lambda fn: Pipe.of(Numbers(203)).map(fn).flatmap(some),
    "filtered batches": lambda fn: Pipe.of(Numbers(203)).map(fn).filter(odd).batch(4),
}


@pytest.mark.parametrize("shape", list(SINGLE))
@pytest.mark.parametrize("how", [{}, {"workers": 2, "kind": "thread"}], ids=["inline", "threads"])
def test_what_stands_before_an_error_of_one_sample_is_delivered_first(shape: str, how: Any) -> None:
    failing: list[int] = [37]

    def picky(x: int) -> int:
        if x in failing:
            raise KeyError(x)
        return x

    pipe = SINGLE[shape](picky)
    got: list[Any] = []
    state: Any = None
    for _ in range(2):  # the second time it is the first thing that comes
        job = Job(pipe, 1, state, **how)
        with pytest.raises(KeyError):
            got.extend(job.epochs[0])
        state = json.loads(json.dumps(job.loaders[0].state_dict()))
        job.close()
    failing.clear()
    whole = list(Loader(pipe, seed=5))
    last = {"samples": 36, "filtered samples": 35, "flattened samples": 35, "filtered batches": 31}[shape]
    assert flat(got)[-1] == last, "up to the error"
    job = Job(pipe, 1, state, **how)
    assert got + job.read()[0] == whole
    job.close()
