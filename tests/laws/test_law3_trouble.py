"""Law 3, generated: any pipe, any kind of worker, any number of ranks, any trouble, at any moment.

Then a snapshot, and on in another world: what was delivered and the rest are everything, once, in order.

    error, own      user code raises, also what is no Exception
    interrupt       Ctrl-C at any moment inside `next()`
    kill, poison    a worker dies in a sample, once or each time
    stuck           a worker hangs, once
    full disk       autosave cannot write

Ranks are loaders of this process, which make as many steps as the one that made the fewest. Pipes whose ranks
exchange counts stand in one world here: `test_law3_interrupted_ranks` has the others.
"""

import errno
import json
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Autosave, Loader, Pipe, World
from headrace.engine import saver
from headrace.errors import PoisonSample, SnapshotRefused, WorkerDied
from tests.depth import depth
from tests.laws.moments import Moment
from tests.laws.pipes import KINDS, Numbers, keyed, odd, stream

N = 60
PROCESSES = depth(["fork2", "server3"], ["fork2", "fork5", "server3", "forkserver2"])
WHEREVER = ["inline", "thread3", *PROCESSES]


class GivenUp(BaseException):
    """Not an Exception."""


@dataclass
class Trouble:
    """What one sample does, until a file is there."""

    how: str
    at: int
    folder: Path

    def __call__(self, x: Any) -> Any:
        if value(x) == self.at and not (self.folder / "calm").exists():
            if self.how == "error":
                raise ValueError("mine")
            if self.how == "own":
                raise GivenUp
            if self.how == "poison":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how in ("kill", "stuck") and self._first_time():
                if self.how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()
        return x

    def column(self, columns: dict[str, Any]) -> dict[str, Any]:
        for x in columns["k"]:
            self(int(x))
        return columns

    def each(self, batch: list[Any]) -> list[Any]:
        return [self(x) for x in batch]

    def _first_time(self) -> bool:
        try:
            os.close(os.open(self.folder / "met", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def value(x: Any) -> Any:
    return x[0] if isinstance(x, tuple | list) else x


def document(x: int) -> list[int]:
    return [x] * (1 + x % 3)


SINGLE: dict[str, Any] = {
    "unbatched": lambda t: Pipe.of(Numbers(N)).shuffle().map(keyed).map(t),
    "bare stream": lambda t: Pipe.of(stream(N)).map(keyed).map(t),
    "windowed": lambda t: Pipe.of(Numbers(N)).shuffle(window=7).map(t),
}
BATCHED: dict[str, Any] = {
    "batched": lambda t: Pipe.of(Numbers(N)).shuffle().map(t).map(keyed).batch(4),
    "mapped": lambda t: Pipe.of(Numbers(N)).batch(3).map(t.each),
    "streamed": lambda t: Pipe.of(stream(N)).map(t).map(keyed).batch(4),
    "columnar": lambda t: Pipe.of({"k": np.arange(N)}).batch(4).map(t.column),
    "mixed": lambda t: Pipe.of(Numbers(N)).mix(Pipe.of(Numbers(N)).map(keyed), weights=(2, 1)).map(t).batch(4),
}
ALONE: dict[str, Any] = {
    "filtered": lambda t: Pipe.of(Numbers(N)).shuffle().filter(odd).map(t).batch(3),
    "flattened": lambda t: Pipe.of(Numbers(N)).map(t).flatmap(document).map(keyed),
    "packed": lambda t: Pipe.of(Numbers(N)).map(t).map(document).pack(8, window=5),
    "in the consumer": lambda t: Pipe.of(Numbers(N)).map(t).batch(3).sharding_filter().enumerate(),
}
PIPES = {**SINGLE, **BATCHED, **ALONE}


def texts(sample: Any) -> list[str]:
    """A delivery as texts, one a sample where it is a list of them."""
    if isinstance(sample, dict):
        return [f"{name} {x}" for name in sorted(sample) for x in np.asarray(sample[name]).ravel().tolist()]
    return [repr(x) for x in sample] if isinstance(sample, list) else [repr(sample)]


def read(samples: Any, steps: int, moment: Moment | None) -> list[list[str]]:
    """Up to so many deliveries, or to the trouble."""
    got: list[list[str]] = []
    try:
        for _ in range(steps):
            sample = next(samples) if moment is None else moment.of(lambda: next(samples))
            got.append(texts(sample))
    except (StopIteration, KeyboardInterrupt, ValueError, GivenUp, PoisonSample, WorkerDied):
        pass
    return got


@dataclass
class Case:
    name: str
    how: str
    at: int
    """Which sample, or which moment."""
    steps: int
    """After so many it is left, if nothing has happened by then."""
    first: str
    then: str
    ranks: int
    later: int
    ordered: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(list(PIPES)))
    # (Without processes of its own nobody can be killed; a hang costs its time-out.)
    first = draw(st.sampled_from(WHEREVER))
    killed = ["kill", "poison", *depth([], ["stuck"])] if first in PROCESSES else []
    how = draw(st.sampled_from(["error", "own", "interrupt", "full disk", *killed]))
    alone = name in ALONE or how == "full disk"
    return Case(
        name,
        how,
        draw(st.integers(0, 4000 if how == "interrupt" else N - 1)),
        draw(st.integers(0, 40)),
        first,
        draw(st.sampled_from(WHEREVER)),
        1 if alone else draw(st.integers(1, 3)),
        1 if alone else draw(st.integers(1, 3)),
        draw(st.booleans()) or how == "full disk",
    )


@pytest.mark.timeout(depth(120, 3000))
@settings(max_examples=depth(15, 600))
@given(cases())
def test_after_any_trouble_delivered_and_rest_are_everything_once_in_order(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(case, Path(folder))


def check(case: Case, folder: Path) -> None:
    pipe = PIPES[case.name](Trouble(case.how, case.at, folder))
    whole = [text for sample in calm(folder, pipe) for text in sample]
    delivered, states = [], []
    for rank in range(case.ranks):
        got, state = troubled(case, pipe, World(rank=rank, ranks=case.ranks), folder)
        delivered.append(got)
        states.append(state)
    least = min(range(case.ranks), key=lambda rank: len(delivered[rank]))
    steps = [got[: len(delivered[least])] for got in delivered]
    state, rest = states[least], []
    if case.later > 1 and state["at"] is not None and "ahead" in state["at"]:
        # The one refusal: what is left has gaps, which arithmetic cannot share.
        with pytest.raises(SnapshotRefused, match="before their turn"):
            calm(folder, pipe, state, World(rank=0, ranks=case.later), case.then)
        case.later = 1
    if state["epoch"] == 0:
        rest = [calm(folder, pipe, state, World(rank=rank, ranks=case.later), case.then) for rank in range(case.later)]
        assert len({len(got) for got in rest}) == 1, "steps are equal"
    got = [text for part in (steps, rest) for step in zip(*part, strict=True) for sample in step for text in sample]
    missing = len(whole) - len(got)
    assert 0 <= missing < max(case.ranks, case.later), "at most what not every rank could get"
    if case.name not in SINGLE and (max(case.ranks, case.later) > 1 or not case.ordered):
        assert sorted(got) == sorted(whole)
    else:
        assert got == whole[: len(got)]


def troubled(case: Case, pipe: Pipe[Any], world: World, folder: Path) -> tuple[list[list[str]], Any]:
    """What a rank delivers up to the trouble, and its snapshot then."""
    options: dict[str, Any] = {**KINDS[case.first], "world": world, "ordered": case.ordered}
    if case.how == "stuck":
        options |= {"timeout": 1.0, "on_stuck": "replace"}
    if case.how == "full disk":
        return on_a_full_disk(case, pipe, folder, options)
    moment = Moment(case.at, KeyboardInterrupt()) if case.how == "interrupt" else None
    with Loader(pipe, seed=3, **options) as loader:
        got = read(iter(loader), case.steps, moment)
        return got, json.loads(json.dumps(loader.state_dict()))


def on_a_full_disk(case: Case, pipe: Pipe[Any], folder: Path, options: dict[str, Any]) -> tuple[list[list[str]], Any]:
    write, path, calls = saver.atomic_write, folder / "saved.json", iter(range(10**6))

    def sometimes(*given: Any, **how: Any) -> Any:
        if next(calls) % 7 > case.at % 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*given, **how)

    with (
        mock.patch.object(saver, "atomic_write", sometimes),
        Loader(pipe, seed=3, autosave=Autosave(path, every=2), **options) as loader,
    ):
        got = read(iter(loader), case.steps, None)
        state = json.loads(json.dumps(loader.state_dict()))
    if path.exists():
        with Loader(pipe, seed=3, autosave=path) as loader:
            rest = [texts(sample) for sample in loader] if loader.epoch == 0 else []
        whole = [texts(sample) for sample in Loader(pipe, seed=3)]
        assert rest == whole[len(whole) - len(rest) :]
        assert len(got) + len(rest) >= len(whole)
    return got, state


def calm(
    folder: Path, pipe: Pipe[Any], state: Any = None, world: World | None = None, kind: str = "inline"
) -> list[list[str]]:
    """An epoch without trouble."""
    (folder / "calm").touch()
    try:
        with Loader(pipe, seed=3, world=world or World(), **KINDS[kind]) as loader:
            if state is not None:
                loader.load_state_dict(state)
            return [texts(sample) for sample in loader]
    finally:
        (folder / "calm").unlink()
