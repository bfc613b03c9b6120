"""What a DataLoader has because a Loader runs it: stats, explain, autosave, dump, profile."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
from headrace import Autosave
from headrace.cli import main
from headrace.doors.torch.loader import DataLoader
from headrace.errors import BadOption, warn_once
from tests.doors import torch_datasets as data
from tests.doors.torch_corpus import seeded


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [range(20), data.Stream(20, 20)], ids=["map", "iterable"])
def test_stats_and_explain_tell_what_the_loader_does(dataset: Any, workers: int) -> None:
    loader = DataLoader(dataset, 2, num_workers=workers)
    assert loader.stats().batches == 0
    assert f"DataLoader over {type(dataset).__qualname__}" in loader.explain()
    whole = len(list(loader))
    assert (loader.stats().epochs, loader.stats().batches, loader.stats().workers) == (1, whole, workers)
    it = iter(loader)
    next(it)
    stats = loader.stats()
    assert stats.epochs == 2
    assert stats.batches > whole, "of all iterators there have been"
    assert sum(stats.busy.values()) > 0


class Slow:
    """Samples, but for the first, that take long enough to be looked at; says when one is begun."""

    def __init__(self) -> None:
        self.inside = torch.zeros(1).share_memory_()

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> int:
        if i:
            self.inside.fill_(1)
            threading.Event().wait(60)
        return i


def test_whoever_reads_of_the_indices_is_told_the_sampler_and_no_class_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_once.cache_clear()
    loader = DataLoader([], 2)
    assert list(loader) == []
    assert "Pipe.listed(BatchSampler)\n  .DataLoader over list" in caplog.text
    told = caplog.text + loader.explain() + headrace.dump()
    assert "IndexLists" not in told


def test_dump_shows_the_workers_of_a_data_loader() -> None:
    dataset = Slow()
    it = iter(DataLoader(dataset, 1, num_workers=2))
    next(it)
    while not dataset.inside.item():
        pass
    shown = headrace.dump()
    assert "DataLoader over Slow" in shown
    assert "worker 0 (process" in shown
    assert "__getitem__" in shown


def autosaving(path: Path, workers: int, dataset: Any = range(24)) -> Any:
    shuffled = {"shuffle": True} if isinstance(dataset, range) else {}
    return DataLoader(dataset, 2, generator=seeded(), num_workers=workers, autosave=Autosave(path, every=4), **shuffled)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [range(24), data.Kept(24)], ids=["map", "iterable with a state"])
def test_a_loader_goes_on_from_the_file_that_the_last_one_left(tmp_path: Path, dataset: Any, workers: int) -> None:
    path = tmp_path / "run.json"
    whole = [b.tolist() for b in DataLoader(dataset, 2, generator=seeded(), num_workers=workers,
                                            shuffle=isinstance(dataset, range) or None)]  # fmt: skip
    it = iter(autosaving(path, workers, dataset))
    got = [next(it).tolist() for _ in range(6)]
    del it
    assert json.loads(path.read_text())["steps"] == 4
    again = autosaving(path, workers, dataset)
    assert got[:4] + [b.tolist() for b in again] == whole, "after the four batches that the file counts"
    assert again.stats().autosave == ""


def test_autosave_on_ranks_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        BadOption, match=r"one of 2 ranks: .*'loader': loader\.state_dict\(\)\} on every rank, and give"
    ):
        DataLoader(range(4), autosave=tmp_path / "run.json")


def test_every_is_an_option_of_autosave() -> None:
    with pytest.raises(TypeError, match=r"argument 'every'; write autosave=Autosave\(path, every=5\)"):
        DataLoader(range(4), every=5)


def test_a_data_loader_can_be_profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "training_program.py"
    script.write_text("from headrace import DataLoader\nloader = DataLoader(range(400), 4, num_workers=0)\n")
    assert main(["profile", f"{script}:loader", "--batches", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == 20
