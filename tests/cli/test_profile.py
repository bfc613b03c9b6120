"""`headrace profile`: the verdict on a terminal, the page, the trace, the data."""

import json
from pathlib import Path

import pytest

from headrace.cli import main
from tests.cli.conftest import Headrace
from tests.cli.subjects import TEXT
from tests.cli.subjects import forgotten as forgotten


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profiled.py"
    path.write_text(TEXT)
    return path


def test_a_consumer_takes_the_place_of_the_training_step(file: Path, headrace: Headrace) -> None:
    done = headrace("profile", f"{file}:loader", "--consumer", f"{file}:train", "--batches", "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the consumer sets the pace: the training loop")


def test_page_trace_and_data_are_written(file: Path, tmp_path: Path, headrace: Headrace) -> None:
    page, trace = tmp_path / "out.html", tmp_path / "out.json"
    done = headrace(
        "profile", f"{file}:pipe", "--workers", "2", "--batches", "20", "--html", str(page), "--perfetto", str(trace),
        "--json",
    )  # fmt: skip
    data = json.loads(done.stdout)
    assert (done.returncode, data["workers"], data["kind"]) == (0, 2, "process")
    assert data["verdict"]["bound"] == "loader"
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seconds", "0"], "--seconds 0"),
        (["--batches", "-1"], "--batches -1"),
        (["--consumer", "{file}:number"], "a function of one batch"),
        (["--batches", "1", "--html", "/no/such/folder/x.html"], "No such file"),
    ],
)
def test_options_that_are_wrong_are_one_line(
    file: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", f"{file}:pipe", *(option.format(file=file) for option in options)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


LOADERS = """
import time
import numpy as np
import torch.utils.data
import headrace

class Slow:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.002)
        return np.full(3, index)

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from (np.full(3, n) for n in range(64))

def joined(samples):
    time.sleep(0.02)
    return np.stack(samples)

def consumer(batch):
    assert type(batch) is torch.Tensor and batch.shape[1:] == (3,)

ours = headrace.DataLoader(Slow(), batch_size=4, shuffle=True, num_workers=2)
torchs = torch.utils.data.DataLoader(Slow(), batch_size=4)
collates = torch.utils.data.DataLoader(Slow(), batch_sampler=[[1, 2, 3, 4]] * 20, collate_fn=joined)
stream = torch.utils.data.DataLoader(Stream(), batch_size=4)
singly = torch.utils.data.DataLoader(Slow(), batch_size=None)
"""


@pytest.mark.parametrize(
    ("name", "where"),
    [("ours", "Slow"), ("torchs", "Slow"), ("collates", "joined"), ("stream", "Stream"), ("singly", "Slow")],
)
def test_the_parts_of_a_dataloader_are_measured(
    name: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="a DataLoader in torch's form")
    file = tmp_path / "loaders.py"
    file.write_text(LOADERS)
    consumer = [] if name in ("collates", "singly") else ["--consumer", f"{file}:consumer"]
    assert main(["profile", f"{file}:{name}", "--batches", "12", *consumer, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    parts = {part["name"]: part["seconds"] for part in data["seconds a batch"] if part["room"] != "step"}
    assert any(where in part for part in parts)
    assert where in max(parts, key=lambda part: parts[part]) or name == "stream"
    assert data["workers"] == (2 if name == "ours" else 0)
