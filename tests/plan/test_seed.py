"""Keys, and what is done with the global generators."""

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.seed import BorrowedGlobals, fresh, generator, key, seed_globals
from tests.conftest import RunScript
from tests.laws.moments import Moment

try:
    import torch
except ModuleNotFoundError:  # torch is an extra: what is said here of three generators then holds for two
    torch = None  # type: ignore[assignment]

parts = st.lists(st.integers() | st.text() | st.binary(), max_size=6)


@given(parts, parts)
def test_different_parts_have_different_keys(one: list[Any], other: list[Any]) -> None:
    assert (key(*one) == key(*other)) == (one == other)
    assert 0 <= key(*one) < 2**64


def test_the_same_bytes_cut_or_typed_differently_have_different_keys() -> None:
    ways: list[tuple[int | str | bytes, ...]]
    ways = [("ab", "c"), ("a", "bc"), ("abc",), (b"abc",), ("ab", "c", ""), (1, 2), (12,), ("12",), (b"12",), ("i12;",)]
    assert len({key(*way) for way in ways}) == len(ways)


def test_numpy_integers_are_integers_and_floats_are_refused() -> None:
    numbers: Any = np.array([5, 1], dtype=np.uint8)
    assert key(*numbers) == key(5, 1)
    with pytest.raises(TypeError):
        key(1.0)  # type: ignore[arg-type]


def test_a_generator_depends_on_its_key_only() -> None:
    random.seed(1)
    first = generator(key(1, 2)).random(5).tolist()
    random.seed(2)
    assert generator(key(1, 2)).random(5).tolist() == first
    assert generator(key(1, 3)).random(5).tolist() != first
    assert generator(0).random() != generator(2**64 - 1).random()


@given(st.integers(0, 2**64 - 1))
def test_a_generator_draws_what_philox_draws_with_this_key(k: int) -> None:
    ours, theirs = generator(k), np.random.Generator(np.random.Philox(key=k))
    assert repr(ours.bit_generator.state) == repr(theirs.bit_generator.state)
    assert ours.integers(0, 2**63, 5).tolist() == theirs.integers(0, 2**63, 5).tolist()


def test_what_a_generator_spawns_depends_on_its_key_only() -> None:
    def drawn(made: np.random.Generator) -> list[float]:
        return [child.random() for child in (*made.spawn(2), *made.spawn(1))]

    assert drawn(generator(5)) == drawn(generator(5))
    assert len({*drawn(generator(5)), *drawn(generator(6))}) == 6


def test_a_generator_travels_as_it_stands() -> None:
    made = generator(5)
    made.random(3)
    copied = pickle.loads(pickle.dumps(made))
    assert copied.random(4).tolist() == made.random(4).tolist()
    assert copied.spawn(1)[0].random() == made.spawn(1)[0].random()


def test_a_fresh_seed_is_new_each_time_and_touches_no_generator() -> None:
    random.seed(1)
    before = random.getstate()
    seeds = {fresh() for _ in range(100)}
    assert random.getstate() == before
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)


def draws() -> list[float]:
    """Numbers from all three generators; an odd count of normal ones, which all three make in pairs."""
    found = [random.random(), random.gauss(0, 1), np.random.random(), np.random.randn()]
    if torch is not None:
        found += [torch.rand(1).item(), torch.randn(1, dtype=torch.float64).item()]
    return found


@pytest.mark.parametrize("k", [0, 1, 2**63, 2**64 - 1])
def test_seeded_globals_depend_on_the_key_only(k: int) -> None:
    with BorrowedGlobals():
        seed_globals(k)
        first = draws() + draws()
        draws()
        seed_globals(k)
        assert draws() + draws() == first
        seed_globals(k ^ 1)
        assert not set(first) & set(draws())


@pytest.mark.parametrize("already", [0, 1, 2])
def test_borrowed_globals_come_back_as_they_were(already: int) -> None:
    borrowed = BorrowedGlobals()
    of_the_callers = BorrowedGlobals(goes_on=False)

    def caller(between: Any) -> list[list[float]]:
        seed_globals(5)
        for _ in range(already):  # with 1, every generator keeps the second normal draw of a pair
            draws()
        found = []
        for _ in range(4):
            between()
            found.append(draws())
        return found

    inside: list[list[float]] = []

    def ours() -> None:
        with borrowed:
            inside.append(draws())

    def ours_seeded() -> None:
        with borrowed:
            seed_globals(9)
            inside.append(draws())

    def ours_that_seeds_itself() -> None:
        with of_the_callers:
            seed_globals(9)
            inside.append(draws())

    with BorrowedGlobals():  # so that this test gives back what it found
        assert caller(ours) == caller(ours_seeded) == caller(ours_that_seeds_itself) == caller(lambda: None)
    assert len(inside) == 12
    assert len({number for found in inside[:4] for number in found}) == 4 * len(inside[0])
    assert len({tuple(found) for found in inside[4:]}) == 1


def test_globals_come_back_when_the_work_fails() -> None:
    with BorrowedGlobals():
        seed_globals(3)
        expected = draws()
        seed_globals(3)
        with pytest.raises(TypeError), BorrowedGlobals():
            seed_globals("nothing that can be a seed")  # type: ignore[arg-type]
        assert draws() == expected


def test_another_bit_generator_of_the_callers_comes_back_too() -> None:
    mine: Any = np.random.PCG64(1)
    module: Any = np.random
    with BorrowedGlobals():
        module.set_bit_generator(mine)
        with BorrowedGlobals():
            assert module.get_bit_generator() is not mine
            np.random.seed(1)
        assert module.get_bit_generator() is mine
        seed_globals(7)  # seeding works on any of them
        first = np.random.random()
        seed_globals(7)
        assert np.random.random() == first


def test_entering_twice_is_refused_and_does_no_harm() -> None:
    borrowed = BorrowedGlobals()
    state = random.getstate()
    with borrowed, pytest.raises(RuntimeError, match="inside itself"), borrowed:
        pass
    assert random.getstate() == state


def test_neither_numpy_nor_torch_is_loaded_by_seeding(run_script: RunScript) -> None:
    done = run_script("""
        import sys
        from headrace.plan.seed import BorrowedGlobals, fresh, key, seed_globals
        with BorrowedGlobals():
            seed_globals(key(fresh(), "x"))
        assert "numpy" not in sys.modules and "torch" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr


def test_a_library_first_imported_inside_the_block_is_left_as_it_is_until_the_next(run_script: RunScript) -> None:
    pytest.importorskip("torch")
    done = run_script("""
        import random
        from headrace.plan.seed import BorrowedGlobals
        random.seed(1)
        state = random.getstate()
        borrowed = BorrowedGlobals()
        with borrowed:
            import numpy, torch
            numpy.random.seed(5)
            torch.manual_seed(5)
        wanted = numpy.random.RandomState(5)
        assert random.getstate() == state
        assert numpy.random.random() == wanted.random_sample()
        after = torch.get_rng_state()
        with borrowed:
            numpy.random.random(), torch.rand(1)
        assert numpy.random.random() == wanted.random_sample()
        assert torch.equal(torch.get_rng_state(), after)
    """)
    assert done.returncode == 0, done.stderr


def test_numpys_generator_is_seeded_even_if_numpy_has_not_loaded_it_yet(run_script: RunScript) -> None:
    done = run_script("""
        from headrace.plan.seed import seed_globals
        import numpy
        seed_globals(5)
        first = numpy.random.random()
        seed_globals(5)
        assert numpy.random.random() == first == numpy.random.RandomState(5).random_sample()
    """)
    assert done.returncode == 0, done.stderr


def test_half_loaded_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with BorrowedGlobals():
        seed_globals(1)


def test_borrowers_in_several_threads_take_turns_and_the_callers_generators_come_back() -> None:
    """Loaders without workers in several threads borrow the same generators."""

    def values(number: int) -> list[float]:
        found = []
        borrowed = BorrowedGlobals()
        for k in range(200):
            with borrowed:
                seed_globals(number * 1000 + k)
                found += draws()
        return found

    before = random.getstate()
    alone = [values(number) for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(values, range(4))) == alone
    assert random.getstate() == before


def test_a_borrower_does_not_wait_for_ever_for_a_thread_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.plan.seed.PATIENCE", 0.01)
    with BorrowedGlobals(), ThreadPoolExecutor(1) as other:
        borrowed = BorrowedGlobals()
        for _ in range(3):
            assert other.submit(lambda: borrowed.run(lambda: 7)).result(timeout=30) == 7
    assert [record.message for record in caplog.records if "headrace.rng()" in record.message] != []
    assert len(caplog.records) == 1


def test_an_interrupt_at_any_moment_leaves_the_callers_generators_as_they_were() -> None:
    borrowed = BorrowedGlobals()

    def work() -> list[float]:
        seed_globals(9)
        return draws()

    def interrupted(at: float) -> Moment:
        moment = Moment(at, KeyboardInterrupt())
        try:
            moment.of(lambda: borrowed.run(work))
        except KeyboardInterrupt:
            pass
        return moment

    with BorrowedGlobals():
        moments = interrupted(float("inf")).seen
        assert moments > 20
        for at in range(moments):
            seed_globals(at)
            draws()
            expected = draws()
            seed_globals(at)
            draws()
            interrupted(at)
            assert draws() == expected, at
            assert borrowed._users is None


def test_after_an_interrupt_at_any_moment_other_threads_can_borrow(caplog: pytest.LogCaptureFixture) -> None:
    borrowed = BorrowedGlobals()
    counter = Moment(float("inf"), KeyboardInterrupt())
    counter.of(lambda: borrowed.run(draws))
    with ThreadPoolExecutor(1) as other:
        for at in range(counter.seen):
            with suppress(KeyboardInterrupt):
                Moment(at, KeyboardInterrupt()).of(lambda: borrowed.run(draws))
            other.submit(lambda: BorrowedGlobals().run(draws)).result(timeout=30)
    assert not caplog.records  # nobody had to wait
