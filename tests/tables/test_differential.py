"""Random tables through the verbs, in every form and kind of worker, against pyarrow, pandas, polars and numpy.

What comes out is judged by `cases`. In threads and processes several tables are one pipe, in one set of workers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="not installed")
pc = pytest.importorskip("pyarrow.compute", reason="not installed")
pd = pytest.importorskip("pandas", reason="not installed")
pytest.importorskip("polars", reason="not installed")
pytest.importorskip("torch", reason="not installed")

from headrace import Loader, Pipe  # noqa: E402
from headrace.errors import BadPipe  # noqa: E402
from headrace.observe.digest import digest  # noqa: E402
from tests.depth import depth  # noqa: E402
from tests.tables import cases  # noqa: E402
from tests.tables.cases import FORMS, Case, Ends, Steps, judged, judged_together, read  # noqa: E402
from tests.tables.random_frames import numpy_frames, pandas_frames, polars_frames  # noqa: E402
from tests.tables.random_tables import ROWS, arrow_tables  # noqa: E402

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}
TOGETHER = 10
"""Tables in one pipe, where there are workers."""
INLINE = settings(max_examples=depth(40, 5_000), **QUIET)  # for each of four kinds of frames
AT_ONCE = {**QUIET, "phases": [Phase.explicit, Phase.generate]}  # to look for a smaller case would take hours
SEVERAL = settings(max_examples=depth(1, 13), **AT_ONCE)  # so many times ten, of each kind, for each kind of worker
ALONE = settings(max_examples=depth(1, 20), **AT_ONCE)
pytestmark = pytest.mark.timeout(depth(120, 5400))

KINDS: dict[str, tuple[Callable[[Any, list[str], str], Case], st.SearchStrategy[Any]]] = {
    "arrow": (cases.arrow_case, arrow_tables()),
    "pandas": (cases.pandas_case, pandas_frames()),
    "polars": (cases.polars_case, polars_frames()),
    "numpy": (cases.numpy_case, numpy_frames()),
}


def several(kind: str) -> st.SearchStrategy[list[tuple[Any, list[str], str]]]:
    return st.lists(st.tuples(KINDS[kind][1], Steps, Ends), min_size=TOGETHER, max_size=TOGETHER)


@pytest.mark.parametrize("kind", KINDS)
@INLINE
@given(st.data(), Steps, Ends)
def test_tables_come_out_as_their_makers_have_them(kind: str, data: st.DataObject, steps: list[str], end: str) -> None:
    make, frames = KINDS[kind]
    judged(make(data.draw(frames), steps, end))


@pytest.mark.parametrize("worker", ["thread", "process"])
@pytest.mark.parametrize("kind", KINDS)
@SEVERAL
@given(st.data())
def test_tables_come_out_of_workers_as_their_makers_have_them(kind: str, worker: str, data: st.DataObject) -> None:
    make, _ = KINDS[kind]
    judged_together([make(*case) for case in data.draw(several(kind))], worker)


@ALONE
@given(st.sampled_from([*KINDS]), st.data(), Steps, Ends)
def test_what_is_refused_is_refused_in_processes_too(kind: str, data: st.DataObject, steps: Any, end: str) -> None:
    make, frames = KINDS[kind]
    judged(make(data.draw(frames), steps, end), "process")


NO_ELEMENTS = {"row": pa.array(range(ROWS)), "c0": pa.array([[]] * ROWS, pa.list_(pa.int8(), 0))}


@pytest.mark.parametrize("form", ["polars", "arrow"])
def test_lists_of_no_elements_end_no_process(form: str) -> None:
    judged(cases.arrow_case((pa.table(NO_ELEMENTS), NO_ELEMENTS), [], form))


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


FRAMES = arrow_tables().map(lambda case: case[0]) | numpy_frames() | pandas_frames()


def check_edits(frames: list[Any], end: str, kind: str) -> None:
    parts = [Pipe.of(frame) if end == "rows" else Pipe.of(frame).batch(4) for frame in frames]
    pipe = parts[0].map(list).concat(*[part.map(list) for part in parts[1:]]) if kind != "inline" else parts[0]
    before = digest(read(pipe, kind))
    for samples in (read(pipe, kind), pipe if kind == "inline" else ()):  # (A pipe can be iterated without a loader.)
        for sample in samples:
            for value in sample.values() if isinstance(sample, dict) else sample:
                spoil(value)
        assert digest(read(pipe, kind)) == before


@INLINE
@example(pd.DataFrame({"row": range(2), "c": pd.Series([[1], [2]], dtype=object)}), "numpy")
@example({"row": np.arange(2), "c": np.zeros((2, 3))}, "rows")
@given(FRAMES, st.sampled_from(["rows", "numpy"]))
def test_what_is_edited_in_place_is_the_users_own(frame: Any, end: str) -> None:
    check_edits([frame], end, "inline")


@pytest.mark.parametrize("worker", ["thread", "process"])
@SEVERAL
@given(st.lists(FRAMES, min_size=TOGETHER, max_size=TOGETHER), st.sampled_from(["rows", "numpy"]))
def test_what_is_edited_in_place_is_the_users_own_in_workers(worker: str, frames: list[Any], end: str) -> None:
    check_edits(frames, end, worker)


# --- concat -----------------------------------------------------------------------------------------------------------


@INLINE
@given(arrow_tables(width=1), arrow_tables(width=1), st.sampled_from(FORMS))
def test_tables_of_unlike_types_are_never_one(one: Any, two: Any, form: str) -> None:
    first, second = [
        kind.value_type if pa.types.is_run_end_encoded(kind) else kind  # runs are taken for their values
        for kind in (one[1]["c0"].type, two[1]["c0"].type)
    ]
    assume(first != second)
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
