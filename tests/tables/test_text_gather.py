"""Texts that lie anywhere in one memory, joined: what slices of the memory would be."""

import pickle
from mmap import mmap
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tables.batch_transfer import DepartingText, is_sound
from headrace.tables.column import ArrowColumn
from headrace.tables.convert.from_arrow import as_numpy
from headrace.tables.stored import text_gather
from headrace.tables.stored.text_gather import INLINE, TextGather
from tests.tables.test_resident import in_units

SIZE = 4096


def memory_of(seed: int) -> mmap:
    memory = mmap(-1, SIZE)
    memory[:] = Random(seed).randbytes(SIZE)
    return memory


def gathered(memory: mmap, spans: list[tuple[int, int]], width: int) -> list[bytes]:
    starts, stops = np.array(spans, np.int64).reshape(-1, 2).T
    parts = TextGather(memoryview(memory), width)(starts, (stops - starts).astype(f"i{width}"))
    assert parts is not None
    kind = pa.binary() if width == 4 else pa.large_binary()
    array = pa.Array.from_buffers(kind, len(spans), [None, *parts])
    array.validate(full=True)
    found: list[bytes] = array.to_pylist()
    return found


def spans_of(longest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Many are short, and many end where the memory does."""
    size = st.integers(0, INLINE + 2) | st.integers(0, longest)
    start = st.integers(0, SIZE) | st.integers(SIZE - 2 * INLINE, SIZE)
    return st.lists(st.tuples(start, size).map(lambda s: (s[0], min(SIZE, s[0] + s[1]))), max_size=40)


@given(seed=st.integers(0, 99), spans=spans_of(600), width=st.sampled_from((4, 8)), sees=st.booleans())
def test_pieces_are_slices_of_the_memory(seed: int, spans: list[tuple[int, int]], width: int, sees: bool) -> None:
    memory = memory_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        if not sees:
            patch.setattr(text_gather, "sees_views", lambda: False)
        assert gathered(memory, spans, width) == [memory[start:stop] for start, stop in spans]


@given(spans=spans_of(600))
def test_memory_longer_than_a_view_can_count_lies_in_several_buffers(spans: list[tuple[int, int]]) -> None:
    memory = memory_of(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_gather, "STEP", 256)
        patch.setattr(text_gather, "LONGEST", 511)
        expected = [memory[start:stop] for start, stop in spans]
        assert gathered(memory, spans, 8) == expected


def test_more_than_the_offsets_can_count_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_gather, "LONGEST", 511)
    starts, sizes = np.zeros(2, np.int64), np.array([256, 256])
    assert TextGather(memoryview(memory_of(1)), 4)(starts, sizes) is None
    assert TextGather(memoryview(memory_of(1)), 8)(starts, sizes) is not None


def test_this_pyarrow_makes_text_of_views() -> None:
    assert text_gather.sees_views() or int(pa.__version__.partition(".")[0]) < 20


@pytest.mark.parametrize("bad", [None, 0, 7])
def test_a_batch_of_text_is_known_to_be_sound_if_all_that_was_met_is(bad: int | None) -> None:
    raw = [b"\xff" * 30 if row // 10 == bad else b"word " * 6 for row in range(80)]
    units = in_units(pa.table({"x": pa.array(raw, pa.binary()).view(pa.string())}), [10] * 8)
    positions = np.arange(0, 80, 3)
    first, column = (units.take(positions).columns["x"] for _ in range(2))
    assert isinstance(first, ArrowColumn)
    assert isinstance(column, ArrowColumn)
    assert not first.sound  # it was fetched unit by unit
    assert column.sound == (bad is None) == is_sound(column.array)
    assert DepartingText.fits(pa.concat_arrays([column.array] * 20), column.sound) == (bad is None)


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_travels_by_every_protocol(protocol: int, kind: Any) -> None:
    array = pa.array(["aß€😀" * 90, None, "", "b" * 3000], kind)
    found = pickle.loads(pickle.dumps(DepartingText(array, listed=False), protocol))
    assert found.tolist() == array.to_pylist()


@pytest.mark.parametrize("columns", [{"a": pa.int64()}, {"a": pa.int8(), "b": pa.int16()}, {"a": pa.int32()}])
def test_records_of_every_size_are_those_of_the_table(columns: dict[str, Any]) -> None:
    table = pa.table({name: pa.array(np.arange(90) % 120, kind) for name, kind in columns.items()})
    units = in_units(table, [7, 23, 60], masked=False)
    positions = np.random.default_rng(1).permutation(90)
    for _ in range(2):
        found = units.take(positions)
        for name in columns:
            assert as_numpy(found.columns[name]).tolist() == table[name].take(positions).to_pylist()
