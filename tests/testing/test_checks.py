"""The checkers fail on ops that are wrong: one for each clause of their contract."""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.op import Each, Here, Indexed, Op, Source
from headrace.testing import check_op, check_source

READ: list[Any] = []
"""What some of the ops below remember, and should not."""


@dataclass(frozen=True, slots=True)
class Passing(Op[Any, Any]):
    """What all of these have in common: samples are handed on."""

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, _ = inputs
        yield from samples


@dataclass(frozen=True, slots=True)
class Locked(Passing):
    lock: Any = field(default_factory=threading.Lock)


class Lost(Passing):
    """Forgets on its journey what it is to add."""

    def __init__(self, more: int = 1) -> None:
        object.__setattr__(self, "more", more)

    def __reduce__(self) -> Any:
        return (Lost, (0,))

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, _ = inputs
        return (sample + self.more for sample in samples)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Drawn(Each[Any, Any]):
    def apply(self, sample: Any) -> Any:
        return sample + random.SystemRandom().random()


@dataclass(frozen=True, slots=True)
class FarInside(Each[Any, Any]):
    """Differs in one element of an array that `repr` does not show."""

    def apply(self, sample: Any) -> Any:
        READ.append(sample)
        array = np.zeros(5000)
        array[2500] = len(READ)
        return array


@dataclass(frozen=True, slots=True)
class InPlace(Each[Any, Any]):
    def apply(self, sample: Any) -> Any:
        sample.append(len(sample))
        return list(sample)


@dataclass(frozen=True, slots=True)
class Long(Passing):
    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return 99


@dataclass(frozen=True, slots=True)
class Indexing(Passing):
    """Random access that is wrong in one way or another."""

    wrong: str

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        seen: list[int] = []

        def order(position: int) -> Any:
            seen.append(position)
            return inner.get(position) + (len(seen) if self.wrong == "order" else 0)

        def other(position: int) -> Any:
            return inner.get(position) + 100

        return Indexed(inner.length - (self.wrong == "length"), other if self.wrong == "samples" else order)


@dataclass(frozen=True, slots=True)
class Holding(Passing):
    """Holds a sample, and says that it holds none."""

    quiet = True

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, _ = inputs
        held = next(samples, None)
        for sample in samples:
            yield held
            held = sample
        yield held


@dataclass(frozen=True, slots=True)
class Resting(Passing):
    """Rests with a note that is too small, or that no JSON holds."""

    note: Callable[[Any], Any]

    def flow(self, *inputs: Any) -> Iterator[Any]:
        samples, here = inputs
        total = here.note or 0
        for sample in samples:
            total = total + sample if isinstance(total, int) else sample
            yield total
            here.rest(self.note(total))


@dataclass(frozen=True, slots=True)
class Refusing(Resting):
    def accepts(self, note: Any) -> bool:
        return note is None


@dataclass(frozen=True, slots=True)
class Threaded(Each[Any, Any]):
    def apply(self, sample: Any) -> Any:
        return sample, threading.current_thread() is threading.main_thread()


@dataclass(frozen=True, slots=True)
class Short(Source[int]):
    def size(self) -> int:
        return 5

    def get(self, position: int) -> int:
        return position

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return 6


def forget(total: Any) -> None:
    return None


def inside(total: Any) -> Any:
    return [{"deep": b"bytes"}]


def itself(total: Any) -> Any:
    return total


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Locked(), "cannot be sent to a worker"),
        (Lost(), "after a journey to another process it emits something else"),
        (Drawn(), "second reading differs"),
        (FarInside(), "second reading differs"),
        (Long(), r"length\(\) says 99, but 6 samples were emitted"),
        (Indexing("order"), "depends on the order of access"),
        (Indexing("length"), "random access has 5 positions, but 6 samples"),
        (Indexing("samples"), r"random access gives 100 at position 0, which flow\(\) does not emit"),
        (Holding(), "stopped after 1 samples and resumed"),
        (Resting(forget), "stopped after 3 samples and resumed"),
        (Resting(inside), "is not plain data"),
        (Refusing(itself), r"its accepts\(\) refuses that"),
        (Threaded(), "two threads deliver something else"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Op) else "",
)
def test_an_op_that_breaks_a_clause_is_found(op: Op[Any, Any], said: str) -> None:
    READ.clear()
    with pytest.raises(AssertionError, match=said):
        check_op(op, range(6))


def test_an_op_that_changes_its_input_is_found() -> None:
    with pytest.raises(AssertionError, match="second reading differs"):
        check_op(InPlace(), [[1], [2]])


@pytest.mark.parametrize("options", [{}, {"workers": 2, "kind": "thread"}], ids=["inline", "thread"])
def test_an_op_of_ones_own_that_changes_its_input_changes_copies_only(options: Any) -> None:
    held = [[1], [2]]
    with Loader(Pipe.of(held).then(InPlace()), **options) as loader:
        assert list(loader) == list(loader) == [[1, 1], [2, 1]]
    assert held == [[1], [2]]


def test_a_source_that_breaks_a_clause_is_found() -> None:
    with pytest.raises(AssertionError, match=r"length\(\) says 6, but 5"):
        check_source(Short())


def test_sound_ops_pass() -> None:
    check_op(Passing(), range(6))
    check_op(Resting(itself), range(6))
