"""A loop that is left: workers end as torch's do, with what they have open closed and what they are writing whole."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset, IterableDataset

from headrace.doors.torch.loader import DataLoader
from tests.depth import across


class Noted(IterableDataset[Any]):
    """Writes down when a stream begins and when it is left."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[int]:
        self.note("begins\n")
        try:
            yield from range(40)
        finally:
            self.note("ends\n")

    def note(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(what)


@pytest.fixture(autouse=True)
def workers_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.engine.workers.process.workers.PATIENCE", 30)


@pytest.mark.filterwarnings("ignore:.*all read the same samples")
@pytest.mark.parametrize(
    ("workers", "stay", "method"),
    [(0, False, None), *across((1, 2), (False, True), ("fork", "spawn"))],
)
def test_streams_that_have_begun_are_closed_when_the_loop_is_left(
    workers: int, stay: bool, method: str | None, tmp_path: Path
) -> None:
    loader = DataLoader(
        Noted(tmp_path / "noted"), 4, num_workers=workers, persistent_workers=stay, multiprocessing_context=method
    )
    for stop in (2, None, 0):
        for number, _ in enumerate(loader):
            if number == stop:
                break
    del loader
    gc.collect()
    noted = (tmp_path / "noted").read_text().split()
    assert noted.count("begins") == noted.count("ends") > 0


class Writing(Dataset[Any]):
    """Each sample writes a file, in two parts."""

    def __init__(self, folder: Path, told: int, go: int) -> None:
        self.folder, self.told, self.go = folder, told, go

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        with (self.folder / str(index)).open("w") as file:
            print("half", file=file, flush=True)
            if index == 1:
                os.write(self.told, b".")
                os.read(self.go, 1)
                sum(range(2_000_000))  # (time in which a worker could be killed)
            print("whole", file=file)
        return index


@pytest.mark.parametrize("stay", [False, True])
def test_a_file_that_a_sample_is_writing_when_the_loop_is_left_is_whole(stay: bool, tmp_path: Path) -> None:
    told, tell = os.pipe()
    wait, go = os.pipe()
    try:
        loader = DataLoader(Writing(tmp_path, tell, wait), num_workers=1, persistent_workers=stay)
        batches = iter(loader)
        assert next(batches).tolist() == [0]
        os.read(told, 1)
        os.write(go, b".")
        del batches, loader
        gc.collect()
    finally:
        for end in (told, tell, wait, go):
            os.close(end)
    files = [path.read_text() for path in tmp_path.iterdir()]
    assert len(files) < 100, "nothing more is begun"
    assert set(files) == {"half\nwhole\n"}
