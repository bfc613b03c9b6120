"""Work on columns is noted under the op that does it, also where many rows are taken at once."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe

pa: Any = pytest.importorskip("pyarrow")
ROWS = 20 * 80


WORKED: list[float] = []
"""Seconds that each call of `slow` really took (it runs in a thread of this process)."""


def slow(columns: Any) -> Any:
    """Work for about a millisecond."""
    started = time.perf_counter()
    while time.perf_counter() < started + 1e-3:
        pass
    WORKED.append(time.perf_counter() - started)
    return columns


def pipes(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    columns = {"id": np.arange(ROWS), "x": np.zeros(ROWS)}
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=100)
    return {
        "frame": Pipe.of(columns),
        "parquet": Pipe.parquet(folder / "a.parquet"),
    }


@pytest.mark.parametrize("name", ["frame", "parquet"])
@pytest.mark.parametrize("form", ["numpy", "pandas"])
def test_a_function_of_columns_has_its_own_seconds_and_no_wrong_advice_is_given(
    tmp_path: Path, name: str, form: Any
) -> None:
    if form == "pandas":
        pytest.importorskip("pandas")
    WORKED.clear()
    pipe = pipes(tmp_path)[name].shuffle().map(slow, batched=True, as_=form).batch(20, as_="numpy")
    with Loader(pipe, workers=1, kind="thread") as loader:
        loader._sharing.program = replace(loader.program, timed=1)  # every batch: nothing is scaled up from a few
        loader._new_pool()
        list(loader)
        stats = loader.stats()
    assert stats.advice == ""
    ours = next(spent for op, spent in stats.ops.items() if "map(slow" in op)
    assert ours >= 0.9 * sum(WORKED), "all of its work is its own"
    assert sum(stats.ops.values()) <= 1.05 * sum(stats.busy.values()), "and nobody else's as well"
    assert any(name in op for op in stats.ops), "the source is there too"
