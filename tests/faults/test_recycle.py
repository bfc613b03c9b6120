"""Workers that are replaced on purpose, and samples that are left out on purpose: the stream is the same every time."""

import json
import os
import signal
from typing import Any

import pytest

from headrace import Budget, Loader, Pipe
from headrace.errors import TooManyErrors
from tests.depth import across, depth
from tests.laws.pipes import Numbers, drawn, odd, read, shown, some, stream

KINDS: dict[str, dict[str, Any]] = {
    "inline": {},
    "thread": {"workers": 2, "kind": "thread"},
    "fork1": {"workers": 1, "start_method": "fork"},
    "fork2": {"workers": 2, "start_method": "fork"},
    "server3": {"workers": 3, "start_method": "server"},
}
PROCESSES = [kind for kind, how in KINDS.items() if "start_method" in how]

# --- workers that are replaced on purpose -----------------------------------------------------------------------------

PIPES = {
    "indexed": Pipe.of(Numbers(100)).shuffle().map(drawn).batch(4),
    "single": Pipe.of(Numbers(200)).shuffle().map(drawn),
    "filtered": Pipe.of(Numbers(100)).map(drawn).filter(odd).batch(4),
    "spread": Pipe.of(Numbers(100)).flatmap(some).map(drawn).batch(4),
    "streamed": Pipe.of(stream(400)).shuffle(window=30).sharding_filter().map(drawn).batch(16),
    "reservoir": Pipe.of(stream(400)).shuffle(buffer_size=30).sharding_filter().map(drawn).batch(16),
}


@pytest.mark.parametrize(("name", "kind"), across(PIPES, PROCESSES))
def test_workers_that_are_replaced_after_so_many_tickets_do_not_change_the_stream(name: str, kind: str) -> None:
    want = read(PIPES[name], epochs=2)
    for after in depth([1], [1, 2, 3, 7, 20]):
        assert read(PIPES[name], epochs=2, recycle=after, timeout=20, **KINDS[kind]) == want


@pytest.mark.parametrize("kind", PROCESSES)
def test_workers_are_really_replaced_and_that_is_no_death(kind: str) -> None:
    pipe = Pipe.of(Numbers(200)).map(lambda x: os.getpid()).batch(4)
    with Loader(pipe, recycle=2, timeout=20, restarts=0, **KINDS[kind]) as loader:
        seen = {pid for batch in loader for pid in batch}
        assert loader.stats().retries == 0
        assert len(loader.worker_pids()) == loader.policy.workers
    assert len(seen) > loader.policy.workers + 2


def heavy(x: int) -> tuple[int, int]:
    """Keeps ten megabytes for ever."""
    heavy.__dict__.setdefault("kept", []).append(b"x" * 10_000_000)
    return x, os.getpid()


@pytest.mark.parametrize("kind", PROCESSES)
def test_workers_that_have_grown_too_large_are_replaced(kind: str) -> None:
    with Loader(Pipe.of(Numbers(4)).map(private_memory), **KINDS[kind]) as measured:
        small = max(measured)
    pipe = Pipe.of(Numbers(60)).map(heavy).batch(2)
    with Loader(pipe, recycle_memory=small + 45_000_000, timeout=20, **KINDS[kind]) as loader:
        got = [pair for batch in loader for pair in batch]
        assert loader.stats().retries == 0
    assert [x for x, _ in got] == list(range(60))
    assert len({pid for _, pid in got}) > loader.policy.workers


def private_memory(_: Any) -> int:
    from headrace.engine.workers.process.child import private_memory

    return private_memory()


@pytest.mark.parametrize("name", ["indexed", "filtered", "streamed"])
def test_kills_among_the_replacements_do_not_change_the_stream(name: str) -> None:
    want = read(PIPES[name])
    got = []
    with Loader(PIPES[name], seed=3, recycle=2, timeout=20, **KINDS["fork2"]) as loader:
        for i, batch in enumerate(loader):
            got.append(shown(batch))
            if i % 5 == 1:
                os.kill(loader.worker_pids()[i % 2], signal.SIGKILL)
    assert got == want


@pytest.mark.parametrize("name", ["indexed", "spread", "reservoir"])
def test_a_snapshot_between_replacements_goes_on_in_the_same_stream(name: str) -> None:
    want = read(PIPES[name])
    with Loader(PIPES[name], seed=3, recycle=1, timeout=20, **KINDS["fork2"]) as loader:
        batches = iter(loader)
        got = [shown(next(batches)) for _ in range(11)]
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(PIPES[name], seed=3, recycle=3, timeout=20, **KINDS["server3"]) as loader:
        loader.load_state_dict(state)
        assert got + [shown(batch) for batch in loader] == want


# --- samples that are left out on purpose -----------------------------------------------------------------------------


def fails(x: Any) -> Any:
    if x % 10 == 3:
        raise ValueError(x)
    return x


def fails_later(batch: list[int]) -> list[int]:
    if sum(batch) % 3 == 1:
        raise KeyError(tuple(batch))
    return batch


class Failing(Numbers):
    def __getitem__(self, i: int) -> int:
        return int(fails(super().__getitem__(i)))


LOSSY = {
    "indexed": Pipe.of(Numbers(700)).shuffle().map(fails).batch(7),
    "in the dataset": Pipe.of(Failing(700)).shuffle().batch(7),
    "single": Pipe.of(Numbers(700)).shuffle().map(fails),
    "whole batches": Pipe.of(Numbers(700)).shuffle().batch(7).map(fails_later),
    "filtered": Pipe.of(Numbers(700)).shuffle().filter(odd).map(fails).batch(7),
    "two stages": Pipe.of(Numbers(700)).map(fails).filter(odd).batch(7).map(fails_later),
    "streamed": Pipe.of(stream(700)).sharding_filter().map(fails).batch(7),
}


def run(pipe: Pipe[Any], state: Any = None, **how: Any) -> tuple[list[Any], str, int]:
    """What is delivered, how it ended, and how many samples were left out up to there."""
    got: list[Any] = []
    with Loader(pipe, seed=3, timeout=20, **how) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        try:
            got.extend(batches)
        except TooManyErrors as error:
            return got, str(error), batches._run.skipped
        if state is None:
            assert loader.stats().skips == batches._run.skipped
        return got, "", batches._run.skipped


@pytest.mark.parametrize(
    ("name", "policy"), across(LOSSY, ["skip", Budget(count=9), Budget(fraction=0.03), Budget(5000, 0.9)]), ids=str
)
def test_what_is_left_out_is_the_same_on_a_second_run_and_for_every_kind(name: str, policy: Any) -> None:
    want = run(LOSSY[name], on_error=policy)
    assert want[2] > 3
    assert ("more than" in want[1]) == (policy != "skip" and policy.count != 5000)
    for kind in ("inline", "fork2", *depth([], ["thread", "fork1", "server3"])):
        assert run(LOSSY[name], on_error=policy, **KINDS[kind]) == want, kind


@pytest.mark.parametrize(("name", "kind"), across(LOSSY, ["thread", "fork1", "server3"]))
def test_what_is_left_out_is_the_same_for_other_kinds(name: str, kind: str) -> None:
    assert run(LOSSY[name], on_error="skip", **KINDS[kind]) == run(LOSSY[name], on_error="skip")


@pytest.mark.parametrize(("name", "policy"), across(LOSSY, ["skip", Budget(count=40), Budget(fraction=0.3)]), ids=str)
def test_what_is_left_out_is_the_same_after_a_resume(name: str, policy: Any) -> None:
    want, end, skipped = run(LOSSY[name], on_error=policy)
    for at in depth([1, 30], [0, 1, 7, 30, 50, len(want)]):
        with Loader(LOSSY[name], seed=3, timeout=20, on_error=policy, **KINDS["fork2"]) as loader:
            batches = iter(loader)
            first = [next(batches) for _ in range(min(at, len(want)))]
            state = json.loads(json.dumps(loader.state_dict()))
        for kind in depth(["inline"], ["inline", "fork1", "server3"]):
            rest, its_end, its_skipped = run(LOSSY[name], state, on_error=policy, **KINDS[kind])
            # A budget that was spent in two stages: how the one before reads ahead is not in a snapshot.
            got = first + rest if name != "two stages" or not end else (first + rest)[: len(want)]
            assert got == want
            assert bool(its_end) == bool(end)
            assert its_skipped == skipped or (name == "two stages" and end)


def test_a_batch_is_shorter_by_what_failed_and_is_never_filled_up() -> None:
    order = list(Loader(Pipe.of(Numbers(700)).shuffle(), seed=3))
    whole = [order[i : i + 7] for i in range(0, 700, 7)]
    got, _, skipped = run(LOSSY["indexed"], on_error="skip", **KINDS["fork2"])
    assert got == [[x for x in batch if x % 10 != 3] for batch in whole]
    assert skipped == 70


def test_deaths_and_replacements_do_not_change_what_is_left_out() -> None:
    want, _, skipped = run(LOSSY["filtered"], on_error="skip")
    got = []
    with Loader(LOSSY["filtered"], seed=3, on_error="skip", recycle=9, timeout=20, **KINDS["fork2"]) as loader:
        for i, batch in enumerate(loader):
            got.append(batch)
            if i % 20 == 7:
                os.kill(loader.worker_pids()[0], signal.SIGKILL)
        assert loader.stats().skips == skipped
    assert got == want


def test_a_budget_says_which_sample_was_one_too_many() -> None:
    for kind in ("inline", "fork2"):
        with (
            Loader(Pipe.of(Numbers(100)).map(fails).batch(5), on_error=Budget(count=2), **KINDS[kind]) as loader,
            pytest.raises(TooManyErrors, match=r"^3 samples .*Budget\(count=2.*at position 23 in map.*ValueError: 23"),
        ):
            list(loader)


@pytest.mark.parametrize("buffer_size", [20, 500])
def test_a_fraction_is_one_of_the_samples_that_a_stream_has_read(buffer_size: int) -> None:
    pipe = Pipe.of(stream(700)).map(fails).shuffle(buffer_size=buffer_size)
    for kind in ("inline", "fork1"):
        got, end, skipped = run(pipe, on_error=Budget(fraction=0.15), **KINDS[kind])
        assert (sorted(got), end, skipped) == ([x for x in range(700) if x % 10 != 3], "", 70), kind
        assert "more than" in run(pipe, on_error=Budget(fraction=0.05), **KINDS[kind])[1], kind
