"""Random values of samples that an op of a stream reaches by their number: the same on every kind, and after a resume.

Such an op (a mixture, batches of columns, packing) takes its inputs by position, though it runs as a stream, because
one further on needs a stream.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace
from headrace import Loader, Pipe
from tests.depth import across
from tests.laws.pipes import Numbers, drawn, keyed
from tests.laws.pipes import shown as digest

PIPES: dict[str, Callable[[Any], Pipe[Any]]] = {
    "mixed": lambda fn: Pipe.of(Numbers(12)).map(fn).mix(Pipe.of(Numbers(17)).map(fn), weights=[2, 1]),
    "mixed for ever": lambda fn: (
        Pipe.of(Numbers(5)).map(fn).mix(Pipe.of(Numbers(7)).map(fn), weights=[2, 1], ends="all")
    ),
    "mixed, shuffled": lambda fn: Pipe.of(Numbers(12)).shuffle().map(fn).mix(Pipe.of(Numbers(9)), weights=[1, 1]),
    "mapped again": lambda fn: Pipe.of(Numbers(12)).map(fn).mix(Pipe.of(Numbers(9)).map(fn), weights=[1, 1]).map(fn),
}
STREAMS: dict[str, Callable[[Pipe[Any]], Pipe[Any]]] = {
    "buffer": lambda pipe: pipe.shuffle(buffer_size=4),
    "filter": lambda pipe: pipe.filter(most).shuffle(buffer_size=3),
    "cycle": lambda pipe: pipe.cycle(2).shuffle(buffer_size=5),
}
KINDS: list[dict[str, Any]] = [{}, {"workers": 2}, {"workers": 1, "kind": "thread"}]


def most(sample: Any) -> bool:
    return "7" not in str(sample)[:2]


@pytest.mark.parametrize(
    ("name", "stream", "fn"),
    across(PIPES, STREAMS, (keyed, drawn)),
)
def test_random_values_are_the_same_on_every_kind_and_after_a_resume(name: str, stream: str, fn: Any) -> None:
    pipe = STREAMS[stream](PIPES[name](fn))
    whole = None
    for kind in KINDS if fn is keyed else KINDS[:2]:  # (threads share the global generators)
        np.random.seed(len(kind))  # nobody's business
        with Loader(pipe, seed=5, **kind) as loader:
            batches = iter(loader)
            found = [digest(next(batches)) for _ in range(4)]
            state = loader.state_dict()
            found += map(digest, batches)
        assert whole is None or found == whole
        whole = found
        with Loader(pipe, seed=5, **kind) as loader:
            loader.load_state_dict(state)
            assert [*map(digest, loader)] == whole[4:]


def test_the_rng_of_an_op_is_that_of_its_sample() -> None:
    """Wherever it runs: before the mixture it hangs on the number in its own input, not on that in the mixture."""
    pipe = Pipe.of(Numbers(30)).map(lambda x: (x, headrace.rng().random())).mix(Pipe.of(Numbers(20)), weights=[2, 1])
    indexed = {s for s in Loader(pipe, seed=5) if isinstance(s, tuple)}
    streamed = {s for s in Loader(pipe.shuffle(buffer_size=4), seed=5) if isinstance(s, tuple)}
    assert indexed == streamed
