"""What a pipe gives does not depend on how a file was opened, how it is called, or who reads it."""

import csv
import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from headrace.loader import Loader
from headrace.observe.digest import digest
from headrace.pipe.graph import Pipe
from tests.depth import depth

TYPES = [name for name in ("uint8", "uint16", "uint32", "uint64", "int16", "float16", "bfloat16", "complex64",
                           "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
         if hasattr(torch, name)]  # fmt: skip


def of_type(name: str, seed: int) -> torch.Tensor:
    octets = torch.randint(0, 120, (24,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return octets.view(getattr(torch, name))


def test_tensors_of_every_type_travel_both_ways() -> None:
    data = [{name: of_type(name, i) for name in TYPES} for i in range(4)]
    plain, collated = Pipe.of(data), Pipe.of(data).batch(2).collate()
    for pipe in (plain, collated):
        with Loader(pipe) as inline, Loader(pipe, workers=1) as loader:
            assert digest(list(inline)) == digest(list(loader))


def test_names_of_files_need_not_be_text(tmp_path: Path) -> None:
    for i in range(3):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff%d.txt" % i)).write_text("a\nb\n")
    pipe = Pipe.files(f"{tmp_path}/*.txt").open_files("rb").readlines()
    whole = list(pipe)
    assert len(whole) == 6
    for how in ({}, {"workers": 1}):
        with Loader(pipe, **how) as loader:
            batches = iter(loader)
            front = [next(batches)]
            saved = json.dumps(loader.state_dict())
        with Loader(pipe) as loader:
            loader.load_state_dict(json.loads(saved))
            assert front + list(loader) == whole


def table(draw: random.Random) -> bytes:
    """A file of cells, some of them with line ends inside quotes, with line ends of every kind."""
    ends = draw.sample(["\n", "\r\n", "\r"], draw.randint(1, 3))
    cells = ["", "1", "a b", "é", '"x,y"', '"q""q"']
    rows = [",".join(draw.choices(cells, k=draw.randint(1, 3))) for _ in range(draw.randint(0, 6))]
    text = "".join(row + draw.choice(ends) for row in rows)
    return (text + draw.choice(["", "last,row"])).encode()


def test_lines_and_rows_end_as_pythons_own_readers_end_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for seed in range(depth(100, 5000)):
        path.write_bytes(table(random.Random(seed)))
        with path.open(encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file]
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        for mode in ("rb", "r"):
            opened = Pipe.of([str(path)]).open_files(mode)
            assert list(opened.readlines(decode=True, return_path=False)) == lines, (seed, mode)
            assert list(opened.parse_csv()) == rows, (seed, mode)


def test_a_field_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b'a,"x\ry"\r\n"u\r\nv",b\r')
    assert list(Pipe.of([str(tmp_path / "x.csv")]).open_files("rb").parse_csv()) == [["a", "x\ry"], ["u\r\nv", "b"]]


@pytest.mark.parametrize("chunk", [None, 2])
def test_an_empty_file_has_no_content_to_hand_on(chunk: int | None, tmp_path: Path) -> None:
    (tmp_path / "0").touch()
    (tmp_path / "1").write_bytes(b"abc")
    pipe: Pipe[Any] = Pipe.of([str(tmp_path / "0"), str(tmp_path / "1")]).open_files("rb").read_from_stream(chunk)
    with Loader(pipe, workers=1, kind="thread") as loader:
        pieces = [data for _, data in loader]
    assert pieces == [data for _, data in pipe] == ([b"abc"] if chunk is None else [b"ab", b"c"])


def test_intervals_of_arrow_travel_as_they_are() -> None:
    """Pickle cannot: their class says that it is one of Python's own."""
    days = [pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([0, -4, 5])]
    pipe = Pipe.of(pa.table({"days": pa.array(days, pa.month_day_nano_interval())}))
    with Loader(pipe, workers=1) as loader:
        assert list(loader) == list(pipe) == [{"days": one} for one in days]
