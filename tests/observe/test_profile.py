"""The profiler names what was planted, and what it writes can be read."""

import json
import os
import time
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.observe.profile import Profile, Watch, profile
from headrace.observe.profile.breakdown import Breakdown, TimedPart, WorkerLoad
from headrace.observe.profile.verdict import judge
from headrace.pipe.graph import Pipe
from tests.observe.planted import PLANTED, plain, slow_map, step


def run(name: str, batches: int = 60, seconds: float = 3.0) -> Profile:
    make, consumer, _, _ = PLANTED[name]
    with make() as loader:
        return profile(loader, consumer, seconds=seconds, batches=batches)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_bottleneck_is_named(name: str) -> None:
    _, _, room, words = PLANTED[name]
    found = run(name)
    assert (found.verdict.room, words in found.verdict.name) == (room, True), found.text()
    assert found.verdict.bound == ("consumer" if room in ("step", "tail") else "loader")


def test_threads_are_profiled_as_well() -> None:
    with Loader(plain(fn=slow_map), workers=2, kind="thread") as loader:
        found = profile(loader, batches=30)
    assert "slow_map" in found.verdict.name
    assert {load.number for load in found.breakdown.loads} == {0, 1}


def test_every_batch_arrives_as_it_would_without_the_profiler() -> None:
    pipe = Pipe.of(range(100)).shuffle().batch(8)
    with Loader(pipe, seed=4, workers=2) as loader:
        with Watch(loader) as watched:
            seen = list(watched)
        assert seen == list(loader), "the loader itself is left as it was"


def test_epochs_follow_each_other_until_enough_was_seen() -> None:
    with Loader(Pipe.of(range(12)).batch(4)) as loader, Watch(loader, batches=8) as watched:
        assert [sum(batch) for batch in watched] == [6, 22, 38, 6, 22, 38, 6, 22]


def test_a_long_training_goes_on_when_enough_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.observe.profile.watch.MOST", 5)
    with Loader(Pipe.of(range(40)).batch(4)) as loader:
        with Watch(loader) as watched:
            assert len(list(watched)) == 10
        assert (len(watched.record.timings), len(watched.record.spans)) == (5, 5)
        assert profile(loader, seconds=60).breakdown.batches == 5


def test_a_training_loop_of_ones_own_can_be_watched() -> None:
    with Loader(plain(), workers=1) as loader, Watch(loader, batches=20) as watched:
        for batch in watched:
            step(batch)
    assert Profile(watched.record).verdict.room == "step"


def test_a_pipe_without_samples_ends_and_says_so() -> None:
    with Loader(Pipe.of(range(0)).batch(4)) as loader:
        found = profile(loader, seconds=1)
    assert found.breakdown.batches == 0
    assert "no rate" in found.text()
    assert found.html().startswith("<!doctype html>")


def test_an_error_of_the_pipe_comes_through_and_workers_end() -> None:
    def broken(x: int) -> int:
        raise KeyError(x)

    with Loader(Pipe.of(range(8)).map(broken).batch(2), workers=1) as loader, pytest.raises(KeyError):
        profile(loader, seconds=1)


def test_only_a_loader_can_be_profiled() -> None:
    with pytest.raises(BadOption, match=r"Loader\(pipe"):
        profile(Pipe.of(range(3)))  # type: ignore[arg-type]


def test_the_data_is_json_and_its_seconds_add_up() -> None:
    found = run("slow map")
    data = json.loads(json.dumps(found.data()))
    total = sum(part["seconds"] for part in data["seconds a batch"] if part["room"] == "work")
    busy = sum(worker["busy"] for worker in data["workers seen"]) / data["batches"]
    assert total <= busy * 1.5
    assert data["waiting"] > 0.5


def test_the_trace_has_every_ticket_inside_its_worker_and_every_turn() -> None:
    found = run("slow collate", batches=30)
    trace = json.loads(json.dumps(found.trace()))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in trace if e["ph"] == "M"}
    assert names == {0: "training loop", 1: "worker 0", 2: "worker 1"}
    tickets = [e for e in trace if e["ph"] == "X" and e["name"] == "stage 0"]
    assert len(tickets) == len(found.record.spans)
    for worker in (1, 2):
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in tickets if e["tid"] == worker)
        assert mine
        assert all(mine[k][1] <= mine[k + 1][0] + 1 for k in range(len(mine) - 1)), "one ticket at a time"
    assert sum(e["name"] == "step" for e in trace) == 30
    assert {e["name"] for e in trace if e["ph"] == "C"} == {"shared memory", "slots", "batches ready"}


def test_seconds_in_workers_are_measured_where_they_are_spent() -> None:
    found = run("slow collate", batches=30)
    assert found.record.spans
    for span in found.record.spans:
        assert span.began <= span.ended <= time.perf_counter()
        assert span.ops is not None
        assert sum(span.ops.values()) <= span.ended - span.began + 1e-3


# --- verdicts, on paper -----------------------------------------------------------------------------------------------


def breakdown(**changes: Any) -> Breakdown:
    parts = (
        TimedPart("work", "map", 0.010, 1), TimedPart("transport", "packing, in workers", 0.001),
        TimedPart("transport", "decoding, in the consumer", 0.0005), TimedPart("step", "the training loop", 0.001),
    )  # fmt: skip
    loads = tuple(WorkerLoad(k, 50, 0.5, 0.010) for k in range(4))
    plain = Breakdown(
        batches=200, samples=8, wall=0.003, start=0.1, waited=0.0015, parts=parts, loads=loads, bytes=100.0, workers=4,
        kind="process",
    )  # fmt: skip
    return replace(plain, **changes)


def test_a_loop_that_hardly_waits_sets_the_pace_itself() -> None:
    assert judge(breakdown()).bound == "loader"
    assert (judge(breakdown(waited=0.0001)).bound, judge(breakdown(waited=0.0001)).room) == ("consumer", "step")


def test_what_runs_in_one_place_counts_whole() -> None:
    head = (TimedPart("head", "parse", 0.004, 0),)
    assert judge(breakdown(parts=breakdown().parts + head)).name == "parse", (
        "4 ms in one place, 11 ms among four workers"
    )
    assert judge(breakdown(parts=breakdown().parts + head, workers=1)).name == "map"


def test_a_worker_is_slow_only_if_it_loses_enough() -> None:
    fast = tuple(WorkerLoad(k, 50, 0.5, 0.010) for k in range(3))
    assert judge(breakdown(loads=(*fast, WorkerLoad(3, 20, 1.0, 0.050)))).name == "worker 3"
    assert judge(breakdown(loads=(*fast, WorkerLoad(3, 40, 0.6, 0.015)))).room == "work"
    assert judge(breakdown(loads=(*fast, WorkerLoad(3, 2, 0.1, 0.050)))).room == "work", "two tickets prove nothing"


def test_advice_about_the_way_of_batches_fits_their_size() -> None:
    parts = (TimedPart("transport", "packing, in workers", 0.004), TimedPart("step", "the training loop", 0.001))
    assert "Make them larger, or use workers=0" in judge(breakdown(parts=parts, bytes=0.0)).advice
    assert "send uint8" in judge(breakdown(parts=parts, bytes=1e7)).advice


def test_the_cores_stand_beside_the_workers() -> None:
    found = run("no workers")
    cores = len(os.sched_getaffinity(0))
    assert f"workers=0 (inline) on {cores} core" in found.text()
    assert found.data()["cores"] == cores
    assert f"<b>{cores}</b><span>cores</span>" in found.html()
