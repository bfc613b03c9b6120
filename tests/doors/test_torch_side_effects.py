"""What a batch can leave behind for a later one, wherever it is kept: what arrives is torch's all the same."""

import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from headrace.doors.torch import scan
from headrace.doors.torch.loader import DataLoader, TorchLoader
from headrace.doors.torch.scan import StateScan

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.timeout(120),
]

drawn_from = random.Random(3)
settings = ModuleType("carried_settings")
settings.rng = random.Random(5)  # type: ignore[attr-defined]
settings.seen = 0  # type: ignore[attr-defined]
sys.modules["carried_settings"] = settings


def draw() -> float:
    return drawn_from.random()


class Base(Dataset[Any]):
    """Some samples take longer, so that other workers become free."""

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> Any:
        if index // 3 % 3 == 0:
            time.sleep(0.003)
        return index, self.value(index)

    def value(self, index: int) -> Any:
        return 0


class OfClass(Base):
    rng = random.Random(1)

    def value(self, index: int) -> float:
        return self.rng.random()


class InComprehension(Base):
    def value(self, index: int) -> float:
        return sum(draw() for _ in range(2))


class InLambda(Base):
    def value(self, index: int) -> float:
        return (lambda: draw())()


class InStatic(Base):
    @staticmethod
    def noise() -> float:
        return draw()

    def value(self, index: int) -> float:
        return self.noise()


class InClassmethod(Base):
    @classmethod
    def noise(cls) -> float:
        return draw()

    def value(self, index: int) -> float:
        return self.noise()


class InProperty(Base):
    @property
    def noise(self) -> float:
        return draw()

    def value(self, index: int) -> float:
        return self.noise


class InKeyword(Base):
    def value(self, index: int, *, rng: random.Random = drawn_from) -> float:
        return rng.random()


class OfModule(Base):
    def value(self, index: int) -> float:
        return float(settings.rng.random())


class Imported(Base):
    def value(self, index: int) -> float:
        from carried_settings import rng  # type: ignore[import-not-found]

        return float(rng.random())


class InSlot(Base):
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = random.Random(2)

    def value(self, index: int) -> float:
        return self.rng.random()


class BoundMethod(Base):
    def __init__(self) -> None:
        self.draw = random.Random(2).random

    def value(self, index: int) -> float:
        return self.draw()


class BitGenerator(Base):
    def __init__(self) -> None:
        self.bits = np.random.PCG64(3)

    def value(self, index: int) -> int:
        return int(self.bits.random_raw()) % 1000


class Iterates(Base):
    def __init__(self) -> None:
        self.numbers = count()

    def value(self, index: int) -> int:
        return next(self.numbers)


HIDDEN: list[type[Base]] = [
    OfClass, InComprehension, InLambda, InStatic, InClassmethod, InProperty, InKeyword, OfModule, Imported, InSlot,
    BoundMethod, BitGenerator, Iterates,
]  # fmt: skip


class CountsInSlot:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def add(self) -> int:
        self.n += 1
        return self.n


@dataclass(slots=True)
class SlotCount:
    counts: CountsInSlot = field(default_factory=CountsInSlot)

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.003 * (index // 3 % 3 == 0))
        return index, self.counts.add()


class ClassCount(Base):
    n = 0

    def value(self, index: int) -> int:
        type(self).n += 1
        return self.n


class LateClassCount(Base):
    late: ClassVar[int]

    def value(self, index: int) -> int:
        kind = type(self)
        kind.late = getattr(kind, "late", 0) + 1
        return kind.late


counted = 0


class GlobalCount(Base):
    def value(self, index: int) -> int:
        global counted
        counted += 1
        return counted


class ModuleCount(Base):
    def value(self, index: int) -> int:
        settings.seen += 1
        return int(settings.seen)


def attribute_count() -> int:
    attribute_count.n += 1  # type: ignore[attr-defined]
    return int(attribute_count.n)  # type: ignore[attr-defined]


attribute_count.n = 0  # type: ignore[attr-defined]


class FunctionCount(Base):
    def value(self, index: int) -> int:
        return attribute_count()


def closed_count() -> Callable[[], int]:
    n = 0

    def add() -> int:
        nonlocal n
        n += 1
        return n

    return add


class ClosureCount(Base):
    def __init__(self) -> None:
        self.add = closed_count()

    def value(self, index: int) -> int:
        return self.add()


class Step:
    def __init__(self) -> None:
        self.n = 0

    def __call__(self) -> int:
        self.n += 1
        return self.n


class Quiet:
    def __init__(self) -> None:
        self.k = 1

    def __call__(self) -> int:
        return self.k


class ManySteps(Base):
    def __init__(self) -> None:
        self.steps: list[Any] = [*(Quiet() for _ in range(20)), Step()]

    def value(self, index: int) -> list[int]:
        return [step() for step in self.steps]


class ManyChangingSteps(Base):
    def __init__(self) -> None:
        self.steps = [Step() for _ in range(30)]

    def value(self, index: int) -> int:
        return self.steps[29]()


class LateStep(Base):
    step: Step | None = None

    def value(self, index: int) -> int:
        if self.step is None:
            self.step = Step()
        return self.step() if index > 45 else 0


class TensorCount(Base):
    def __init__(self) -> None:
        self.n = torch.zeros(1)

    def value(self, index: int) -> float:
        self.n += 1
        return float(self.n)


class ArrayCount(Base):
    def __init__(self) -> None:
        self.n = np.zeros((2, 2))

    def value(self, index: int) -> float:
        self.n[1] += index > 40
        return float(self.n[1, 1])


class Switches(Base):
    """Later samples read what one has set, and set nothing."""

    def __init__(self) -> None:
        self.scale = 1

    def value(self, index: int) -> int:
        if index == 20:
            self.scale = 2
        return index * self.scale


class SwitchesOn(Base):
    def __init__(self) -> None:
        self.first: int | None = None

    def value(self, index: int) -> int:
        if index > 40 and self.first is None:
            self.first = index
        return self.first or 0


class KeepsTheFirst(Base):
    """Each worker sets it in its first batch, and differently."""

    def __init__(self) -> None:
        self.first: int | None = None

    def value(self, index: int) -> int:
        if self.first is None:
            self.first = index
        return self.first


class CountsBatches:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, batch: list[Any]) -> Any:
        self.n += 1
        return batch, self.n


COUNTING: list[type] = [
    SlotCount, ClassCount, LateClassCount, GlobalCount, ModuleCount, FunctionCount,
    ClosureCount, ManySteps, ManyChangingSteps, LateStep, TensorCount, ArrayCount, Switches, SwitchesOn,
    KeepsTheFirst,
]  # fmt: skip


def stream(kind: Any, make: Callable[[], Any], **options: Any) -> list[str]:
    torch.manual_seed(0)
    return [repr(batch) for batch in kind(make(), 3, num_workers=3, **options)]


@pytest.mark.parametrize("make", [*HIDDEN, *COUNTING], ids=lambda make: make.__name__)
def test_what_a_worker_keeps_is_kept_by_the_worker_that_torch_chose(make: Callable[[], Any]) -> None:
    assert stream(DataLoader, make) == stream(TorchLoader, make)


@pytest.mark.parametrize("make", [GlobalCount, ClassCount, ModuleCount, ArrayCount], ids=lambda make: make.__name__)
def test_in_workers_that_are_not_forked_too(make: Callable[[], Any]) -> None:
    ours = stream(DataLoader, make, multiprocessing_context="spawn")
    assert ours == stream(TorchLoader, make)


def test_what_collate_fn_keeps_in_a_slot() -> None:
    ours = stream(DataLoader, Base, collate_fn=CountsBatches())
    assert ours == stream(TorchLoader, Base, collate_fn=CountsBatches())


@pytest.mark.parametrize("kind", HIDDEN, ids=lambda kind: kind.__name__)
def test_a_generator_is_found_wherever_it_is(kind: type[Base]) -> None:
    assert not StateScan(kind()).safe


# --- limits -----------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    path: str
    label: int


class DrawingRow(NamedTuple):
    path: str

    def value(self) -> float:
        return draw()


Label = Enum("Label", [f"label{n}" for n in range(30)])


class Holds(Base):
    def __init__(self, thing: object) -> None:
        self.thing = thing


@pytest.mark.parametrize(
    "data",
    [
        ["a.jpg"] * 1000,
        [("a.jpg", 1)] * 1000,
        [Row("a.jpg", 1)] * 1000,
        {i: {"boxes": [[1.0, 2.0]] * 100, "name": None} for i in range(100)},
        [np.zeros(3)] * 1000,
        [torch.zeros(3)] * 1000,
        np.zeros((1000, 3)),
        [Quiet() for _ in range(50)],
        [[[[1, 2]] * 60] * 60] * 60,
        list(Label),
        logging.getLogger("data"),
    ],
    ids=lambda data: str(data)[:30],
)
def test_ordinary_data_is_no_reason_not_to_steal(data: object) -> None:
    assert StateScan(Holds(data)).safe
    assert StateScan(Holds(data), trusting=True).safe


@pytest.mark.parametrize(
    "data",
    [
        [*["a.jpg"] * 1000, random.Random()],
        [("a.jpg", [random.Random()])] * 1000,
        [DrawingRow("a.jpg")] * 1000,
        [*["a.jpg"] * 1000, Quiet()],
        np.array([None, random.Random()]),
        [[[random.Random()] * 65] * 65] * 65,
    ],
    ids=lambda data: str(data)[:30],
)
def test_nobody_steals_where_not_everything_was_seen(data: object) -> None:
    assert not StateScan(Holds(data)).safe


def test_nobody_steals_with_more_objects_than_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = Holds([SimpleNamespace(inner=Quiet()) for _ in range(50)])
    assert StateScan(thing).safe
    monkeypatch.setattr(scan, "MOST_OBJECTS", 40)
    assert not StateScan(thing).safe


def test_a_module_that_is_imported_later_could_hold_anything(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def imports() -> Any:
        import carried_later  # type: ignore[import-not-found]

        return carried_later

    assert StateScan(imports).safe  # there is none
    (tmp_path / "carried_later.py").write_text("import random\nrng = random.Random(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not StateScan(imports).safe


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What counts in this process is left as it was."""
    yield
    assert counted == ClassCount.n == 0
