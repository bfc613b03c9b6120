"""Joins by random keys of many types: one rule, on rows, on columns and on frames, against a model and against polars.

The model is docs/frames.md in Python: missing keys never match, numbers match by exact value, instants by the moment.
"""

import datetime as dt
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="not installed")
pd = pytest.importorskip("pandas", reason="not installed")
pl = pytest.importorskip("polars", reason="not installed")

from headrace import Loader, Pipe  # noqa: E402
from headrace.errors import BadOption, BadPipe  # noqa: E402
from tests.depth import depth  # noqa: E402

SETTINGS = settings(max_examples=depth(60, 5000), deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.timeout(depth(60, 3600))
UNITS = ("s", "ms", "us", "ns")
BIG = [0, 1, -1, 2, 127, 128, 255, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, 0.1, 0.5, 2.0**53, 2.0**63, 2.0**64, float("nan"), float("inf"), -1.0, 127.0]
SECONDS = [*np.array([0, 1, 60, 86_400, -86_400], "M8[s]"), np.datetime64("NaT", "s")]


def missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value != value


def moment(value: Any) -> int:
    """Nanoseconds since 1970."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit, count = np.datetime_data(value.dtype)
        sizes = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
        return int(value.view(np.int64)) * count * sizes[unit]
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)
    return (value.days * 86_400 + value.seconds) * 10**9 + value.microseconds * 1000 + getattr(value, "nanoseconds", 0)


def model(value: Any) -> Any:
    """What is compared; None matches nothing."""
    if missing(value):
        return None
    if isinstance(value, np.datetime64 | np.timedelta64 | dt.datetime | dt.timedelta):
        return moment(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value in (float("inf"), -float("inf")):
        return value
    return value if isinstance(value, str | bytes) else Fraction(value)


def arrays(values: list[Any], dtype: Any) -> st.SearchStrategy[Any]:
    def made(v: list[Any]) -> Any:
        with np.errstate(over="ignore"):
            return np.array(v).astype(dtype)

    return st.lists(st.sampled_from(values), min_size=1, max_size=6).map(made)


def whole(dtype: str) -> st.SearchStrategy[Any]:
    limits = np.iinfo(dtype)
    fit = [v for v in BIG if limits.min <= v <= limits.max]
    return st.lists(st.sampled_from(fit), min_size=1, max_size=6).map(lambda v: np.array(v, dtype))


def masked(column: Any) -> st.SearchStrategy[Any]:
    marks = st.lists(st.booleans(), min_size=len(column), max_size=len(column))
    return st.just(column) | marks.map(lambda mask: np.ma.MaskedArray(column, mask))


def listed(values: list[Any]) -> st.SearchStrategy[Any]:
    def objects(v: list[Any]) -> Any:
        made = np.empty(len(v), object)
        made[:] = v
        return made

    return st.lists(st.sampled_from(values), min_size=1, max_size=6).map(objects)


WORDS = ["", "a", "b", "zürich", None]
FAMILIES: dict[str, st.SearchStrategy[Any]] = {
    "numbers": st.one_of(
        *[whole(t).flatmap(masked) for t in ("int8", "uint8", "int64", "uint64")],
        *[arrays(FLOATS, t).flatmap(masked) for t in ("float16", "float32", "float64")],
        listed([None, 1, 2**53 + 1, 1.0, float("nan"), np.float32(0.1), 0.1, -0.0, 0]),
    ),
    "moments": st.one_of(
        *[arrays(SECONDS, "M8[s]").map(lambda v, u=u: v.astype(f"M8[{u}]")) for u in UNITS],
        arrays([0, 1, 1000, 1_000_000], "i8").map(lambda v: v.view("M8[ns]")),
        arrays(SECONDS, "M8[s]").map(lambda v: v.astype("M8[D]")),
        listed([None, pd.NaT, dt.datetime(1970, 1, 1), pd.Timestamp(1), pd.Timestamp(0), np.datetime64(60, "s")]),
    ),
    "text": st.one_of(
        listed(WORDS),
        listed(WORDS).map(lambda v: pa.array(v.tolist(), pa.string())),
        listed(WORDS).map(lambda v: pa.array(v.tolist(), pa.string()).dictionary_encode()),
        listed(WORDS).map(lambda v: pa.array(v.tolist(), pa.string_view())),
        listed(["a", "b", ""]).map(lambda v: np.array(v.tolist(), "U6")),
    ),
}


def values_of(column: Any) -> list[Any]:
    """One value a row; None where it is masked."""
    if isinstance(column, np.ndarray):
        mask = np.ma.getmaskarray(column)
        return [None if hidden else value for hidden, value in zip(mask, np.ma.getdata(column), strict=True)]
    return column.to_pylist()  # type: ignore[no-any-return]


def frame_of(columns: dict[str, Any]) -> Any:
    if any(isinstance(c, np.ndarray) and c.dtype == object for c in columns.values()):  # Arrow would change objects
        return {n: c if isinstance(c, np.ndarray) else np.array(c.to_pylist(), object) for n, c in columns.items()}
    return columns if all(isinstance(c, np.ndarray) for c in columns.values()) else pa.table(columns)


def distinct(columns: list[Any]) -> list[int]:
    """Rows with keys that no earlier row has, and those with a missing key."""
    seen: set[Any] = set()
    kept = []
    for row, key in enumerate(zip(*[values_of(c) for c in columns], strict=True)):
        shown = tuple(model(part) for part in key)
        if None in shown or shown not in seen:
            kept.append(row)
            seen.add(shown)
    return kept


def taken(column: Any, rows: list[int]) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    values = column.to_pylist()
    return pa.array([values[row] for row in rows], column.type)


def bits_of_other_sign(column: Any) -> Any:
    """Integers whose bits mean others with a sign, or without; what is none stays."""
    signs = {"i": "u", "u": "i"}
    if not isinstance(column, np.ndarray) or column.dtype.kind not in signs:
        return column
    return np.ma.getdata(column).view(f"{signs[column.dtype.kind]}{column.dtype.itemsize}")


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Key columns here and there: one or two of them, each of one family but any types."""
    families = draw(st.lists(st.sampled_from([*FAMILIES]), min_size=1, max_size=2))
    here = [draw(FAMILIES[f]) for f in families]
    there = [
        bits_of_other_sign(c) if draw(st.integers(0, 7)) == 0 else draw(FAMILIES[f])
        for f, c in zip(families, here, strict=True)
    ]
    rows, others = min(map(len, here)), min(map(len, there))
    there = [taken(c, list(range(others))) for c in there]
    return [taken(c, list(range(rows))) for c in here], [taken(c, distinct(there)) for c in there]


def _joined(left: Any, right: Any, names: list[str], how: str, where: str) -> Pipe[Any]:
    pipe: Pipe[Any] = Pipe.of(left)
    if where == "rows":
        pipe = pipe.map(dict)
    elif where != "columns":
        pipe = pipe.batch(2, as_="numpy" if where == "frames" else "arrow")
    joined = pipe.join(right, names, how=how)
    return joined.rows() if "frames" in where else joined


@SETTINGS
@given(cases(), st.sampled_from(["left", "inner"]), st.sampled_from(["columns", "rows", "frames", "arrow frames"]))
def test_every_join_finds_what_the_rule_says(case: Any, how: str, where: str) -> None:
    here, there = case
    names = [f"k{i}" for i in range(len(here))]
    left = frame_of({**dict(zip(names, here, strict=True)), "row": np.arange(len(here[0]))})
    right = frame_of({**dict(zip(names, there, strict=True)), "found": np.arange(len(there[0]))})
    try:
        rows = list(Loader(_joined(left, right, names, how, where)))
    except BadPipe as error:
        refused = str(error)
    else:
        refused = ""
    if refused:  # objects of any kind stay in their columns; Arrow has no type for some of them
        assert where == "arrow frames", refused
        assert "arrow cannot hold that" in refused
        return
    known = {tuple(map(model, key)): row for row, key in enumerate(zip(*map(values_of, there), strict=True))}
    want = []
    for row, key in enumerate(zip(*map(values_of, here), strict=True)):
        shown = tuple(map(model, key))
        found = None if None in shown else known.get(shown)
        if how == "left" or found is not None:
            want.append((row, found))
    assert [(int(r["row"]), None if r["found"] is None else int(r["found"])) for r in rows] == want


@SETTINGS
@given(
    st.sampled_from([pl.Int8, pl.Int64, pl.UInt64, pl.String, pl.Date, pl.Datetime("us"), pl.Float64, pl.Boolean]),
    st.lists(st.sampled_from([None, 0, 1, 2, 3]), max_size=6),
    st.sets(st.sampled_from([0, 1, 2, 3]), min_size=1),
    st.sampled_from(["left", "inner"]),
)
def test_joins_by_keys_of_one_type_are_those_of_polars(dtype: Any, here: Any, there: Any, how: str) -> None:
    def series(values: Any) -> Any:
        made = pl.Series(list(values), dtype=pl.Int64)
        return made.cast(pl.String) if dtype == pl.String else made.cast(dtype)

    right = pl.DataFrame({"k": series(sorted(there))}).unique(maintain_order=True).with_row_index("found")
    left = pl.DataFrame({"k": series(here)}).with_row_index("row")
    want = left.join(right, "k", how=how, maintain_order="left").select("row", "found").rows()  # type: ignore[arg-type]
    got = list(Loader(Pipe.of(left).join(right, "k", how=how)))
    assert [(int(r["row"]), None if r["found"] is None else int(r["found"])) for r in got] == want


@pytest.mark.parametrize("where", ["columns", "rows"])
def test_keys_of_different_kinds_are_an_error(where: str) -> None:
    pipe = Pipe.of({"k": np.array([1, 2])})
    pipe = pipe.map(dict) if where == "rows" else pipe
    for keys in (np.array(["1"], object), np.array([True]), np.array(["1970-01-01"], "M8[s]")):
        with pytest.raises((BadPipe, BadOption), match=r"compares numbers with the frame's .*cast one"):
            list(Loader(pipe.join({"k": keys}, "k", how="inner")))
    zoned = pa.table({"k": pa.array([0], pa.timestamp("us", "UTC"))})
    naive = pa.table({"k": pa.array([0], pa.timestamp("us"))})
    with pytest.raises(BadPipe, match=r"without a time zone with the frame's instants with a time zone"):
        list(Loader(Pipe.of(naive).join(zoned, "k")))
    assert len(list(Loader(Pipe.of(zoned).join(zoned, "k", how="inner")))) == 1


@pytest.mark.parametrize("where", ["columns", "rows", "frames"])
def test_a_name_that_both_have_is_an_error_everywhere(where: str) -> None:
    pipe: Pipe[Any] = Pipe.of({"k": np.array([1]), "v": np.array([5])})
    pipe = pipe.map(dict) if where == "rows" else pipe.batch(1) if where == "frames" else pipe
    with pytest.raises(BadPipe, match=r"two columns the name 'v'"):
        list(Loader(pipe.join({"k": np.array([1]), "v": np.array([7])}, "k")))


def test_a_frame_without_rows_matches_nothing() -> None:
    for right in (
        pa.table({"k": pa.array([], pa.int64()), "s": pa.array([], pa.string())}),
        {"k": np.zeros(0), "s": np.zeros(0)},
    ):
        (batch,) = Loader(Pipe.of({"k": np.array([1, 2])}).join(right, "k").batch(2))
        assert batch["s"].tolist() == [None, None]
        assert len(Pipe.of({"k": np.array([1, 2])}).join(right, "k", how="inner")) == 0


def test_a_key_that_is_there_twice_and_a_key_that_is_not_there() -> None:
    with pytest.raises(BadOption, match=r"k = 0.0 is there twice|k = -0.0 is there twice"):
        Pipe.of({"k": np.array([1.0])}).join({"k": np.array([0.0, -0.0])}, "k")
    missing_twice = {"k": np.array([float("nan")] * 2), "v": np.arange(2)}
    assert next(iter(Loader(Pipe.of({"k": np.array([float("nan")])}).join(missing_twice, "k"))))["v"] is None
    with pytest.raises(BadOption, match=r"no column 'z'"):
        list(Loader(Pipe.of([{"k": 1}]).join({"z": np.array([1])}, "z")))
