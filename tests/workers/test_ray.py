"""Ray actors as workers, on a cluster of one node: laws 2 to 5. (Nodes die in test_ray_nodes.)

A reduced form runs always; everything under `scripts/test --integrations` and `--deep`.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from headrace import Loader, Pipe
from headrace.engine.workers.ray import answers, same_node
from headrace.errors import PoisonSample, WorkerDied, WorkerStuck
from tests.conftest import RunScript
from tests.depth import DEPTH, depth
from tests.engine.test_errors_at_an_index import BAD, SIZE, Noting
from tests.engine.test_errors_at_an_index import read as results
from tests.laws.pipes import RANDOM_STEPS, Numbers, double, drawn, odd, pipes, read, shown, some, stream
from tests.workers.ray_head import head

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: it comes with headrace[ray]"),
]

INTEGRATIONS = bool(os.environ.get("HEADRACE_TEST_INTEGRATIONS"))
FULL = [
    pytest.mark.skipif(not INTEGRATIONS and DEPTH != "deep", reason="runs under scripts/test --integrations or --deep"),
    *([pytest.mark.integrations] if INTEGRATIONS else []),
]


def full(test: Callable[..., None]) -> Callable[..., None]:
    for mark in FULL:
        test = mark(test)
    return test


def more(reduced: list[str], names: dict[str, Any]) -> list[Any]:
    """These always, all the others in full runs."""
    return [name if name in reduced else pytest.param(name, marks=FULL) for name in names]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with head() as address:
        import ray

        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()


# --- law 2: the same stream -------------------------------------------------------------------------------------------

EXAMPLES = {
    "indexed": Pipe.of(Numbers(101)).shuffle().map(drawn).batch(8),
    "filtered": Pipe.of(Numbers(101)).shuffle().map(drawn).filter(odd).batch(8).map(drawn),
    "assembled": Pipe.of(Numbers(101)).map(drawn).flatmap(some).batch(7),
    "three stages": Pipe.of(Numbers(101)).flatmap(some).batch(3).filter(odd).map(drawn).batch(2).map(drawn),
    "streamed": Pipe.of(stream(101)).shuffle(window=10).sharding_filter().map(drawn).batch(6),
    "only a stream": Pipe.of(stream(101)).shuffle(buffer_size=10),
    "tail": Pipe.of(Numbers(60)).filter(odd).shuffle(buffer_size=5).batch(4).map(drawn),
}


@pytest.mark.parametrize("name", more(["three stages"], EXAMPLES))
def test_the_stream_is_the_same_inline_and_in_actors(name: str) -> None:
    assert read(EXAMPLES[name], 2, workers=2, kind="ray") == read(EXAMPLES[name], 2)


@full
@pytest.mark.timeout(900)
@settings(max_examples=40 if DEPTH == "deep" else 12)
@given(pipes(RANDOM_STEPS))
def test_the_stream_of_any_pipe_is_the_same_inline_and_in_actors(pipe: Pipe[Any]) -> None:
    assert read(pipe, 2, workers=2, kind="ray") == read(pipe, 2)


@full
def test_strands_give_one_stream_for_any_number_of_actors() -> None:
    pipe = Pipe.of(stream(90)).map(drawn).batch(4)
    assert read(pipe, workers=3, kind="ray", strands=2) == read(pipe, workers=1, kind="ray", strands=2)


# --- law 3: snapshots -------------------------------------------------------------------------------------------------


RAY: dict[str, Any] = {"workers": depth(1, 2), "kind": "ray"}
INLINE: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("name", "first", "then"),
    [
        ("streamed", RAY, INLINE),
        ("filtered", INLINE, RAY),
        *(pytest.param(name, RAY, {**RAY, "workers": 1}, marks=FULL) for name in EXAMPLES),
        *(pytest.param(name, {"workers": 2}, RAY, marks=FULL) for name in EXAMPLES),
        *(pytest.param(name, RAY, {"workers": 3}, marks=FULL) for name in ("assembled", "tail")),
    ],
)
def test_a_snapshot_loads_on_any_kind(name: str, first: dict[str, Any], then: dict[str, Any]) -> None:
    pipe = EXAMPLES[name]
    whole = read(pipe)
    with Loader(pipe, seed=3, **first) as loader:
        samples = iter(loader)
        got = [shown(next(samples)) for _ in range(3)]
        text = json.dumps(loader.state_dict())
    with Loader(pipe, seed=3, **then) as loader:
        loader.load_state_dict(json.loads(text))
        assert got + [shown(sample) for sample in loader] == whole


# --- law 4: deaths ----------------------------------------------------------------------------------------------------

KILLED = depth((5,), (5, 25, 45))
DEADLY = {
    "indexed": Pipe.of(Numbers(200)).shuffle().map(drawn).batch(4),
    "filtered": Pipe.of(Numbers(200)).map(drawn).filter(odd).batch(2).map(drawn),
    "streamed": Pipe.of(stream(200)).shuffle(window=30).sharding_filter().map(drawn).batch(4),
}


@pytest.mark.parametrize("name", more(["streamed"], DEADLY))
def test_killed_actors_do_not_change_the_stream(name: str) -> None:
    want, got = read(DEADLY[name]), []
    with Loader(DEADLY[name], seed=3, workers=2, kind="ray") as loader:
        for i, batch in enumerate(loader):
            got.append(shown(batch))
            if i in KILLED:
                pids = loader._pool.all()[0].pids()
                os.kill(pids[i % len(pids)], signal.SIGKILL)
        assert loader.stats().retries > 0
    assert got == want


def test_without_restarts_the_first_death_is_an_error_that_says_how() -> None:
    with Loader(DEADLY["indexed"], workers=1, kind="ray", restarts=0) as loader:
        batches = iter(loader)
        next(batches)
        os.kill(loader._pool.all()[0].pids()[0], signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"unexpectedly exits.*0 restarts"):
            list(batches)


def deadly(x: int) -> int:
    if x == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


@full
def test_a_sample_that_kills_twice_is_named() -> None:
    pipe = Pipe.of(Numbers(20)).map(deadly).batch(4)
    with pytest.raises(PoisonSample, match="position 13"), Loader(pipe, workers=1, kind="ray") as loader:
        list(loader)


@pytest.mark.deep
def test_a_sample_that_kills_twice_can_be_left_out() -> None:
    pipe = Pipe.of(Numbers(20)).map(deadly).batch(4)
    with Loader(pipe, workers=1, kind="ray", on_poison="skip") as loader:
        assert list(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 14, 15], [16, 17, 18, 19]]


@full
def test_actors_that_cannot_start_are_given_up() -> None:
    def die(number: int) -> None:
        os._exit(3)

    with (
        pytest.raises(WorkerDied, match="while they start"),
        Loader(DEADLY["indexed"], workers=1, kind="ray", worker_init=die) as loader,
    ):
        next(iter(loader))


# --- law 5: views -----------------------------------------------------------------------------------------------------


BATCHES = depth(12, 30)


class Arrays:
    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, i: int) -> np.ndarray:
        return np.full(500_000, i, np.int64)


@pytest.fixture(params=["near", "far"])
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Actors write into the consumer's slots, or, because these are out of reach, into the object store."""
    placed: set[bool] = set()
    make = answers.reply_of

    def noted(ticket: Any, worker: Any, answer: Any, arena: Any) -> Any:
        assert answer.result.size > 0
        placed.add(answer.image is None)
        return make(ticket, worker, answer, arena)

    monkeypatch.setattr("headrace.engine.workers.ray.workers.reply_of", noted)
    if request.param == "far":
        monkeypatch.setattr(same_node, "slot_address", lambda slot: (slot.number, "/proc/self/fd/0", 0, 0))
    yield
    # (The first results come through the store: how large they are is not known before.)
    assert placed == ({True, False} if request.param == "near" else {False})


@pytest.mark.deep
@pytest.mark.usefixtures("placed")
def test_batches_are_writable_and_stay_valid_however_many_are_held_and_whoever_is_killed() -> None:
    # 240 MB in all: twice the object store. (Reduced: not all of it at once, and one death.)
    pipe = Pipe.of(Arrays()).batch(2).collate()
    with Loader(pipe, workers=depth(1, 2), kind="ray", memory=1 << 25) as loader:
        held = []
        for i, batch in enumerate(loader):
            assert (batch[:, ::1000] == [[2 * i], [2 * i + 1]]).all()
            batch += 1000
            held.append(batch)
            if i in depth((3,), (3, 11)):
                os.kill(loader._pool.all()[0].pids()[-1], signal.SIGKILL)
        assert len(held) == BATCHES
        assert loader.stats().retries > 0
    for i, batch in enumerate(held):
        assert (batch[:, ::1000] == [[1000 + 2 * i], [1001 + 2 * i]]).all()


def add_one(batch: list[np.ndarray]) -> list[np.ndarray]:
    for array in batch:
        array += 1
    return batch


def test_samples_of_the_stage_before_can_be_written_to() -> None:
    pipe = Pipe.of(Arrays()).map(lambda a: a[:2000]).filter(lambda a: a[0] % 2 == 0).batch(2).map(add_one).collate()
    with Loader(pipe, workers=depth(1, 2), kind="ray") as loader:
        assert [batch[:, 0].tolist() for batch in loader] == [[4 * i + 1, 4 * i + 3] for i in range(BATCHES // 2)]


# --- trouble ----------------------------------------------------------------------------------------------------------


def fails(x: int) -> int:
    if x == 7:
        raise KeyError("seven")
    return x


def test_an_error_keeps_its_type_and_gains_its_place() -> None:
    with Loader(Pipe.of(Numbers(20)).map(fails).batch(5), workers=depth(1, 2), kind="ray") as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1, 2, 3, 4]
        with pytest.raises(KeyError, match="seven") as caught:
            next(batches)
        assert "position 7" in "".join(caught.value.__notes__)
        assert caught.traceback[-1].name == "fails"
        assert next(batches) == [10, 11, 12, 13, 14]


def test_an_error_leaves_every_other_sample_made_exactly_once(tmp_path: Path) -> None:
    note = Noting(tmp_path / "calls", BAD["in the middle"])
    with Loader(Pipe.of(Numbers(SIZE)).map(note), workers=2, kind="ray") as loader:
        found = list(results(loader))
    assert found == [("failed", x) if x in note.bad else x for x in range(SIZE)]
    assert note.calls() == Counter(range(SIZE))


def test_an_error_while_an_actor_starts_is_raised_as_it_is() -> None:
    def refuse(number: int) -> None:
        raise LookupError("no licence")

    with (
        pytest.raises(LookupError, match="no licence"),
        Loader(Pipe.of(Numbers(20)), workers=1, kind="ray", worker_init=refuse) as loader,
    ):
        next(iter(loader))


@full
def test_actors_are_replaced_after_so_many_tickets() -> None:
    pipe = Pipe.of(Numbers(40)).map(lambda x: (x, os.getpid())).batch(4)
    with Loader(pipe, workers=1, kind="ray", recycle=4) as loader:
        samples = [sample for batch in loader for sample in batch]
        assert loader.stats().retries == 0
    assert [x for x, _ in samples] == list(range(40))
    assert len({pid for _, pid in samples}) >= 2


def wait_for_ever(x: int) -> int:
    if x == 5:
        signal.pause()
    return x


@full
def test_a_stuck_actor_is_named_with_its_stack() -> None:
    with Loader(Pipe.of(Numbers(8)).map(wait_for_ever).batch(2), workers=1, kind="ray", timeout=20) as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1]
        with pytest.raises(WorkerStuck, match="in wait_for_ever"):
            list(batches)


@full
def test_two_loaders_share_the_cluster() -> None:
    with (
        Loader(Pipe.of(Numbers(40)).map(double).batch(4), workers=1, kind="ray") as one,
        Loader(Pipe.of(Numbers(40)).batch(4), workers=2, kind="ray") as two,
    ):
        for a, b in zip(one, two, strict=True):
            assert [x for x, _ in a] == b


# --- the cluster ------------------------------------------------------------------------------------------------------


def test_without_ray_the_error_names_the_extra(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        sys.modules["ray"] = None
        from headrace import Loader, Pipe
        next(iter(Loader(Pipe.of([1, 2]), workers=1, kind="ray")))
        """
    )
    last = done.stderr.splitlines()[-1]
    assert last == "headrace.errors.MissingExtra: ray is not installed; it comes with: pip install 'headrace[ray]'"
