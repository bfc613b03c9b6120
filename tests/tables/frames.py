"""The same rows as frames of every kind, and verbs that keep them columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from headrace import Pipe

KINDS = ("dict", "structured", "memmap", "pandas", "polars", "arrow", "batch", "chunked", "reader")


def numbers(rows: int, columns: int = 3) -> dict[str, Any]:
    made: dict[str, Any] = {f"c{i}": (np.arange(rows) * (i + 1)).astype(np.float32) for i in range(columns)}
    return {**made, "k": np.arange(rows), "even": np.arange(rows) % 2 == 0}


def frame(kind: str, rows: int, folder: Path | None = None) -> Any:
    """A frame of this kind; skips the test if its package is not installed."""
    data = numbers(rows)
    if kind == "dict":
        return data
    if kind in ("structured", "memmap"):
        whole = np.empty(rows, [(n, v.dtype) for n, v in data.items()])
        for name, values in data.items():
            whole[name] = values
        if kind == "structured":
            return whole
        assert folder is not None
        mapped = np.memmap(folder / "rows", whole.dtype, "w+", shape=(rows,))
        mapped[:] = whole
        mapped.flush()
        return np.memmap(folder / "rows", whole.dtype, "r", shape=(rows,))
    if kind in ("pandas", "polars"):
        return pytest.importorskip(kind, reason="not installed").DataFrame(data)
    pa = pytest.importorskip("pyarrow", reason="not installed")
    table = pa.table(data)
    if kind == "batch":
        return table.combine_chunks().to_batches()[0] if rows else pa.record_batch(data)
    if kind == "chunked":
        return pa.concat_tables([table.slice(0, rows // 3), table.slice(rows // 3)])
    if kind == "reader":
        return table.to_reader(max(1, rows // 2))
    return table


def doubled(columns: Any) -> Any:
    return {"k": columns["k"], "twice": columns["c1"] * 2}


STEPS = [
    lambda p: p.shuffle(),
    lambda p: p.shuffle(window=5),
    lambda p: p.header(17),
    lambda p: p.cycle(2),
    lambda p: p.sharding_filter(),
    lambda p: p.concat(p),
    lambda p: p.select("k", "c1", "c0"),
    lambda p: p.rename(c0="zero").rename(zero="c0"),
    lambda p: p.map(lambda c: {**c, "k": c["k"] + 1}, batched=True),
]
ENDS = [
    lambda p: p.batch(7),
    lambda p: p.batch(4, drop_last=True),
    lambda p: p.batch(3).shuffle(),
    lambda p: p.batch(3).shuffle(buffer_size=4),
    lambda p: p.batch(5).map(lambda b: float(b["k"].sum())),
    lambda p: p.batch(5).rows(),
    lambda p: p.filter(lambda row: row["k"] % 3 > 0).batch(4),
    lambda p: p.map(lambda row: float(row["c1"])).batch(6).collate(),
    lambda p: p,
]


@st.composite
def columnar(draw: st.DrawFn, ends: Any = tuple(range(9))) -> Pipe[Any]:
    """A frame of up to 40 rows, verbs that keep columns, and something at the end that may not."""
    rows = draw(st.integers(0, 40))
    pipe: Pipe[Any] = Pipe.of(frame(draw(st.sampled_from(["dict", "structured", "arrow"])), rows))
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=3)):
        pipe = step(pipe)
    return ENDS[draw(st.sampled_from(ends))](pipe)  # type: ignore[no-any-return]
