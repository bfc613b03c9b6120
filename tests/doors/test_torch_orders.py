"""Our orders are those of torch's samplers, bit for bit, from the start and from the middle."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from headrace.doors.torch.loader import DataLoader
from headrace.doors.torch.orders import KNOWN, SamplerOrder
from tests.doors.torch_corpus import seeded

N = 1000
SAMPLERS: dict[str, Callable[[Any], Any]] = {
    "sequential": lambda g: SequentialSampler(range(N)),
    "random": lambda g: RandomSampler(range(N), generator=g),
    "random, fewer": lambda g: RandomSampler(range(N), num_samples=300, generator=g),
    "random, more": lambda g: RandomSampler(range(37), num_samples=200, generator=g),
    "random, exactly twice": lambda g: RandomSampler(range(50), num_samples=100, generator=g),
    "replacement": lambda g: RandomSampler(range(N), True, 500, g),
    "replacement, whole chunks": lambda g: RandomSampler(range(7), True, 320, g),
    "replacement, very many": lambda g: RandomSampler(range(2**30), True, 100, g),
    "subset": lambda g: SubsetRandomSampler(range(0, 300, 3), g),
    "weighted": lambda g: WeightedRandomSampler(torch.arange(1.0, 50), 200, True, g),
    "weighted, once": lambda g: WeightedRandomSampler(torch.arange(1.0, 50), 45, False, g),
}


def walk(order: Any, size: int) -> Iterator[Any]:
    while part := order.take(size):
        yield from part


@pytest.mark.parametrize("given", [False, True], ids=["global", "generator"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_an_order_is_that_of_the_sampler(name: str, given: bool) -> None:
    generators = seeded(), seeded()
    torch.manual_seed(11)
    theirs = list(SAMPLERS[name](generators[0] if given else None))
    state = torch.get_rng_state()
    for size in (1, 3, 32, 5000):
        mine = seeded()
        torch.manual_seed(11)
        assert list(walk(SamplerOrder(SAMPLERS[name](mine if given else None)), size)) == theirs
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(mine.get_state(), generators[0].get_state()) or not given


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_order_can_be_entered_anywhere(name: str) -> None:
    theirs = list(SAMPLERS[name](seeded()))
    for start in (0, 1, 31, 32, 33, len(theirs) // 2, len(theirs) - 1, len(theirs)):
        order = SamplerOrder(SAMPLERS[name](seeded()))
        assert order.skip(start) == start
        assert list(walk(order, 7)) == theirs[start:]
    assert SamplerOrder(SAMPLERS[name](seeded())).skip(len(theirs) + 5) == len(theirs)


def test_samplers_that_extend_torchs_are_not_taken_for_them() -> None:
    class Mine(SequentialSampler):
        def __iter__(self) -> Iterator[int]:
            return iter([2, 1])

    assert type(Mine(range(3))) not in KNOWN
    assert SamplerOrder(Mine(range(3))).take(5) == [2, 1]


@pytest.mark.parametrize("replacement", [False, True])
def test_resuming_draws_once(replacement: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return DataLoader(range(100_000), 10, sampler=RandomSampler(range(100_000), replacement, generator=seeded()))

    loader = make()
    it = iter(loader)
    for _ in range(5000):
        next(it)
    state = loader.state_dict()
    following = next(it)
    calls = []
    for name in ("randperm", "randint"):
        real = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, _real=real, _name=name, **k: calls.append(_name) or _real(*a, **k))
    again = make()
    again.load_state_dict(state)
    assert next(iter(again)).tolist() == following.tolist()
    assert calls == (["randint", "randint"] if replacement else ["randperm"]), "a bulk draw, and a chunk to go on with"
