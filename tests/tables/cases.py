"""Cases: a table through some verbs to a form, and who judges what comes out.

A column `row` numbers the rows, so that whatever the verbs do, each row that comes out is compared with the one it was.
A form may refuse a column only where docs/frames.md says so.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from polars import testing

from headrace import Loader, Pipe
from headrace.errors import BadOption, BadPipe
from headrace.tables.convert.objects import same as exactly_same
from tests.tables import bits, judges
from tests.tables.random_tables import ROWS

FORMS = ("numpy", "torch", "pandas", "polars", "arrow")
WORKERS: dict[str, dict[str, Any]] = {
    "inline": {},
    "thread": {"workers": 2, "kind": "thread"},
    "process": {"workers": 2},
}

STEPS = ["shuffle", "filter", "isin", "select", "concat", "rename"]
Steps = st.lists(st.sampled_from(STEPS), max_size=3, unique=True)
Ends = st.sampled_from([*FORMS, "rows", "rows of numpy", "rows of arrow"])


def applied(pipe: Pipe[Any], steps: list[str], names: list[str]) -> Pipe[Any]:
    """The pipe with these verbs."""
    # Rows are chosen first: after a new name a filter takes tables apart, as it says.
    for step in sorted(steps, key=lambda step: step not in ("filter", "isin")):
        if step == "shuffle":
            pipe = pipe.shuffle()
        elif step == "filter":
            pipe = pipe.filter(pc.field("row") > 1)
        elif step == "isin":
            pipe = pipe.filter(pc.field("row").isin([0, 2, 3]))
        elif step == "select":
            pipe = pipe.select(*reversed(names))
        elif step == "concat":
            pipe = pipe.concat(pipe)
        else:
            pipe = pipe.rename(row="number").rename(number="row")
    return pipe


def surviving(steps: list[str]) -> list[int]:
    """The numbers of the rows that must come out, in any order."""
    kept = {"filter": {2, 3, 4, 5}, "isin": {0, 2, 3}}
    rows = [row for row in range(ROWS) if all(row in kept[step] for step in steps if step in kept)]
    return rows * 2 if "concat" in steps else rows


def read(pipe: Pipe[Any], kind: str) -> list[Any]:
    with Loader(pipe, seed=1, **WORKERS[kind]) as loader:
        return list(loader)


Judge = Callable[[list[Any] | None, str], None]
"""Looks at what came out, or at None and the refusal."""
Case = tuple[Callable[[], Pipe[Any]], Judge]
"""A pipe, which may be refused when it is made, and who judges it."""


def judged(case: Case, kind: str = "inline") -> bool:
    """Run one pipe by itself; whether something came out."""
    made, judge = case
    try:
        samples = read(made(), kind)
    except (BadPipe, BadOption) as error:
        judge(None, str(error))
        return False
    judge(samples, "")
    return True


def judged_together(cases: list[Case], kind: str) -> None:
    """All pipes as one, in one set of workers; those that are refused are judged inline."""
    taken = [case for case in cases if judged(case)]
    if not taken:
        return
    first, *others = [made().map(partial(tagged, number)) for number, (made, _) in enumerate(taken)]
    found: dict[int, list[Any]] = {number: [] for number in range(len(taken))}
    for number, sample in read(first.concat(*others) if others else first, kind):
        found[number].append(sample)
    for (_, judge), samples in zip(taken, found.values(), strict=True):
        judge(samples, "")


def tagged(number: int, sample: Any) -> tuple[int, Any]:
    return number, sample


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


def check_rows(samples: list[Any], rows: list[int], arrays: dict[str, Any]) -> None:
    """Every row came once, each as its maker has it."""
    assert sorted(int(row["row"]) for row in samples) == sorted(rows)
    for row in samples:
        for name, array in arrays.items():
            (want,) = judges.wanted(array, [int(row["row"])])
            assert judges.same(judges.of_numpy(row[name], array.type), want), name


def arrow_case(case: tuple[Any, dict[str, Any]], steps: list[str], end: str) -> Case:
    table, arrays = case

    def judge(samples: list[Any] | None, said: str) -> None:
        rows = surviving(steps)
        if samples is None:
            assert may_refuse(end, arrays), said
            return
        if end.startswith("rows"):
            check_rows(samples, rows, arrays)
            return
        assert sorted(row for batch in samples for row in numbers(batch)) == sorted(rows)
        for batch in samples:
            found = numbers(batch)
            for name, array in arrays.items():
                check_column(end, batch[name], array, found)

    return lambda: ended(applied(Pipe.of(table), steps, table.schema.names), end), judge


def check_column(form: str, column: Any, array: Any, rows: list[int]) -> None:
    if form == "polars":
        plain = pc.run_end_decode(array) if pa.types.is_run_end_encoded(array.type) else array
        whole = pl.from_arrow(pa.table({"x": plain}))["x"]
        assert column.dtype == whole.dtype
        testing.assert_series_equal(column, whole.gather(rows), check_names=False, categorical_as_str=True)
        return
    got, want = judges.given(form, column, array.type), judges.wanted(array, rows)
    assert judges.same(got, want), (got, want)


def may_refuse(form: str, arrays: dict[str, Any]) -> bool:
    """Whether the documentation says that this form refuses one of these columns."""
    if form == "torch":
        return not all(judges.in_torch(array.type, array) for array in arrays.values())
    return form == "polars" and not all(map(in_polars, arrays.values()))


def in_polars(array: Any) -> bool:
    refused = ("list_view", "union", "interval", "decimal256", "[0]")
    kind = str(array.type)
    decimals = ("decimal32" in kind or "decimal64" in kind) and (("struct" in kind[1:]) or "map" in kind)
    return not decimals and not any(word in kind for word in refused)


def pandas_case(frame: Any, steps: list[str], end: str) -> Case:
    def judge(samples: list[Any] | None, said: str) -> None:
        rows = surviving(steps)
        if samples is None:
            assert "cannot hold" in said
            assert end not in ("pandas", "numpy", "rows", "rows of numpy"), said
            return
        if end.startswith("rows"):
            assert sorted(int(row["row"]) for row in samples) == sorted(rows)
            for row in samples:
                for name in frame.columns if end != "rows of arrow" else ():
                    check_cell(frame[name], int(row["row"]), row[name])
            return
        assert sorted(row for batch in samples for row in numbers(batch)) == sorted(rows)
        for batch in samples:
            found = numbers(batch)
            if end == "pandas":
                check_pandas(batch[list(frame.columns)], frame, found)
            for name in frame.columns:
                check_series(end, batch[name], frame[name], found)

    return lambda: ended(applied(Pipe.of(frame), steps, list(frame.columns)), end), judge


def check_pandas(got: Any, frame: Any, rows: list[int]) -> None:
    """By pandas itself, but for columns of Arrow types: it does not compare all of them, nor takes the right rows."""
    arrow = [name for name in frame.columns if isinstance(frame[name].dtype, pd.ArrowDtype)]
    for name in arrow:
        assert got[name].dtype == frame[name].dtype
        check_column("arrow", pa.chunked_array([arrow_of(got[name])]), arrow_of(frame[name]), rows)
    want = frame.drop(columns=arrow).iloc[rows].reset_index(drop=True)
    with np.errstate(invalid="ignore"):  # numpy minds some NaNs that pandas compares
        pd.testing.assert_frame_equal(got.drop(columns=arrow), want)


def check_series(form: str, column: Any, series: Any, rows: list[int]) -> None:
    """A column of pandas in a form: objects as they are, numpy's bit by bit, all others as pyarrow reads them."""
    if series.dtype == object and form in ("pandas", "numpy", "arrow"):
        values = column.to_pylist() if form == "arrow" else list(column)
        for row, value in zip(rows, values, strict=True):
            check_cell(series, row, value)
    elif isinstance(series.dtype, pd.SparseDtype):
        bits.check(form, column.sparse.to_dense() if form == "pandas" else column, dense(series)[rows])
    elif isinstance(series.dtype, np.dtype) and series.dtype != object:
        bits.check(form, column, series.to_numpy()[rows])
    elif form != "pandas":  # which has compared it itself
        check_column(form, column, arrow_of(series), rows)


def check_cell(series: Any, row: int, value: Any) -> None:
    if series.dtype == object:
        given, got = series.iloc[row], None if value is np.ma.masked else value
        assert judges.same(got, given) or exactly_same(given, got), (got, given)
    elif isinstance(series.dtype, pd.SparseDtype):
        bits.compare(value, dense(series)[row])
    elif isinstance(series.dtype, np.dtype):
        bits.compare(value, series.to_numpy()[row])
    else:
        array = arrow_of(series)
        (want,) = judges.wanted(array, [row])
        assert judges.same(judges.of_numpy(value, array.type), want), (value, want)


def dense(series: Any) -> Any:
    return series.sparse.to_dense().to_numpy()


def arrow_of(series: Any) -> Any:
    """What pyarrow itself makes of a column of pandas, laid out anew: it and polars fail at slices of lists in lists.

    Among objects NaN is a number and None is missing.
    """
    array = pa.array(series, from_pandas=series.dtype != object)
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return pa.concat_arrays([whole, whole.slice(0, 0)])


def polars_case(frame: Any, steps: list[str], end: str) -> Case:
    objects = any(dtype == pl.Object for dtype in frame.dtypes)

    def judge(samples: list[Any] | None, said: str) -> None:
        assert objects == ("which only polars can read" in said)
        if objects:
            return
        rows = surviving(steps)
        if samples is None:
            assert end == "torch", said
            assert "cannot hold" in said
            return
        if end.startswith("rows"):
            check_rows(samples, rows, {name: plainest(frame[name]) for name in frame.columns})
            return
        assert sorted(row for batch in samples for row in numbers(batch)) == sorted(rows)
        for batch in samples:
            found = numbers(batch)
            if end == "polars":
                testing.assert_frame_equal(batch.select(frame.columns), frame[found], check_exact=True)
                continue
            for name in frame.columns:
                check_column(end, batch[name], plainest(frame[name]), found)

    return lambda: ended(applied(Pipe.of(frame), steps, frame.columns), end), judge


def plainest(series: Any) -> Any:
    """What polars itself gives to Arrow."""
    array = pa.table(pl.DataFrame({"x": series}))["x"].combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def numpy_case(frame: Any, steps: list[str], end: str) -> Case:
    columns = frame if isinstance(frame, dict) else {name: frame[name] for name in frame.dtype.names}

    def judge(samples: list[Any] | None, said: str) -> None:
        rows = surviving(steps)
        if samples is None:
            masked = any(isinstance(v, np.ma.MaskedArray) for v in columns.values())
            assert any(refused(end, v) for v in columns.values()) or (end == "torch" and masked), said
            return
        assert not any(refused(end, v) for v in columns.values()), (end, [(v.dtype, v.shape) for v in columns.values()])
        if end.startswith("rows"):
            assert sorted(int(row["row"]) for row in samples) == sorted(rows)
            for row in samples if end != "rows of arrow" else ():
                for name, values in columns.items():
                    bits.compare(row[name], values[int(row["row"])])
            return
        assert sorted(row for batch in samples for row in numbers(batch)) == sorted(rows)
        for batch in samples:
            for name, values in columns.items():
                bits.check(end, batch[name], values[numbers(batch)])

    return lambda: ended(applied(Pipe.of(frame), steps, list(columns)), end), judge


def refused(form: str, values: Any) -> bool:
    """Whether this form has no such dtype."""
    form = form.removeprefix("rows of ")
    kind, unit = values.dtype, np.datetime_data(values.dtype) if values.dtype.kind in "mM" else None
    if form in ("numpy", "rows"):
        return False
    if form == "torch":
        return kind.kind not in "biufc" or not kind.isnative or kind == np.longdouble
    plain = values.ndim == 1 and not isinstance(values, np.ma.MaskedArray)
    if form == "pandas" and plain and unit is None:
        return False
    if form == "polars" and (0 in values.shape or (unit is not None and unit[0] == "s" and far(values))):
        return True
    units = {("s", 1), ("ms", 1), ("us", 1), ("ns", 1)} | ({("D", 1)} if kind.kind == "M" else set())
    if unit is not None:
        return unit not in units or (unit == ("D", 1) and far(values, np.int32))
    return kind.kind in "cV" or not kind.isnative or kind == np.longdouble


def far(values: Any, width: Any = np.int64) -> bool:
    """Whether a moment is too far away for milliseconds, or days for 32 bits."""
    seen = np.ma.getdata(values)[~(np.ma.getmaskarray(values) | np.isnat(values))].view(np.int64)
    scale = 1000 if width == np.int64 else 1
    return any(not np.iinfo(width).min <= int(v) * scale <= np.iinfo(width).max for v in seen.ravel())
