"""Random tables through the verbs, in every form and kind of worker, against pyarrow, pandas, polars and numpy.

A column `row` numbers the rows, so that whatever the verbs do, each row that comes out is compared with the one it was.
A form may refuse a column only where docs/frames.md says so.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="not installed")
pc = pytest.importorskip("pyarrow.compute", reason="not installed")
pd = pytest.importorskip("pandas", reason="not installed")
pl = pytest.importorskip("polars", reason="not installed")
testing = pytest.importorskip("polars.testing", reason="not installed")
pytest.importorskip("torch", reason="not installed")

from headrace import Loader, Pipe  # noqa: E402
from headrace.errors import BadPipe  # noqa: E402
from headrace.tables.objects import same as exactly_same  # noqa: E402
from tests.depth import depth  # noqa: E402
from tests.tables import judges  # noqa: E402
from tests.tables.random_tables import (  # noqa: E402
    ROWS,
    arrow_tables,
    numpy_frames,
    pandas_frames,
    polars_frames,
)

FORMS = ("numpy", "torch", "pandas", "polars", "arrow")
WORKERS: dict[str, dict[str, Any]] = {
    "inline": {},
    "thread": {"workers": 2, "kind": "thread"},
    "process": {"workers": 2},
}
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}
INLINE = settings(max_examples=depth(40, 20_000), **QUIET)
FEW = settings(max_examples=depth(4, 500), **QUIET)
pytestmark = pytest.mark.timeout(depth(120, 5400))

STEPS = ["shuffle", "filter", "isin", "select", "concat", "left", "inner", "rename"]
Steps = st.lists(st.sampled_from(STEPS), max_size=3, unique=True)
Ends = st.sampled_from([*FORMS, "rows", "rows of numpy", "rows of arrow"])


def applied(pipe: Pipe[Any], steps: list[str], names: list[str]) -> tuple[Pipe[Any], list[int]]:
    """The pipe with these verbs, and the numbers of the rows that must come out, in any order."""
    rows = list(range(ROWS))
    # Rows are chosen first: after a join and a new name a filter takes tables apart, as it says.
    for step in sorted(steps, key=lambda step: step not in ("filter", "isin", "inner")):
        if step == "shuffle":
            pipe = pipe.shuffle()
        elif step == "filter":
            pipe, rows = pipe.filter(pc.field("row") > 1), [row for row in rows if row > 1]
        elif step == "isin":
            pipe, rows = pipe.filter(pc.field("row").isin([0, 2, 3])), [row for row in rows if row in (0, 2, 3)]
        elif step == "select":
            pipe = pipe.select(*reversed(names))
        elif step == "concat":
            pipe, rows = pipe.concat(pipe), rows * 2
        elif step == "rename":
            pipe = pipe.rename(row="number").rename(number="row")
        elif step == "left":
            pipe = pipe.join({"row": np.arange(1, 4), "tenfold": np.arange(1, 4) * 10}, "row")
        else:
            pipe = pipe.join({"row": np.arange(2, 5), "square": np.arange(2, 5) ** 2}, "row", how="inner")
            rows = [row for row in rows if 2 <= row < 5]
    return pipe, rows


def read(pipe: Pipe[Any], kind: str) -> list[Any]:
    with Loader(pipe, seed=1, **WORKERS[kind]) as loader:
        return list(loader)


def attempt(pipe: Pipe[Any], end: str, kind: str) -> tuple[list[Any] | None, str]:
    """What comes out, or None and the refusal."""
    try:
        return read(ended(pipe, end), kind), ""
    except BadPipe as error:
        return None, str(error)


def ended(pipe: Pipe[Any], end: str) -> Pipe[Any]:
    if end == "rows":
        return pipe
    if end.startswith("rows of"):
        return pipe.batch(2, as_=end.removeprefix("rows of ")).rows()
    return pipe.batch(4, as_=end)


def numbers(batch: Any) -> list[int]:
    return [row for row in as_list(batch["row"]) if row is not None]


def as_list(column: Any) -> list[Any]:
    """A column of integers in any form."""
    listed = next(getattr(column, name) for name in ("to_pylist", "to_list", "tolist") if hasattr(column, name))()
    return [None if value is None or value is pd.NA else int(value) for value in listed]


def check_joined(batch: Any, rows: list[int], steps: list[str]) -> None:
    names = getattr(batch, "column_names", None) or list(batch.columns if hasattr(batch, "columns") else batch)
    if "left" in steps and "tenfold" in names:  # unless a later select() left it out
        assert as_list(batch["tenfold"]) == [row * 10 if 1 <= row < 4 else None for row in rows]
    if "inner" in steps and "square" in names:
        assert as_list(batch["square"]) == [row**2 for row in rows]


# --- Arrow ------------------------------------------------------------------------------------------------------------


def check_arrow(case: tuple[Any, dict[str, Any]], steps: list[str], end: str, kind: str) -> None:
    table, arrays = case
    pipe, rows = applied(Pipe.of(table), steps, table.schema.names)
    samples, said = attempt(pipe, end, kind)
    if samples is None:
        assert may_refuse(end, arrays, steps), said
        return
    if end.startswith("rows"):
        assert sorted(int(row["row"]) for row in samples) == sorted(rows)
        for row in samples:
            for name, array in arrays.items():
                (want,) = judges.wanted(array, [int(row["row"])])
                assert judges.same(judges.of_numpy(row[name], array.type), want), name
        return
    assert sorted(row for batch in samples for row in numbers(batch)) == sorted(rows)
    for batch in samples:
        found = numbers(batch)
        check_joined(batch, found, steps)
        for name, array in arrays.items():
            check_column(end, batch[name], array, found)


def check_column(form: str, column: Any, array: Any, rows: list[int]) -> None:
    if form == "polars":
        plain = pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array
        whole = pl.from_arrow(pa.table({"x": plain}))["x"]
        assert column.dtype == whole.dtype
        testing.assert_series_equal(column, whole.gather(rows), check_names=False, categorical_as_str=True)
        return
    got, want = judges.given(form, column, array.type), judges.wanted(array, rows)
    assert judges.same(got, want), (got, want)


def may_refuse(form: str, arrays: dict[str, Any], steps: list[str]) -> bool:
    """Whether the documentation says that this form refuses one of these columns."""
    if form == "torch":
        return "left" in steps or not all(judges.in_torch(array.type, array) for array in arrays.values())
    return form == "polars" and not all(map(in_polars, arrays.values()))


def in_polars(array: Any) -> bool:
    refused = ("list_view", "union", "interval", "decimal256", "[0]")
    return not any(word in str(array.type) for word in refused)


NO_ELEMENTS = {"row": pa.array(range(ROWS)), "c0": pa.array([[]] * ROWS, pa.list_(pa.int8(), 0))}


@INLINE
@example((pa.table(NO_ELEMENTS), NO_ELEMENTS), [], "polars")
@example((pa.table(NO_ELEMENTS), NO_ELEMENTS), [], "arrow")
@given(arrow_tables(), Steps, Ends)
def test_arrow_tables_come_out_as_pyarrow_has_them(case: Any, steps: list[str], end: str) -> None:
    check_arrow(case, steps, end, "inline")


@FEW
@given(arrow_tables(), Steps, Ends, st.sampled_from(["thread", "process"]))
def test_arrow_tables_come_out_of_workers_as_pyarrow_has_them(case: Any, steps: Any, end: str, kind: str) -> None:
    check_arrow(case, steps, end, kind)


# --- pandas -----------------------------------------------------------------------------------------------------------


def check_pandas(frame: Any, steps: list[str], end: str, kind: str) -> None:
    pipe, rows = applied(Pipe.of(frame), steps, list(frame.columns))
    samples, said = attempt(pipe, end, kind)
    if samples is None:
        assert "cannot hold that" in said
        assert end not in ("pandas", "numpy", "rows", "rows of numpy"), said
        return
    if end.startswith("rows"):
        assert sorted(int(row["row"]) for row in samples) == sorted(rows)
        for row in samples:
            for name in frame.columns if end != "rows of arrow" else ():
                check_object(frame, name, int(row["row"]), row[name])
        return
    for batch in samples:
        found = numbers(batch)
        if end == "pandas":
            want = frame.iloc[found].reset_index(drop=True)
            pd.testing.assert_frame_equal(batch[list(frame.columns)], want)
            for name in frame.columns:
                if frame[name].dtype == object:
                    assert judges.same(batch[name].tolist(), want[name].tolist())
        elif end in ("numpy", "arrow"):
            for name in frame.columns:
                values = list(batch[name]) if end == "numpy" else batch[name].to_pylist()
                for number, value in zip(found, values, strict=True):
                    check_object(frame, name, number, None if value is np.ma.masked else value)


def check_object(frame: Any, name: str, number: int, value: Any) -> None:
    """A Python object comes out as it was given; of other dtypes it is checked in pandas' own form."""
    if frame[name].dtype == object:
        given_ = frame[name].iloc[number]
        assert judges.same(value, given_) or exactly_same(given_, value), (value, given_)


@INLINE
@given(pandas_frames(), Steps, Ends)
def test_pandas_frames_come_out_as_they_were(frame: Any, steps: list[str], end: str) -> None:
    check_pandas(frame, steps, end, "inline")


@FEW
@given(pandas_frames(), Steps, Ends, st.sampled_from(["thread", "process"]))
def test_pandas_frames_come_out_of_workers_as_they_were(frame: Any, steps: Any, end: str, kind: str) -> None:
    check_pandas(frame, steps, end, kind)


# --- polars and numpy -------------------------------------------------------------------------------------------------


def check_polars(frame: Any, steps: list[str], kind: str) -> None:
    pipe, rows = applied(Pipe.of(frame), steps, frame.columns)
    batches = read(pipe.batch(4, as_="polars"), kind)
    assert sorted(row for batch in batches for row in batch["row"]) == sorted(rows)
    for batch in batches:
        want = frame[batch["row"].to_list()]
        testing.assert_frame_equal(batch.select(frame.columns), want)


@INLINE
@given(polars_frames(), Steps)
def test_polars_frames_come_out_as_they_were(frame: Any, steps: list[str]) -> None:
    check_polars(frame, steps, "inline")


@FEW
@given(polars_frames(), Steps, st.sampled_from(["thread", "process"]))
def test_polars_frames_come_out_of_workers_as_they_were(frame: Any, steps: list[str], kind: str) -> None:
    check_polars(frame, steps, kind)


def check_numpy(frame: dict[str, Any], steps: list[str], end: str, kind: str) -> None:
    pipe, rows = applied(Pipe.of(frame), steps, list(frame))
    samples, said = attempt(pipe, end, kind)
    if samples is None:
        assert end not in ("numpy", "rows", "rows of numpy"), said
        masked = any(isinstance(v, np.ma.MaskedArray) for v in frame.values()) or "left" in steps
        odd = any(str(v.dtype) in REFUSED[end] or (end == "polars" and 0 in v.shape) for v in frame.values())
        assert odd or (end == "torch" and masked), said
        return
    if end.startswith("rows"):
        assert sorted(int(row["row"]) for row in samples) == sorted(rows)
        batches = [{name: [value] for name, value in row.items()} for row in samples]
        if end == "rows of arrow":
            return
    else:
        batches = samples
    for batch in batches:
        found = [int(row) for row in batch["row"]] if isinstance(batch["row"], list) else numbers(batch)
        for name, values in frame.items():
            got = batch[name]
            if end == "torch":
                got = got.numpy()
            elif end in ("arrow", "polars"):
                got = got.to_pylist() if end == "arrow" else got.to_list()
                check_listed(got, values[found])
                continue
            elif end == "pandas":
                check_listed(pa.array(got).to_pylist() if values.dtype.kind != "c" else got.tolist(), values[found])
                continue
            for one, two in zip(got, values[found], strict=True):
                assert np.array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(two)) or one is None
                assert same_numbers(one, two), (one, two)


TIMES = {"datetime64[10us]", "datetime64[h]"}
REFUSED = {
    "torch": {*TIMES, "datetime64[D]", "datetime64[ns]", "timedelta64[us]"},
    "rows of arrow": {*TIMES, "complex64"},
}
REFUSED |= {"arrow": REFUSED["rows of arrow"], "polars": REFUSED["rows of arrow"], "pandas": {*TIMES, "complex64"}}


def same_numbers(one: Any, two: Any) -> bool:
    if one is None or one is np.ma.masked:
        return bool(np.ma.getmaskarray(two).all())
    hidden = np.ma.getmaskarray(two)
    return one.dtype == two.dtype and bool(np.all((np.ma.getdata(one) == np.ma.getdata(two)) | hidden))


def check_listed(got: list[Any], values: Any) -> None:
    """Nested lists hold what the array holds, and None where it is masked."""
    flat, want = _flat(got), _flat(values.tolist())
    if values.dtype.kind in "mM":
        read_as = pd.Timestamp if values.dtype.kind == "M" else pd.Timedelta
        hidden, moments = np.ma.getmaskarray(values).ravel(), np.ma.getdata(values).ravel()
        want = [None if hide else read_as(v) for hide, v in zip(hidden, moments, strict=True)]
        flat = [None if value is None else read_as(value) for value in flat]
    assert flat == want, (got, values)


def _flat(values: Any) -> list[Any]:
    return [v for value in values for v in (_flat(value) if isinstance(value, list) else [value])]


@INLINE
@given(numpy_frames(), Steps, Ends)
def test_dicts_of_arrays_come_out_as_they_were(frame: Any, steps: list[str], end: str) -> None:
    check_numpy(frame, steps, end, "inline")


@FEW
@given(numpy_frames(), Steps, Ends, st.sampled_from(["thread", "process"]))
def test_dicts_of_arrays_come_out_of_workers_as_they_were(frame: Any, steps: Any, end: str, kind: str) -> None:
    check_numpy(frame, steps, end, kind)


# --- edits in place ---------------------------------------------------------------------------------------------------


def spoil(value: Any) -> None:
    """Change a value in place, if that can be done."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        for place in np.ndindex(value.shape):
            spoil(value[place])
        value[...] = None
    elif isinstance(value, np.ndarray):
        value[...] = np.zeros((), value.dtype)
    elif isinstance(value, list):
        value.append("spoilt")
    elif isinstance(value, dict):
        for inside in value.values():
            spoil(inside)
        value["spoilt"] = True


def check_edits(frame: Any, end: str, kind: str) -> None:
    pipe = Pipe.of(frame) if end == "rows" else Pipe.of(frame).batch(4)
    before = repr(read(pipe, kind))
    for sample in read(pipe, kind):
        for value in sample.values():
            spoil(value)
    assert repr(read(pipe, kind)) == before


@INLINE
@example(pd.DataFrame({"row": range(2), "c": pd.Series([[1], [2]], dtype=object)}), "numpy")
@given(arrow_tables().map(lambda case: case[0]) | numpy_frames() | pandas_frames(), st.sampled_from(["rows", "numpy"]))
def test_what_is_edited_in_place_is_the_users_own(frame: Any, end: str) -> None:
    check_edits(frame, end, "inline")


@FEW
@given(
    arrow_tables().map(lambda case: case[0]) | numpy_frames() | pandas_frames(),
    st.sampled_from(["rows", "numpy"]),
    st.sampled_from(["thread", "process"]),
)
def test_what_is_edited_in_place_is_the_users_own_in_workers(frame: Any, end: str, kind: str) -> None:
    check_edits(frame, end, kind)


# --- concat -----------------------------------------------------------------------------------------------------------


@INLINE
@given(arrow_tables(width=1), arrow_tables(width=1), st.sampled_from(FORMS))
def test_tables_of_unlike_types_are_never_one(one: Any, two: Any, form: str) -> None:
    first, second = one[1]["c0"], two[1]["c0"]
    assume(first.type != second.type)
    if {str(judges.inner(t)) for t in (first.type, second.type) if pa.types.is_run_end_encoded(t)} & {
        str(first.type),
        str(second.type),
    }:
        return  # values of one type, encoded in runs on one side
    with pytest.raises(BadPipe, match=r"in different parts"):
        read(Pipe.of(one[0]).concat(Pipe.of(two[0])).batch(ROWS, as_=form), "inline")


# --- rows of a stream -------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-(2**64), 2**65),
    st.sampled_from([0, 1, -1, 2**53 + 1, 2**62 + 1, 2**63, 2**64 - 1, -(2**63)]),
    st.sampled_from([np.int8(-3), np.uint8(200), np.int64(-1), np.uint64(2**63 + 1), np.float32(0.1)]),
    st.sampled_from([0.5, 1e300, float("nan")]),
    st.none(),
)


@INLINE
@given(st.lists(NUMBERS, min_size=1, max_size=4), st.sampled_from(["arrow", "numpy", "polars"]))
def test_a_frame_of_rows_of_numbers_holds_each_exactly_or_names_the_row(values: list[Any], form: str) -> None:
    pipe = Pipe.of([{"x": value} for value in values]).dataframe(len(values), as_=form)
    try:
        (frame,) = Loader(pipe)
    except BadPipe as error:
        said = str(error)
    else:
        listed = next(getattr(frame["x"], n) for n in ("to_pylist", "to_list", "tolist") if hasattr(frame["x"], n))()
        for value, got in zip(values, listed, strict=True):
            assert (value is None and got is None) or got == value or (got != got and value != value)
        return
    assert "column 'x' is" in said
    assert "row" in said


EXPRESSIONS = {
    "isin": lambda x: x.isin([1, 2]),
    "not isin": lambda x: ~x.isin([1, 2]),
    "isin null": lambda x: x.isin(pa.array([1, None])),
    "greater": lambda x: x > 1,
    "not greater": lambda x: ~(x > 1),
    "null": lambda x: x.is_null(),
    "or": lambda x: (x == 1) | x.is_null(),
}


@INLINE
@given(st.lists(st.sampled_from([None, 0, 1, 2, 3]), min_size=1, max_size=5), st.sampled_from([*EXPRESSIONS]))
def test_a_filter_keeps_the_same_rows_of_a_stream_and_of_a_table(values: list[Any], name: str) -> None:
    expression = EXPRESSIONS[name](pc.field("x"))
    rows = [{"row": row, "x": value} for row, value in enumerate(values)]
    table = pa.table({"row": range(len(values)), "x": pa.array(values, pa.int64())})
    want = table.filter(expression)["row"].to_pylist()
    assert [row["row"] for row in Loader(Pipe.of(rows).filter(expression))] == want
    assert [int(row["row"]) for row in Loader(Pipe.of(table).filter(expression))] == want
