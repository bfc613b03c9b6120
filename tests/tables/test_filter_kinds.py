"""Filters by expression over every form in which Arrow keeps text: pyarrow itself compares only some of them."""

from pathlib import Path
from typing import Any

import pytest

from headrace import Loader, Pipe

pa = pytest.importorskip("pyarrow", reason="not installed")
pc = pytest.importorskip("pyarrow.compute", reason="not installed")
ds = pytest.importorskip("pyarrow.dataset", reason="not installed")

WORDS = ["a", "b", None, "b", "a", "b"]
FORMS = {
    "text": lambda: pa.array(WORDS),
    "large": lambda: pa.array(WORDS, pa.large_string()),
    "view": lambda: pa.array(WORDS, pa.string_view()),
    "dictionary": lambda: pa.array(WORDS).dictionary_encode(),
    "dictionary of views": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 1, 0, 1]), pa.array(["a", "b"], pa.string_view())
    ),
    "runs": lambda: pc.run_end_encode(pa.array(WORDS)),
}


def stored(table: Any, how: str, folder: Path) -> Pipe[Any]:
    if how == "memory":
        return Pipe.of(table)
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as file:
        file.write_table(table)
    return Pipe.arrow(folder / "a.arrow") if how == "file" else Pipe.of(ds.dataset(folder, format="ipc"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["memory", "file", "dataset"])
def test_rows_are_chosen_by_text_in_any_form(form: str, how: str, tmp_path: Path) -> None:
    table = pa.table({"k": range(len(WORDS)), "v": FORMS[form]()})
    pipe = stored(table, how, tmp_path).filter(pc.field("v") == "b")
    with Loader(pipe.batch(4)) as loader:
        batches = list(loader)
    assert [k for batch in batches for k in batch["k"].tolist()] == [1, 3, 5]
    assert {v for batch in batches for v in batch["v"].tolist()} == {"b"}
