"""Law 3 after an error: of every kind, at every step, in every kind of worker.

A snapshot after the error stands after the batch received last: delivered + rest = everything, once it does not fail.
An iterator that goes on goes on behind the failed batch, and the next batch that is received commits that.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import Closed, PoisonSample, WorkerDied, WorkerStuck
from tests.depth import across, depth
from tests.engine.scripted import Script, ScriptedWorkers
from tests.laws.pipes import KINDS, Numbers, keyed, odd, shown, stream


class Fails:
    """Fails at one sample until a file is there."""

    def __init__(self, at: int, calm: Path, how: str = "error") -> None:
        self.at = at
        self.calm = str(calm)
        self.how = how

    def __call__(self, x: int) -> int:
        if x == self.at and not os.path.exists(self.calm):
            if self.how == "error":
                raise ValueError("mine")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "stick":
                signal.pause()
        return x


def shapes(fails: Any) -> dict[str, Pipe[Any]]:
    return {
        "batches": Pipe.of(Numbers(30)).shuffle().map(fails).map(keyed).batch(4),
        "single samples": Pipe.of(Numbers(30)).shuffle().map(fails),
        "regrouped": Pipe.of(Numbers(60)).filter(odd).map(fails).batch(3),
        "stream": Pipe.of(stream(30)).map(fails).map(keyed).batch(4),
        "serial stream": Pipe.of(stream(30)).map(fails).shuffle(window=5).batch(4),
        "in the consumer": Pipe.of(Numbers(30)).map(fails).batch(3).sharding_filter().enumerate(),
        "consumer's own": Pipe.of(Numbers(30)).sharding_filter().enumerate().map(lambda p: (p[0], fails(p[1]))),
    }


NAMES = list(shapes(abs))


def resumed(pipe: Pipe[Any], state: Any, calm: Path, **how: Any) -> list[str]:
    calm.touch()
    try:
        with Loader(pipe, seed=3, **how) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            return [shown(s) for s in loader]
    finally:
        calm.unlink()


def whole_of(pipe: Pipe[Any], calm: Path) -> list[str]:
    calm.touch()
    try:
        with Loader(pipe, seed=3) as loader:
            return [shown(s) for s in loader]
    finally:
        calm.unlink()


def read_to_error(samples: Iterator[Any], error: type[BaseException], got: list[str]) -> None:
    with pytest.raises(error):
        got.extend(shown(sample) for sample in samples)


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "inline") for name in NAMES), *across(NAMES, ["thread1", "fork2"])]
)
def test_after_an_error_of_the_pipe_nothing_is_lost_and_the_iterator_goes_on_behind_it(
    name: str, kind: str, tmp_path: Path
) -> None:
    calm = tmp_path / "calm"
    for at in range(0, 30, depth(11, 1) if kind == "inline" else depth(17, 7)):
        pipe = shapes(Fails(at | 1, calm))[name]
        whole, got = whole_of(pipe, calm), []
        with Loader(pipe, seed=3, **KINDS[kind]) as loader:
            samples = iter(loader)
            read_to_error(samples, ValueError, got)
            assert got + resumed(pipe, loader.state_dict(), calm) == whole
            first = next(samples, None)
            if first is None:
                continue
            got.append(shown(first))
            rest = resumed(pipe, loader.state_dict(), calm)
            assert [shown(sample) for sample in samples] == rest
            assert len(whole) - 2 <= len(got + rest) <= len(whole)
            assert got + rest != whole


ENGINE = [WorkerDied("x"), WorkerStuck("x"), PoisonSample("x"), ConnectionResetError("x"), KeyboardInterrupt("x")]


@pytest.mark.parametrize("trouble", ENGINE, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_after_trouble_of_the_engine_at_any_reply_nothing_is_lost(
    name: str, trouble: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = tmp_path / "calm"
    pipe = shapes(Fails(-1, calm))[name]
    whole = whole_of(pipe, calm)
    for number in range(0, 40, depth(13, 1)):
        got: list[str] = []
        workers = ScriptedWorkers(Script(number, fails={number: trouble}))
        with monkeypatch.context() as patch:
            patch.setattr("headrace.engine.pool.maker", lambda policy, w=workers: lambda: w)
            scripted = Loader(pipe, seed=3, workers=2, kind="thread")
        with scripted as loader:
            samples = iter(loader)
            try:
                got.extend(shown(sample) for sample in samples)
            except type(trouble):
                state = loader.state_dict()
                with pytest.raises(Closed, match=type(trouble).__name__):
                    next(samples)
                assert loader.state_dict() == state
                del samples
                assert loader.state_dict() == state
                assert got + resumed(pipe, state, calm) == whole


@pytest.mark.parametrize(
    ("how", "error", "options"),
    [
        ("kill", PoisonSample, {}),
        ("kill", WorkerDied, {"restarts": 0}),
        ("stick", WorkerStuck, {"timeout": 1.0}),
    ],
)
@pytest.mark.parametrize("name", ["batches", "serial stream"])
def test_after_real_trouble_in_a_worker_nothing_is_lost(
    name: str, how: str, error: type[BaseException], options: dict[str, Any], tmp_path: Path
) -> None:
    calm = tmp_path / "calm"
    pipe = shapes(Fails(13, calm, how))[name]
    whole, got = whole_of(pipe, calm), []
    with Loader(pipe, seed=3, workers=2, start_method="fork", **options) as loader:
        read_to_error(iter(loader), error, got)
        assert got + resumed(pipe, loader.state_dict(), calm) == whole


def test_a_base_exception_of_user_code_without_workers_loses_nothing(tmp_path: Path) -> None:
    class Own(BaseException):
        pass

    calm, calls = tmp_path / "calm", []

    def leave(x: int) -> int:
        calls.append(x)
        if len(calls) == 17:
            raise Own
        return x

    pipe, got = Pipe.of(Numbers(30)).map(leave).batch(4), []
    with Loader(pipe, seed=3) as loader:
        read_to_error(iter(loader), Own, got)
        assert got + resumed(pipe, loader.state_dict(), calm) == [
            shown(list(range(i, min(i + 4, 30)))) for i in range(0, 30, 4)
        ]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("grouped", [True, False])
def test_an_error_behind_a_filter_comes_as_itself_and_what_follows_is_the_same_for_every_kind(
    streamed: bool, grouped: bool
) -> None:
    for bad in (3, 57, 89):

        def picky(x: int, bad: int = bad) -> int:
            if x == bad:
                raise KeyError(x)
            return x

        pipe: Any = (Pipe.of(lambda: iter(range(91))) if streamed else Pipe.of(list(range(91)))).filter(not_fifth)
        pipe = pipe.map(picky).batch(8) if grouped else pipe.map(picky)
        found = [
            said(pipe, kind) for kind in ({}, {"workers": 2, "kind": "thread"}, {"workers": 2, "start_method": "fork"})
        ]
        assert found[0] == found[1] == found[2]
        assert found[0].count(f"error {bad}") == 1
        delivered = [x for part in found[0] if not isinstance(part, str) for x in (part if grouped else [part])]
        assert delivered == sorted(set(delivered))
        # The error costs the group that it was in, and of single samples itself only.
        assert len({x for x in range(91) if x % 5} - set(delivered)) <= (8 if grouped else 1)


def not_fifth(x: int) -> bool:
    return x % 5 > 0


def said(pipe: Any, options: dict[str, Any]) -> list[Any]:
    """Everything that an iterator gives, errors as texts."""
    found: list[Any] = []
    with Loader(pipe, **options) as loader:
        batches = iter(loader)
        while True:
            try:
                found.append(next(batches))
            except StopIteration:
                return found
            except KeyError as error:
                found.append(f"error {error.args[0]}")
