"""Figures and logs of a SwiftLoader: lines of JSON that can be read back, apart for each loader."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.doors.swift import log as swift_log
from headrace.doors.swift.figures import UNIT, Figures
from headrace.doors.swift.log import Log, LogTarget
from tests.doors.swift_data import Failing, batches, swift

pytestmark = pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")

WORKER = {"collect batch data", "collate batch data"}
LOOP = {"injection", "consumption"}
CODED = {"batch_encoder": bytes, "batch_decoder": bytes, "collate_fn": bytes}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def loaded(epochs: int = 2, device: Any = None, **options: Any) -> Any:
    """The batches of some epochs, and the stats after them."""
    with swift(kwargs=120, **options) as loader:
        loader.start(0, device=device, to_device=None if device is None else (lambda batch, _: batch))
        found = [[list(batch) for batch in loader] for _ in range(epochs)]
        return found, loader.stats()


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_have_values_and_units_and_do_not_change_the_data() -> None:
    found, stats = loaded(benchmark=True)
    assert set(stats.figures) == WORKER | LOOP
    assert all(figure.value > 0 and figure.unit == UNIT for figure in stats.figures.values())
    assert stats.figures["injection"].batches == stats.batches == 80
    plain, silent = loaded(benchmark=False)
    assert plain == found
    assert silent.figures == {}


def test_every_step_that_exists_has_a_figure() -> None:
    for multithread in (True, False):
        _, stats = loaded(device="there", multithread=multithread, **CODED)
        assert set(stats.figures) == WORKER | LOOP | {
            "serialize batch data",
            "decode batch data",
            "transfer to device",
        }


def test_figures_are_written_to_their_file_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "new" / "figures"
    loaded(benchmark_file=str(file), data_queue_size=5, logger=str(tmp_path / "log"))
    written = lines(file)
    assert {line["benchmark_task"] for line in written} == WORKER | LOOP
    for line in written:
        assert (line["unit"], line["batches"], line["consumer"]) == ("batches/s", 5, 0)
        assert line["value"] == pytest.approx(5 / line["seconds"], rel=0.05)
        assert line["timestamp"].endswith("Z")
        assert ("worker" in line) == (line["benchmark_task"] in WORKER)
    assert {line["worker"] for line in written if "worker" in line} == {0, 1}
    assert not [line for path in tmp_path.glob("log_*") for line in lines(path) if line["event"] == "benchmark"]


def test_without_a_file_figures_go_to_the_log(tmp_path: Path) -> None:
    loaded(data_queue_size=5, logger=str(tmp_path / "log"))
    child = [line for line in lines(tmp_path / "log_Worker-1-parent.json") if line["event"] == "benchmark"]
    loop = [line for line in lines(tmp_path / "log_Dataloader-0.json") if line["event"] == "benchmark"]
    assert {line["benchmark_task"] for line in child} == WORKER
    assert {line["benchmark_task"] for line in loop} == LOOP
    assert all(line["unit"] == "batches/s" and line["level"] == "info" for line in child + loop)


@pytest.mark.deep
def test_several_processes_write_whole_lines_to_one_file(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.doors.swift_data import swift, batches\n"
        "loader = swift(kwargs=600, nb_consumer=3, worker_per_consumer=1, batch_size=1, data_queue_size=2,"
        " benchmark_file=sys.argv[1]); loader.start(int(sys.argv[2])); batches(loader, 2)"
    )
    file = tmp_path / "figures"
    running = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, str(file), str(consumer)], env=_env())
        for consumer in range(3)
    ]
    assert [process.wait(50) for process in running] == [0, 0, 0]
    assert {line["consumer"] for line in lines(file)} == {0, 1, 2}


def _env() -> dict[str, str]:
    import os

    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}


def test_a_pause_between_epochs_is_no_consumption() -> None:
    written: list[dict[str, Any]] = []
    figures = Figures(1, 0, written.append)
    for _ in range(2):
        figures.batch_requested()
        figures.batch_delivered()
    figures.pause()
    figures.batch_requested()
    figures.batch_delivered()
    assert [line["benchmark_task"] for line in written] == ["injection", "injection", "consumption", "injection"]


# --- logs -------------------------------------------------------------------------------------------------------------


def test_the_log_tells_the_samples_of_every_batch(tmp_path: Path) -> None:
    with swift(kwargs=20, logger=str(tmp_path / "run" / "log")) as loader:
        loader.start(0)
        found = batches(loader, 2)
    told = [lines(tmp_path / "run" / f"log_Worker-{k}-child.json") for k in range(2)]
    made = {(line["epoch"], line["batch"]): line["indices"] for own in told for line in own if line["event"] == "batch"}
    assert [[made[epoch, batch] for batch in range(8)] for epoch in range(2)] == found
    assert told[0][0]["event"] == "dataset"
    assert (told[1][0]["logger"], told[1][0]["level"], told[1][0]["length"]) == ("Worker-1", "info", 20)
    manager = lines(tmp_path / "run" / "log_WorkerManager-0.json")
    assert [(line["worker"], line["length"]) for line in manager] == [(0, 20), (1, 20)]
    events = [line["event"] for line in lines(tmp_path / "run" / "log_Dataloader-0.json")]
    assert events[:2] == ["started", "delivered"]
    assert events[-1] == "closed"
    assert events.count("epoch") == 2
    assert events.count("delivered") == 16


def test_files_are_named_after_their_consumer_and_worker_without_signs(tmp_path: Path) -> None:
    with swift(nb_consumer=3, logger=str(tmp_path / "log")) as loader:
        loader.start(2)
        batches(loader)
    names = {path.name for path in tmp_path.iterdir()}
    workers = {f"log_Worker-{k}-{side}.json" for k in (4, 5) for side in ("parent", "child")}
    assert names == {"log_Dataloader-2.json", "log_WorkerManager-2.json"} | workers


@pytest.mark.parametrize(("prefix", "file"), [("a.log", "a_Dataloader-0.log"), ("b.json", "b_Dataloader-0.json")])
def test_a_prefix_says_the_ending_and_needs_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with swift(logger=prefix) as loader:
        loader.start(0)
    assert (tmp_path / file).exists()


def test_the_level_is_the_least_that_is_written(tmp_path: Path) -> None:
    with swift(Failing, {"count": 9, "bad": 4}, logger={"path": tmp_path / "log", "level": "error"}) as loader:
        loader.start(0)
        with pytest.raises(ValueError, match="bad"):
            batches(loader)
    everything = [line for path in tmp_path.iterdir() for line in lines(path)]
    told = {(line["logger"].split("-")[0], line["event"], line["error"]) for line in everything}
    assert told == {(name, "failed", "ValueError('sample 4 is bad')") for name in ("Worker", "Dataloader")}
    assert {line["level"] for line in everything} == {"error"}
    assert "stage 'getitem', sample 4" in str(everything)


def test_standard_output_is_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with swift(logger={"stdout": True, "level": "INFO"}) as loader:
        loader.start(0)
        batches(loader)
    out, err = capfd.readouterr()
    assert {"started", "epoch", "worker", "closed"} <= {json.loads(line)["event"] for line in out.splitlines()}
    assert err == ""
    assert list(tmp_path.iterdir()) == []


def test_without_a_logger_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded(logger=None)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_two_loaders_never_write_into_each_others_files(tmp_path: Path) -> None:
    known = set(logging.Logger.manager.loggerDict)
    prefix = str(tmp_path / "log")
    with swift(kwargs=10, logger=prefix) as one, swift(kwargs=30, logger=prefix) as other:
        one.start(0)
        other.start(0)
        batches(one)
        batches(other)
    assert lines(tmp_path / "log_Dataloader-0.json")[0]["samples"] == 10
    assert lines(tmp_path / "log-2_Dataloader-0.json")[0]["samples"] == 30
    assert len({path.name for path in tmp_path.iterdir()}) == 12
    assert set(logging.Logger.manager.loggerDict) == known
    # A closed loader's prefix is free again: the next one appends.
    with swift(kwargs=12, logger=prefix) as third:
        third.start(0)
    assert lines(tmp_path / "log_Dataloader-0.json")[-2]["samples"] == 12
    assert not (tmp_path / "log-3_Dataloader-0.json").exists()


def test_old_lines_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift_log, "FILE_BYTES", 1000)
    log = Log(LogTarget(str(tmp_path / "x")), "A")
    for number in range(100):
        log.info("line", number=number)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x_A.json", "x_A.json.1", "x_A.json.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
