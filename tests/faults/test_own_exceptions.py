"""What user code raises arrives as itself from every kind of worker: also what is no `Exception`.

It is the answer of one batch, or of one sample where nothing is batched: those before it come first, those behind it
afterwards. Without workers it goes up at once, as an interrupt does, and a snapshot stands before it.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe
from tests.depth import depth
from tests.faults import deadly
from tests.faults.deadly import BAD, SIZE, Numbers

STARTED = {
    "threads": {"workers": 2, "kind": "thread"},
    "fork": {"workers": 2, "start_method": "fork"},
    "server": {"workers": 2, "start_method": "server"},
    "forkserver": {"workers": 2, "start_method": "forkserver"},
    "spawn": {"workers": 1, "start_method": "spawn"},
    "ray": {"workers": 1, "kind": "ray"},
}
LARGE = (
    pytest.param("forkserver", marks=pytest.mark.skipif(depth(True, False), reason="runs under scripts/test --deep")),
    pytest.param("spawn", marks=pytest.mark.skipif(depth(True, False), reason="runs under scripts/test --deep")),
    pytest.param(
        "ray",
        marks=[
            pytest.mark.integrations,
            pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: it comes with headrace[ray]"),
        ],
    ),
)


def cancelled() -> Any:
    raise asyncio.CancelledError("stopped")


class Once:
    """A good sample, once a file is there."""

    def __init__(self, how: Callable[[], Any], calm: Path) -> None:
        self.how = how
        self.calm = str(calm)

    def __call__(self) -> Any:
        return BAD if os.path.exists(self.calm) else self.how()


class Picky:
    """The same trouble in a `map`."""

    def __init__(self, how: Callable[[], Any]) -> None:
        self.how = how

    def __call__(self, x: int) -> Any:
        return self.how() if x == BAD else x


class Counted:
    """The same in a stream."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def __iter__(self) -> Iterator[int]:
        return (self.numbers[i] for i in range(SIZE))


def not_none(x: Any) -> bool:
    return x is not None


def shapes(how: Callable[[], Any]) -> dict[str, tuple[Pipe[Any], list[Any], list[Any]]]:
    """A pipe, what it delivers before the bad one, and behind it."""
    fours = [list(range(i, i + 4)) for i in range(0, SIZE, 4)]
    singles = list(range(SIZE))
    behind = (singles[:BAD], singles[BAD + 1 :])
    return {
        "batches": (Pipe.of(Numbers(how)).batch(4), fours[:3], fours[4:]),
        "samples": (Pipe.of(Numbers(how)), *behind),
        "mapped samples": (Pipe.of(Numbers()).filter(not_none).map(Picky(how)), *behind),
        "regrouped": (Pipe.of(Numbers()).filter(not_none).batch(4).map(EachOf(Picky(how))), fours[:3], fours[4:]),
        # (An iterator that has raised is over.)
        "stream": (Pipe.of(Counted(Numbers(how))), singles[:BAD], []),
        "mapped stream": (Pipe.of(Counted(Numbers())).map(Picky(how)), *behind),
    }


class EachOf:
    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.call = call

    def __call__(self, batch: list[Any]) -> list[Any]:
        return [self.call(x) for x in batch]


RAISED: dict[str, tuple[Callable[[], Any], BaseException]] = {
    "sys.exit": (deadly.calls_sys_exit, SystemExit(5)),
    "interrupt": (deadly.interrupts_itself, KeyboardInterrupt()),
    "own": (deadly.gives_up, deadly.GivenUp("enough")),
    "cancelled": (cancelled, asyncio.CancelledError("stopped")),
}


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    from tests.workers.ray_head import head

    with head() as address:
        import ray

        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()


@contextmanager
def loading(kind: str, request: pytest.FixtureRequest) -> Iterator[Callable[[Pipe[Any]], Loader[Any]]]:
    if kind == "ray":
        request.getfixturevalue("cluster")
    yield lambda pipe: Loader(pipe, timeout=60, **STARTED[kind])  # type: ignore[arg-type]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["threads", "fork", "server", *LARGE])
def test_what_user_code_raises_arrives_as_itself_and_costs_nothing_else(
    kind: str, request: pytest.FixtureRequest
) -> None:
    with loading(kind, request) as load:
        for number, (raised, (how, want)) in enumerate(RAISED.items()):
            for place, (shape, (pipe, before, behind)) in enumerate(shapes(how).items()):
                if depth(kind != "threads" and (place + number) % 4 != 0, False):
                    continue
                with load(pipe) as loader:
                    samples, got = iter(loader), []
                    with pytest.raises(type(want)) as caught:
                        got.extend(samples)
                    assert (caught.value.args, got) == (want.args, before), (raised, shape)
                    assert " at position " in caught.value.__notes__[0], (raised, shape)
                    assert list(samples) == behind, (raised, shape)
                    assert loader.stats().retries == 0


@pytest.mark.parametrize("raised", list(RAISED))
def test_without_workers_it_goes_up_at_once_and_a_snapshot_stands_before_it(raised: str, tmp_path: Path) -> None:
    how, want = RAISED[raised]
    for shape, (pipe, before, _) in shapes(Once(how, tmp_path / "calm")).items():
        got: list[Any] = []
        with Loader(pipe) as loader, pytest.raises(type(want)) as caught:
            got.extend(loader)
        assert caught.value.args == want.args
        assert got == before[: len(got)], shape
        (tmp_path / "calm").touch()
        with Loader(pipe) as again:
            again.load_state_dict(loader.state_dict())
            assert got + list(again) == list(Loader(pipe)), shape
        (tmp_path / "calm").unlink()
