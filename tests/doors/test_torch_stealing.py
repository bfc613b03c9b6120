"""Whoever is free takes the next batch, as long as nobody can tell: what arrives is torch's to the bit in any case."""

import contextlib
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, ConcatDataset, Dataset, Sampler, Subset, get_worker_info

from headrace.doors.torch import plan
from headrace.doors.torch.loader import DataLoader, TorchLoader
from headrace.doors.torch.scan import StateScan
from tests.depth import depth

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:a worker of this DataLoader:RuntimeWarning"),
    pytest.mark.timeout(300),
]


def seeded(index: int) -> float:
    np.random.seed(index)
    return 0.5


def asked(name: str) -> float:
    info = get_worker_info()
    assert info is not None
    return float(getattr(info, name) % 1000)


TRACES: dict[str, Callable[[int], float]] = {
    "random": lambda _: random.random(),
    "gauss": lambda _: random.gauss(0, 1),
    "numpy": lambda _: float(np.random.rand()),
    "numpy's pair of normal draws": lambda _: float(np.random.normal()),
    "numpy, 624 words": lambda _: float(np.random.bytes(4 * 624)[7]),
    "torch": lambda _: float(torch.rand(())),
    "torch's kept normal draw": lambda _: float(torch.randn(())),
    "seeds numpy": seeded,
    "worker's number": lambda _: asked("id"),
    "worker's seed": lambda _: asked("seed"),
    "torch's seed": lambda _: float(torch.initial_seed() % 1000),
}
"""What a sample may do that later samples of its worker, or of another one, would see."""


class Samples(Dataset[float]):
    """Samples that leave traces at some indices only."""

    def __init__(self, length: int, traces: dict[int, str], fails: frozenset[int], counts: bool) -> None:
        self.length = length
        self.traces = traces
        self.fails = fails
        self.counted = 0
        self.late: Any = None
        self.counts = counts

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> float:
        if self.late is None:
            self.late = [index]  # (as files are opened)
        value = float(index)
        if index in self.traces:
            value += TRACES[self.traces[index]](index)
            if self.counts:
                self.counted += 1
                value += 1000 * self.counted
        if index in self.fails:
            raise LookupError(index)
        return value


class Collate:
    """Leaves a trace after some batches."""

    def __init__(self, traces: dict[int, str]) -> None:
        self.traces = traces

    def __call__(self, batch: list[float]) -> torch.Tensor:
        found = [value for value in batch if int(value) in self.traces]
        return torch.tensor([*batch, *(TRACES[self.traces[int(v)]](0) for v in found)], dtype=torch.float64)


def stream(kind: Any, epochs: int, **options: Any) -> list[Any]:
    torch.manual_seed(11)
    got: list[Any] = []
    loader = kind(**options)
    for _ in range(epochs):
        iterator = iter(loader)
        while True:
            try:
                got.append(next(iterator).tolist())
            except StopIteration:
                break
            except LookupError as error:
                got.append(type(error))
        got.append("end")
    return got


traces = st.dictionaries(st.integers(0, 59), st.sampled_from(sorted(TRACES)), max_size=3)


@settings(max_examples=depth(2, 400), deadline=None)
@example(12, 1, 2, False, False, {9: "gauss"}, {}, frozenset({8}), False)  # an error, then what must be made again
@given(
    length=st.integers(1, 60), size=st.integers(1, 3), workers=st.integers(2, 4), shuffle=st.booleans(),
    persistent=st.booleans(), samples=traces, batches=traces, fails=st.frozensets(st.integers(0, 59), max_size=1),
    counts=st.booleans(),
)  # fmt: skip
def test_what_arrives_is_what_torch_gives(
    length: int, size: int, workers: int, shuffle: bool, persistent: bool, samples: dict[int, str],
    batches: dict[int, str], fails: frozenset[int], counts: bool,
) -> None:  # fmt: skip
    options = {
        "dataset": Samples(length, samples, fails, counts), "batch_size": size, "num_workers": workers,
        "shuffle": shuffle, "persistent_workers": persistent, "collate_fn": Collate(batches),
    }  # fmt: skip
    ours = stream(DataLoader, 2, **options)
    assert ours == stream(TorchLoader, 2, **options)


class Meets(Dataset[int]):
    """Sample 10 waits until sample 20 or 22 is made; with two workers torch gives all three to the same one.

    (One more may wait in that worker's socket already, and nobody can take it from there: two are more than that.)
    """

    def __init__(self) -> None:
        self.waits, self.wakes = os.pipe()

    def close(self) -> None:
        os.close(self.waits)
        os.close(self.wakes)

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> int:
        if index == 10:
            os.read(self.waits, 1)
        if index in (20, 22):
            os.write(self.wakes, b".")
        return index


def test_a_free_worker_makes_what_belongs_to_a_busy_one() -> None:
    with contextlib.closing(Meets()) as meets:
        loader = DataLoader(meets, batch_size=None, num_workers=2, timeout=60, multiprocessing_context="fork")
        assert list(loader) == list(range(30))
        assert "reproducible" not in loader.stats().advice


def test_advice_says_what_holds_the_others_up() -> None:
    loader = DataLoader(Samples(40, {31: "random"}, frozenset(), False), batch_size=None, num_workers=2)
    list(loader)
    assert "reproducible=True" in loader.stats().advice
    assert "reproducible=True" in loader.explain()
    assert not plan.steals(loader)  # nor in later epochs


class Dies(Samples):
    """Its worker is killed once."""

    def __init__(self, mark: Path, at: int, draws: int) -> None:
        super().__init__(40, {draws: "torch"}, frozenset(), False)
        self.mark = mark
        self.at = at

    def __getitem__(self, index: int) -> float:
        if index == self.at and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@settings(max_examples=depth(2, 100), deadline=None)
@given(at=st.integers(0, 39), later=st.integers(0, 39))
def test_a_worker_that_is_killed_before_anything_was_drawn_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, at: int, later: int
) -> None:
    # (What is drawn after the death may be drawn before it in time: all but the batches at hand are delivered first.)
    mark = tmp_path_factory.mktemp("killed") / "mark"
    options = {"dataset": Dies(mark, at, min(39, at + later)), "batch_size": 1, "num_workers": 2}
    got = stream(DataLoader, 1, **options)
    assert mark.exists()
    if at + later >= 39 or later > 32:
        assert got == stream(TorchLoader, 1, **options)
    assert [int(batch[0]) for batch in got[:-1]] == list(range(40))


# --- who may steal ----------------------------------------------------------------------------------------------------


class Own(Sampler[int]):
    def __iter__(self) -> Any:
        return iter(range(8))


class WithState(Samples):
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


PLAIN = Samples(8, {}, frozenset(), False)


@pytest.mark.parametrize(
    ("stolen", "options"),
    [
        (True, {}),
        (True, {"shuffle": True, "drop_last": True, "batch_size": 3, "persistent_workers": True}),
        (True, {"batch_size": None}),
        (False, {"stealing": False}),
        (False, {"num_workers": 1}),
        (False, {"prefetch_factor": 2}),
        (False, {"worker_init_fn": print}),
        (False, {"in_order": False}),
        (False, {"reproducible": True}),
        (False, {"sampler": Own()}),
        (False, {"batch_sampler": BatchSampler(Own(), 2, False)}),
        (False, {"dataset": WithState(8, {}, frozenset(), False)}),
    ],
    ids=str,
)
def test_work_is_stolen_only_where_it_was_torchs_choice_alone(stolen: bool, options: dict[str, Any]) -> None:
    loader = DataLoader(**{"dataset": PLAIN, "num_workers": 2, **options})
    assert plan.steals(loader) is stolen


def test_a_loader_that_is_built_from_the_attributes_of_another_steals_as_that_one() -> None:
    one = DataLoader(PLAIN, num_workers=2)
    assert one.prefetch_factor == 2
    assert plan.steals(DataLoader(PLAIN, num_workers=2, prefetch_factor=one.prefetch_factor))
    one.prefetch_factor = 3
    assert not plan.steals(one)


module_generator = np.random.default_rng(0)


def by_module() -> float:
    return float(module_generator.random())


class Holds(Dataset[Any]):
    def __init__(self, thing: object) -> None:
        self.thing = thing


class ByMethod(Dataset[Any]):
    def __getitem__(self, index: int) -> float:
        return index + by_module()


def closed_over(thing: object) -> Callable[[], object]:
    return lambda: thing


@pytest.mark.parametrize("make", [lambda: np.random.default_rng(0), random.Random, torch.Generator])
def test_a_generator_that_a_dataset_holds_is_found(make: Callable[[], Any]) -> None:
    found: list[Any] = [
        Holds(make()), Holds([{"transforms": (Holds(make()),)}]), Subset(Holds(make()), [0]),
        ConcatDataset([PLAIN, Subset(Holds(make()), [1])]), Holds(closed_over(make())), Holds(partial(str, make())),
    ]  # fmt: skip
    assert not any(StateScan(one).safe for one in found)


def test_a_generator_that_a_dataset_calls_by_name_is_found() -> None:
    assert not StateScan(ByMethod()).safe
    assert not StateScan(lambda batch: by_module()).safe


@pytest.mark.parametrize(
    "thing",
    [PLAIN, [1, "a", None], Holds(random), Holds(np.random), Holds(random.random), Holds(np.zeros(3)), seeded, asked],
)
def test_what_draws_from_global_generators_only_holds_none(thing: object) -> None:
    assert StateScan(thing).safe
