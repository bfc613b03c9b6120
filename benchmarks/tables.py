"""Tables for the columnar cases: columns of random numbers in memory, and the same in Parquet files."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.case import Epochs

Columns = dict[str, npt.NDArray[Any]]
SIZE = 1024


def columns(rows: int, count: int = 100) -> Columns:
    """`key` counts the rows, so that a lost one is seen; the others are float32."""
    rng = np.random.default_rng(5)
    return {"key": np.arange(rows), **{f"c{i}": rng.random(rows, dtype=np.float32) for i in range(1, count)}}


class Rows:
    """A frame row by row, as a data set of torch's: one dict of numbers a row."""

    def __init__(self, data: Columns) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data["key"])

    def __getitem__(self, index: int, /) -> dict[str, Any]:
        return {name: values[index] for name, values in self.data.items()}


class ManyRows(Rows):
    """The same with torch's own way to fetch a whole batch at once."""

    def __getitems__(self, indices: list[int]) -> dict[str, Any]:
        import torch

        return {name: torch.from_numpy(values[indices]) for name, values in self.data.items()}


def same(batch: Any) -> Any:
    """The collate function of a data set that gives whole batches."""
    return batch


def parquet_files(folder: Path, rows: int) -> list[str]:
    """Files that another process has written, so that this one's memory tells only of reading them."""
    call = f"import pathlib, benchmarks.tables as t; t.write_parquet(pathlib.Path({str(folder)!r}), {rows})"
    subprocess.run([sys.executable, "-c", call], check=True)
    return sorted(map(str, folder.iterdir()))


def write_parquet(folder: Path, rows: int, files: int = 4, group: int = 10_000, count: int = 100) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for number, data in enumerate(_parts(rows, files, count)):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table(data), path, row_group_size=group, use_dictionary=False)
        paths.append(str(path))
    return paths


def _parts(rows: int, files: int, count: int) -> Iterator[Columns]:
    for number in range(files):
        data = columns(rows // files, count)
        data["key"] = data["key"] + number * (rows // files)
        yield data


def rate(loader: Epochs, seconds: float, warm: int = 8) -> float:
    """Rows a second, over so many batches as fit into the time; each row of them is a new one."""
    batches = iter(loader)
    seen = [np.array(next(batches)["key"]) for _ in range(warm)]
    count = 0
    began = time.perf_counter()
    for batch in batches:
        seen.append(np.array(batch["key"]))
        count += 1
        if time.perf_counter() - began > seconds:
            break
    spent = time.perf_counter() - began
    keys = np.concatenate(seen)
    if len(np.unique(keys)) != len(keys):
        raise AssertionError("a row came twice in one epoch")
    return count * SIZE / spent
