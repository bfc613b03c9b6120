"""Graphs of DataPipes, written once: Headrace and TorchData read the same lines."""

import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = tuple[int, float, str]
BODY = 60e-6


def build(name: str, wrapper: Any, paths: Sequence[str], body: Callable[[Any], Any], size: int) -> Any:
    if name == "csv":
        rows = wrapper(list(paths)).open_files(encoding="utf-8").parse_csv()
        return rows.shuffle().sharding_filter().map(body).batch(size)
    if name == "range":
        return wrapper(range(int(paths[0]))).sharding_filter().batch(size)
    raise ValueError(f"no graph {name!r}; there are csv, range")


def parse(row: list[str]) -> Row:
    return int(row[0]), float(row[1]), row[2]


def parse_and_work(row: list[str]) -> Row:
    """A body that takes a little over 50 us of a core, whatever else the core does."""
    until = time.thread_time() + BODY
    while time.thread_time() < until:
        pass
    return parse(row)


def write_csv(path: Path, number: int, rows: int) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([number * 1_000_000 + i, i / 7, f"a text, number {i}"] for i in range(rows))
    return str(path)
