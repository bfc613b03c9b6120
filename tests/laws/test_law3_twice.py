"""Law 3, again and again: a reading that was resumed is resumed once more, from a state that it gave itself."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.testing.checks import check_pipe
from tests.laws.pipes import KINDS


def counted(name: str, size: int) -> Callable[[], Iterator[str]]:
    return lambda: (f"{name}{number}" for number in range(size))


def of(name: str, size: int) -> Pipe[Any]:
    return Pipe.of(counted(name, size))


PIPES: dict[str, Callable[[], Pipe[Any]]] = {
    "mix": lambda: of("a", 3).mix(of("b", 12), weights=(1, 1)),
    "mix of three": lambda: of("a", 2).mix(of("b", 9), of("c", 5), weights=(1, 2, 1)),
    "mix, all": lambda: of("a", 3).mix(of("b", 11), weights=(1, 1), ends="all"),
    "mix, forever": lambda: of("a", 3).mix(of("b", 7), weights=(1, 1), ends="forever").header(40),
    "mux": lambda: of("a", 3).mux_longest(of("b", 9)),
    "cycle": lambda: of("a", 5).cycle(4).shuffle(window=3),
    "concat": lambda: of("a", 3).concat(of("b", 6)).batch(2),
}


@pytest.mark.parametrize("name", PIPES)
def test_a_state_stays_as_it_was_taken_while_reading_goes_on(name: str) -> None:
    check_pipe(PIPES[name]())


@pytest.mark.parametrize("kind", ["inline", "thread1", "fork2"])
@pytest.mark.parametrize("name", PIPES)
def test_a_reading_that_is_resumed_every_few_samples_is_the_whole(name: str, kind: str) -> None:
    pipe = PIPES[name]()
    whole = list(Loader(pipe, seed=1))
    got: list[Any] = []
    state, step = None, 3
    while len(got) < len(whole):
        with Loader(pipe, seed=1, **KINDS[kind]) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            batches = iter(loader)
            got += [next(batches) for _ in range(min(step, len(whole) - len(got)))]
            state = json.dumps(loader.state_dict())
    assert got == whole
