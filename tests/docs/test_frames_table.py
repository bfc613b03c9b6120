"""The table of types in docs/frames.md is the one that is made here, by delivering one column of every type.

After a change, `python -m tests.docs.test_frames_table` writes it anew.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frames.md"
START, END = "<!-- types:start -->", "<!-- types:end -->"
FORMS = ("numpy", "torch", "pandas", "polars", "arrow")


def table() -> str:
    from tests.tables.arrow_types import ARRAYS

    lines = ["| Arrow type | " + " | ".join(FORMS) + " |", "|---|" + "---|" * len(FORMS)]
    lines += [
        f"| {_code(name)} | {' | '.join(_cell(array, form) for form in FORMS)} |" for name, array in ARRAYS.items()
    ]
    return "\n".join(lines)


def _cell(array: Any, form: str) -> str:
    import pyarrow as pa

    from headrace.errors import BadPipe
    from headrace.tables.forms import deliver
    from headrace.tables.frames import table_of

    given = table_of(pa.table({"x": array}))
    assert given is not None
    try:
        found = deliver(given.take(np.arange(len(array))), form)["x"]
    except BadPipe:
        return "refused"
    if form == "numpy":
        inside = {type(v).__name__ for v in found.tolist() if v is not None} if found.dtype == object else set()
        shape = f" {list(found.shape[1:])}" if found.ndim > 1 else ""
        return f"object: {', '.join(sorted(inside)) or 'None'}" if found.dtype == object else f"{found.dtype}{shape}"
    if form == "torch":
        shape = f" {list(found.shape[1:])}" if not isinstance(found, list) and found.dim() > 1 else ""
        return (
            f"list of {type(found[0]).__name__}"
            if isinstance(found, list)
            else f"{found.dtype}{shape}".removeprefix("torch.")
        )
    return (
        "the same"
        if form == "arrow" and found.type == array.type
        else _code(str(found.type if form == "arrow" else found.dtype))
    )


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def test_the_table_of_types_says_what_happens() -> None:
    for package in ("pyarrow", "pandas", "polars", "torch"):
        pytest.importorskip(package, reason="not installed")
    text = PAGE.read_text()
    written = text.partition(START)[2].partition(END)[0].strip()
    assert written == table(), "run: python -m tests.docs.test_frames_table"


if __name__ == "__main__":
    text = PAGE.read_text()
    before, _, rest = text.partition(START)
    PAGE.write_text(f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}")
