"""The tables of types in docs/frames.md are the ones that are made here, by delivering one column of every type.

After a change, `python -m tests.docs.test_frames_table` writes them anew.
"""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frames.md"
FORMS = ("numpy", "torch", "pandas", "polars", "arrow")
OBJECTS: dict[str, list[Any]] = {
    "str": ["a", None],
    "bytes": [b"a", None],
    "bool": [True, None],
    "int of 64 bits": [2**62 + 1, None],
    "int of more bits": [2**70, None],
    "float": [1.5, None],
    "Decimal": [Decimal("1.50"), None],
    "date": [dt.date(2020, 1, 2), None],
    "datetime": [dt.datetime(2020, 1, 2), None],
    "datetime with a zone": [dt.datetime(2020, 1, 2, tzinfo=dt.UTC), None],
    "timedelta": [dt.timedelta(1), None],
    "list of one type": [[1, 2], [], None],
    "dict of one shape": [{"a": 1}, {"a": 2}, None],
    "dicts of unlike keys": [{"a": 1}, {"b": 2}],
    "str and bytes": ["x", b"y"],
    "str and NaN": ["x", float("nan")],
    "bool and int": [True, 2],
    "tuple": [(1,), None],
    "numpy scalar": [np.int8(1), None],
    "numpy array": [np.arange(2), None],
}


def tables() -> dict[str, str]:
    import pyarrow as pa

    from headrace.tables.convert.frames import table_of
    from tests.tables.arrow_types import ARRAYS

    types = {_code(name): table_of(pa.table({"x": array})) for name, array in ARRAYS.items()}
    objects = {name: table_of({"x": _array(values)}) for name, values in OBJECTS.items()}
    return {"types": _table("Arrow type", types), "objects": _table("Python objects", objects)}


def _array(values: list[Any]) -> Any:
    made = np.empty(len(values), object)
    for row, value in enumerate(values):
        made[row] = value
    return made


def _table(title: str, rows: dict[str, Any]) -> str:
    lines = [f"| {title} | " + " | ".join(FORMS) + " |", "|---|" + "---|" * len(FORMS)]
    lines += [f"| {name} | {' | '.join(_cell(given, form) for form in FORMS)} |" for name, given in rows.items()]
    return "\n".join(lines)


def _cell(given: Any, form: str) -> str:
    from headrace.errors import BadPipe
    from headrace.tables.convert.forms import deliver
    from headrace.tables.convert.to_arrow import type_of

    try:
        found = deliver(given.take(np.arange(given.length)), form)["x"]
    except BadPipe:
        return "refused"
    arrow = None if isinstance(given.columns["x"].field, str) else type_of(given.columns["x"])
    if form in ("numpy", "torch"):
        return _of_arrays(found, arrow)
    kind = found.type if form == "arrow" else found.dtype
    return _marked(_code(str(kind)), arrow is None or _kept(form, kind, found, arrow))


def _of_arrays(found: Any, arrow: Any) -> str:
    import pyarrow as pa

    if isinstance(found, list):
        return f"list of {type(found[0]).__name__}"
    if found.dtype == object:
        inside = {type(v).__name__ for v in found.tolist() if v is not None}
        return f"object: {', '.join(sorted(inside)) or 'None'}"
    shape = f" {list(found.shape[1:])}" if found.ndim > 1 else ""
    name = str(found.dtype).removeprefix("torch.")
    same = name[:1] not in "dt" or arrow == pa.from_numpy_dtype(np.dtype(name))
    return _marked(f"{name}{shape}", same)


def _kept(form: str, kind: Any, found: Any, arrow: Any) -> bool:
    """Whether the form has the very type, or one of its own that means the same."""
    import pyarrow as pa

    if form == "arrow":
        return bool(kind == arrow)
    if form == "pandas":
        if hasattr(kind, "pyarrow_dtype"):
            return bool(kind.pyarrow_dtype == arrow)
        return str(kind) == "object" or bool(pa.from_numpy_dtype(kind) == arrow)
    plain = {"large_": "", "string_view": "string", "binary_view": "binary"}

    def short(text: str) -> str:
        for old, new in plain.items():
            text = text.replace(old, new)
        return text

    return short(str(found.to_arrow().type)).replace("indices=uint32", "indices=int8") == short(str(arrow))


def _marked(text: str, kept: bool) -> str:
    return text if kept else f"→ {text}"


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def _ends(name: str) -> tuple[str, str]:
    return f"<!-- {name}:start -->", f"<!-- {name}:end -->"


@pytest.mark.timeout(120)
def test_the_tables_of_types_say_what_happens() -> None:
    for package in ("pyarrow", "pandas", "polars", "torch"):
        pytest.importorskip(package, reason="not installed")
    text = PAGE.read_text()
    for name, table in tables().items():
        start, end = _ends(name)
        written = text.partition(start)[2].partition(end)[0].strip()
        assert written == table, "run: python -m tests.docs.test_frames_table"


if __name__ == "__main__":
    text = PAGE.read_text()
    for name, table in tables().items():
        start, end = _ends(name)
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text)
