"""Verbs on columns, on streams of rows and on frames."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption, BadPipe
from tests.depth import depth
from tests.tables.frames import KINDS, doubled, frame, numbers

pa = pytest.importorskip("pyarrow", reason="expressions are pyarrow's")
pc = pytest.importorskip("pyarrow.compute", reason="expressions are pyarrow's")

FRAMES = ("pandas", "polars", "arrow")


def rows(count: int) -> Any:
    return lambda: ({"k": i, "x": i / 2, "s": f"s{i}"} for i in range(count))


def dict_of(columns: Any) -> Any:
    return dict(columns)


def values(batches: Any, name: str) -> list[Any]:
    return [v for b in batches for v in b[name].tolist()]


# --- columns of frames ------------------------------------------------------------------------------------------------


def test_select_reaches_the_source_through_verbs_that_keep_columns() -> None:
    pipe = Pipe.of(numbers(20)).shuffle().header(10).cycle(2).select("k", "c1").batch(4)
    assert "frame(20 rows, 2 columns)" in repr(pipe)
    assert all(list(b) == ["k", "c1"] for b in Loader(pipe))


@pytest.mark.parametrize("batched", [False, True])
def test_select_behind_select_or_rename_sees_only_what_they_leave(batched: bool) -> None:
    def named(pipe: Pipe[Any]) -> list[str]:
        return list(next(iter(Loader(pipe.batch(2) if batched else pipe))))

    mapped = Pipe.of(numbers(6)).map(dict_of, batched=True)
    assert named(mapped.rename(k="c0", c0="k").select("c1", "k").select("k")) == ["k"]
    for wrong in (mapped.rename(k="new").select("k"), mapped.rename(no="new").select("c1")):
        with pytest.raises(BadOption, match="there is no column"):
            named(wrong)
    with pytest.raises(BadOption, match="there is no column 'c0'"):
        named(mapped.select("k", "c1").select("c0"))


def test_select_after_a_map_takes_what_the_map_gives() -> None:
    pipe = Pipe.of(numbers(20)).map(doubled, batched=True).select("twice").batch(4)
    assert values(Loader(pipe), "twice") == [4.0 * i for i in range(20)]


def test_rename_gives_new_names_and_refuses_two_of_one() -> None:
    pipe = Pipe.of(numbers(5)).rename({"k": "key"}).map(lambda c: {"n": c["key"] + 1}, batched=True).rename(n="next")
    assert values(Loader(pipe.batch(2)), "next") == [1, 2, 3, 4, 5]
    with pytest.raises(BadOption, match=r"two columns the name 'c0'"):
        Pipe.of(numbers(5)).rename(k="c0")
    with pytest.raises(BadOption, match=r"no column 'z'; there are: 'c0'"):
        Pipe.of(numbers(5)).select("z")


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "memmap"])
def test_a_filter_by_expression_knows_how_many_rows_are_left(kind: str) -> None:
    pipe = Pipe.of(frame(kind, 50)).shuffle().filter((pc.field("k") > 9) & pc.field("even"))
    assert len(pipe) == 20
    assert sorted(values(Loader(pipe.batch(6)), "k")) == list(range(10, 50, 2))


def test_filters_add_up_and_a_filter_stands_where_it_must() -> None:
    twice = Pipe.of(numbers(50)).filter(pc.field("k") > 9).filter(pc.field("k") < 20)
    assert values(Loader(twice.batch(50)), "k") == list(range(10, 20))
    first = Pipe.of(numbers(50)).header(10).filter(pc.field("k") > 7)
    assert [row["k"] for row in Loader(first)] == [8, 9]
    mapped = Pipe.of(numbers(50)).map(doubled, batched=True).filter(pc.field("twice") < 10)
    assert [row["k"] for row in Loader(mapped)] == [0, 1, 2]


def test_an_expression_that_does_not_fit_says_so_when_the_pipe_is_made() -> None:
    with pytest.raises(BadOption, match=r"does not fit the columns"):
        Pipe.of(numbers(5)).filter(pc.field("nope") > 1)


@pytest.mark.parametrize("form", ["numpy", "pandas", "polars", "arrow", "torch"])
def test_a_batched_map_gets_and_gives_any_form(form: str) -> None:
    if form != "numpy":
        pytest.importorskip("pyarrow" if form == "arrow" else form, reason="not installed")

    def add(columns: Any) -> Any:
        if form == "polars":
            return columns.with_columns(n=columns["k"] + 1)
        if form == "arrow":
            return columns.append_column("n", pc.add(columns["k"], 1))
        columns["n"] = columns["k"] + 1
        return columns

    pipe = Pipe.of(numbers(10)).shuffle().map(add, batched=True, as_=form).batch(4)
    with Loader(pipe, workers=depth(0, 1)) as loader:
        assert sorted(values(loader, "n")) == list(range(1, 11))


def test_a_batched_map_must_give_a_row_for_each_row() -> None:
    with pytest.raises(BadPipe, match=r"got 4 rows and returned 2"):
        list(Loader(Pipe.of(numbers(8)).map(lambda c: {"k": c["k"][:2]}, batched=True).batch(4)))
    with pytest.raises(BadPipe, match=r"must return columns.*not int"):
        list(Loader(Pipe.of(numbers(8)).map(lambda c: 3, batched=True).batch(4)))
    with pytest.raises(BadOption, match=r"dataframe"):
        Pipe.of([1, 2]).map(lambda c: c, batched=True)


def test_a_map_on_rows_leaves_columns_behind() -> None:
    pipe = Pipe.of(numbers(6)).map(lambda row: row["k"] * 2)
    assert not pipe.columnar
    assert list(Loader(pipe.batch(4))) == [[0, 2, 4, 6], [8, 10]]


def test_concatenated_frames_are_one() -> None:
    whole = Pipe.of(numbers(10)).concat(Pipe.of(numbers(5)), Pipe.of(numbers(3))).shuffle().batch(4)
    assert sorted(values(Loader(whole), "k")) == sorted([*range(10), *range(5), *range(3)])
    mixed = Pipe.of(numbers(3)).concat(Pipe.of({**numbers(3), "k": np.ones(3)}))
    with pytest.raises(BadPipe, match=r"column 'k' is float64 and int64 in different parts"):
        mixed.batch(3)  # at once: each batch of three would be of one part and hide it
    hidden = Pipe.of(numbers(3)).concat(mixed.inputs[1].map(dict_of, batched=True)).batch(6)
    with pytest.raises(BadPipe, match=r"column 'k' is float64 and int64 in different parts"):
        list(Loader(hidden))


def enums(values: list[str], kind: list[str]) -> Any:
    pl = pytest.importorskip("polars", reason="not installed")
    return pl.DataFrame({"e": pl.Series(values, dtype=pl.Enum(kind))})


@pytest.mark.parametrize("where", ["frames", "parquet", "arrow"])
def test_enums_of_other_values_are_not_alike(where: str, tmp_path: Any) -> None:
    parts = [enums(["a", "b"], ["a", "b"]), enums(["b", "c"], ["b", "c", "a"])]
    if where == "frames":
        with pytest.raises(BadPipe, match=r"'e' is a category of \['a', 'b'\] and a category of \['b', 'c', 'a'\]"):
            Pipe.of(parts[0]).concat(Pipe.of(parts[1])).batch(4, as_="polars")
    else:
        for number, part in enumerate(parts):
            getattr(part, {"parquet": "write_parquet", "arrow": "write_ipc"}[where])(tmp_path / f"{number}.{where}")
        with pytest.raises(BadOption, match=r"'e' is .*0\.\w+ and an Enum of other values in .*1\."):
            getattr(Pipe, where)(tmp_path)
    alike = Pipe.of(parts[0]).concat(Pipe.of(enums(["b"], ["a", "b"]))).batch(4, as_="polars")
    (got,) = Loader(alike)
    assert got["e"].to_list() == ["a", "b", "b"]
    assert got["e"].dtype == parts[0]["e"].dtype


def test_a_weighted_draw_takes_columns() -> None:
    pipe = Pipe.of(numbers(4)).weighted([0, 1, 0, 1], 100).batch(50)
    assert set(values(Loader(pipe), "k")) == {1, 3}


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FRAMES)
def test_rows_of_a_stream_become_frames_and_rows_again(form: str) -> None:
    if form != "arrow":
        pytest.importorskip(form, reason="not installed")
    frames = list(Loader(Pipe.of(rows(10)).dataframe(4, as_=form)))
    assert [len(f) for f in frames] == [4, 4, 2]
    back = list(Loader(Pipe.of(rows(10)).dataframe(4, as_=form).rows()))
    assert [(r["k"], r["x"], r["s"]) for r in back] == [(i, i / 2, f"s{i}") for i in range(10)]


def test_tuples_need_names_and_rows_must_agree() -> None:
    pairs = Pipe.of([(1, "a"), (2, "b")])
    frames = list(Loader(pairs.dataframe(2, as_="arrow", columns=["n", "s"])))
    assert frames[0].to_pylist() == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
    with pytest.raises(BadPipe, match=r"columns="):
        list(Loader(pairs.dataframe(2)))
    with pytest.raises(BadPipe, match=r"row 1 of the frame differs from the first in 'b'"):
        list(Loader(Pipe.of([{"a": 1}, {"a": 1, "b": 2}]).dataframe(2)))


def test_missing_values_in_rows_stay_missing() -> None:
    given = [{"n": 1, "s": "a"}, {"n": None, "s": None}]
    (table,) = Loader(Pipe.of(given).dataframe(2, as_="arrow"))
    assert table.to_pylist() == given
    assert table.schema.field("n").type == pa.int64()


@pytest.mark.parametrize("form", FRAMES)
def test_verbs_work_on_rows_and_on_frames_alike(form: str) -> None:
    if form != "arrow":
        pytest.importorskip(form, reason="not installed")

    def worked(pipe: Pipe[Any]) -> Pipe[Any]:
        return pipe.select("k", "s").rename(s="text").filter(pc.field("k") >= 3)

    single = list(Loader(worked(Pipe.of(rows(8)))))
    framed = list(Loader(worked(Pipe.of(rows(8)).dataframe(2, as_=form)).rows()))
    assert [(r["k"], r["text"]) for r in single] == [(r["k"], r["text"]) for r in framed]
    assert [r["k"] for r in single] == [3, 4, 5, 6, 7]


def test_a_verb_that_meets_something_else_says_what_it_works_on() -> None:
    with pytest.raises(BadPipe, match=r"rows\(\) works on rows.*not on int"):
        list(Loader(Pipe.of([1, 2]).rows()))


# --- in workers -------------------------------------------------------------------------------------------------------


def changed(columns: Any) -> Any:
    columns["sum"] = columns["c0"] + columns["c1"]
    columns["c2"] = columns["c2"][::-1]
    del columns["even"]
    return (columns, len(columns))


@pytest.mark.parametrize("form", ["numpy", "torch"])
def test_a_batch_that_was_changed_in_a_worker_arrives_as_it_was_left(form: str) -> None:
    if form == "torch":
        pytest.importorskip("torch", reason="not installed")
    change = changed if form == "numpy" else (lambda c: ({**c, "sum": c["c0"] + c["c1"]}, c["k"]))
    pipe = Pipe.of(numbers(3000)).shuffle().batch(1000, as_=form).map(change)
    with Loader(pipe, workers=1, start_method="fork") as loader:
        got = list(loader)
    assert repr(got) == repr(list(Loader(pipe)))
    assert type(got[0][0]) is dict


def fails_on_seven(columns: Any) -> Any:
    if (columns["k"] == 7).any():
        raise ValueError("seven")
    return columns


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_fails_can_be_left_out(workers: int) -> None:
    pipe = Pipe.of(numbers(20)).map(fails_on_seven, batched=True).batch(4)
    how: Any = {"workers": workers, "start_method": "fork"} if workers else {}
    with Loader(pipe, **how, on_error="skip") as loader:
        assert values(loader, "k") == [k for k in range(20) if k not in (4, 5, 6, 7)]
        assert loader.stats().skips == 1
    with pytest.raises(ValueError, match="seven") as caught, Loader(pipe, **how) as loader:
        list(loader)
    assert "in map(" in "".join(caught.value.__notes__)


def some_missing(rows: int, missing: bool) -> Any:
    def hole(row: int, value: Any) -> Any:
        return None if missing and row == 1 else value

    return pa.table(
        {
            "i": pa.array([hole(i, i) for i in range(rows)], pa.int64()),
            "v": pa.array([hole(i, [i, -i]) for i in range(rows)], pa.list_(pa.float32(), 2)),
            "c": pa.array([hole(i, i % 2) for i in range(rows)], pa.int64()).dictionary_encode(),
            "s": pa.array([hole(i, str(i)) for i in range(rows)]),
        }
    )


def shapes(batch: Any) -> list[Any]:
    return [(name, type(values), values.dtype, values.ndim) for name, values in batch.items()]


@pytest.mark.parametrize("stored", [(), (0,), (0, 1)])
@pytest.mark.parametrize("missing", [(False, True), (True, False), (True, True)])
def test_parts_of_which_some_have_missing_values_give_batches_of_one_kind(
    stored: tuple[int, ...], missing: tuple[bool, bool], tmp_path: Path
) -> None:
    parts = []
    for number, (rows, holes) in enumerate(zip((5, 6), missing, strict=True)):
        table = some_missing(rows, holes)
        with pa.ipc.new_file(tmp_path / f"{number}.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=2)
        parts.append(Pipe.arrow(tmp_path / f"{number}.arrow") if number in stored else Pipe.of(table))
    whole = parts[0].concat(parts[1])
    for pipe in (whole, whole.cycle(2), whole.shuffle(), whole.map(dict_of, batched=True)):
        batches = list(Loader(pipe.batch(2)))
        assert len({repr(shapes(batch)) for batch in batches}) == 1
        assert type(batches[0]["i"]) is np.ma.MaskedArray
    assert values(Loader(whole.batch(2)), "i") == [
        *some_missing(5, missing[0])["i"].to_pylist(),
        *some_missing(6, missing[1])["i"].to_pylist(),
    ]
    with pytest.raises(BadPipe, match=r"'i' \(int64 with missing values\)"):
        whole.batch(2, as_="torch")


def test_columns_of_other_types_in_parts_can_be_made_alike_row_by_row() -> None:
    parts = Pipe.of({"x": np.arange(2)}).concat(Pipe.of({"x": np.arange(2.0)}))
    made = parts.map(lambda c: {"x": c["x"].astype(np.float32)}, batched=True)
    assert [row["x"] for row in Loader(made)] == [0, 1, 0, 1]
