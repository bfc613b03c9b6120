"""Seed 000: the DataLoader2 tutorial, in the same form; only the imports are ours.

Two real CSV files, four workers, ten epochs with `seed(epoch)`: in every epoch each row arrives exactly once, every
epoch has another order, and the whole run is the same when it is repeated and with 1, 2 or 4 workers.
"""

import csv
import random
from pathlib import Path
from typing import Any

import pytest

from headrace.datapipes.iter import IterableWrapper
from headrace.doors.dataloader2.loader import DataLoader2
from headrace.doors.dataloader2.services import InProcessReadingService, MultiProcessingReadingService

ROWS = 90
EPOCHS = 10
Run = list[list[list[tuple[int, float, str]]]]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with train1.csv and train2.csv, as the working directory."""
    for number in (1, 2):
        with open(tmp_path / f"train{number}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            for i in range(ROWS):
                writer.writerow([number * 1000 + i, i / 7, f"text, with a comma and ümlaut {i}"])
    monkeypatch.chdir(tmp_path)


def fn(row: list[str]) -> tuple[int, float, str]:
    """The tutorial's transformation: parsed fields, and some randomness of the kind that augmentations draw."""
    return int(row[0]), float(row[1]) + random.random(), row[2]


def the_graph() -> Any:
    datapipe = IterableWrapper(["./train1.csv", "./train2.csv"])
    datapipe = datapipe.open_files(encoding="utf-8").parse_csv()
    datapipe = datapipe.shuffle().sharding_filter()
    datapipe = datapipe.map(fn).batch(8)
    return datapipe


def the_run(num_workers: int) -> Run:
    datapipe = the_graph()
    seen: Run = []

    def model(d: list[tuple[int, float, str]]) -> None:
        seen[-1].append(d)

    rs = MultiProcessingReadingService(num_workers=num_workers)
    dl = DataLoader2(datapipe, reading_service=rs)
    for epoch in range(EPOCHS):
        dl.seed(epoch)
        seen.append([])
        for d in dl:
            model(d)
    dl.shutdown()
    return seen


@pytest.mark.usefixtures("in_folder")
def test_every_epoch_has_each_row_once_and_another_order() -> None:
    seen = the_run(4)
    expected = sorted(number * 1000 + i for number in (1, 2) for i in range(ROWS))
    orders = [[row[0] for batch in epoch for row in batch] for epoch in seen]
    assert all(sorted(order) == expected for order in orders)
    assert len({tuple(order) for order in orders}) == EPOCHS
    assert all(len(batch) == 8 for epoch in seen for batch in epoch[:-1])


@pytest.mark.usefixtures("in_folder")
def test_the_whole_run_is_equal_when_repeated_and_for_any_number_of_workers() -> None:
    first = the_run(4)
    assert the_run(4) == first
    assert the_run(2) == first
    assert the_run(1) == first


@pytest.mark.usefixtures("in_folder")
def test_the_run_is_the_same_without_workers() -> None:
    seen = []
    with DataLoader2(the_graph(), reading_service=InProcessReadingService()) as dl:
        for epoch in range(EPOCHS):
            dl.seed(epoch)
            seen.append(list(dl))
    assert seen == the_run(2)
