"""Mix: exact shares with random access, stages, ends, changes of weights in a running job, their journal."""

import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption, SnapshotRefused
from headrace.ops.branch.journal import Change, journal_text, read_journal, stages_in, still_needed
from headrace.plan.mixture import BLOCK, WeightStage
from tests.depth import depth

BATCH = 8


def source(name: int, length: int) -> Pipe[tuple[int, int]]:
    return Pipe.of([(name, i) for i in range(length)])


def counts(samples: Sequence[tuple[int, int]], inputs: int) -> list[int]:
    return np.bincount([name for name, _ in samples], minlength=inputs).tolist()


def three(ends: Any = "forever") -> Pipe[tuple[int, int]]:
    return source(0, 70).shuffle().mix(source(1, 110), source(2, 130).shuffle(), weights=[5, 3, 2], ends=ends)


def batches(loader: Loader[Any], most: int) -> list[list[tuple[int, int]]]:
    return [list(batch) for batch in islice(iter(loader), most)]


def test_everything_before_a_mixture_of_indexed_pipes_runs_in_all_workers() -> None:
    plan = three("drop").map(str).batch(BATCH).explain(workers=2)
    assert "head: random access to 310 samples" in plan
    assert "in one worker" not in plan


def test_each_input_has_its_exact_share_at_the_end_of_every_block() -> None:
    seen = [sample for batch in batches(Loader(three().batch(BATCH)), 10 * BLOCK // BATCH) for sample in batch]
    for block in range(1, 11):
        ideal = np.array([0.5, 0.3, 0.2]) * block * BLOCK
        assert np.abs(np.array(counts(seen[: block * BLOCK], 3)) - ideal).max() < 2


def test_an_input_that_begins_again_comes_in_another_order_and_whole() -> None:
    seen = [i for name, i in islice(iter(Loader(three())), 400) if name == 0]
    first, second = seen[:70], seen[70:140]
    assert sorted(first) == sorted(second) == list(range(70))
    assert first != second


@pytest.mark.parametrize(("ends", "length"), [("first", 5), ("all", 19), ("drop", 12)])
def test_the_ends_that_are_worked_out_in_the_specification(ends: Any, length: int) -> None:
    pipe = source(0, 3).mix(source(1, 4), source(2, 5), weights=[2, 1, 1], ends=ends)
    seen = list(Loader(pipe))
    assert len(seen) == len(pipe) == length
    if ends == "drop":
        assert sorted(seen) == [(n, i) for n, size in enumerate((3, 4, 5)) for i in range(size)]


def test_streams_follow_the_shares_too_and_end_as_told() -> None:
    def stream(name: int, length: int) -> Pipe[tuple[int, int]]:
        return Pipe.of(lambda: iter([(name, i) for i in range(length)]))

    seen = list(stream(0, 300).mix(stream(1, 50), weights=[3, 1]))
    assert sorted(seen) == sorted([(0, i) for i in range(300)] + [(1, i) for i in range(50)])
    assert abs(counts(seen[:160], 2)[1] - 40) < 12
    assert counts(list(stream(0, 30).mix(stream(1, 300), weights=[3, 1], ends="first")), 2)[0] == 30
    assert min(counts(list(stream(0, 30).mix(stream(1, 40), weights=[3, 1], ends="all")), 2)) >= 30
    empty: Pipe[Any] = Pipe.of(lambda: iter(()))
    assert list(empty.mix(empty)) == []


def test_an_empty_input_ends_nothing_that_does_not_draw_from_it() -> None:
    def seen(weights: list[int], ends: Any, **options: Any) -> list[int]:
        return [i for _, i in Loader(source(0, 3).mix(source(1, 0), weights=weights, ends=ends, **options))]

    assert seen([1, 0], "first") == seen([1, 0], "drop") == seen([1, 0], "all") == [0, 1, 2]
    assert seen([1, 1], "first") == []
    assert seen([1, 1], "drop", stages={1: [0, 1], 4: [1, 1]}) == [0, 1, 2]
    assert seen([0, 1], "drop") == []
    for ends in ("all", "forever"):
        with pytest.raises(BadOption, match="source 1 has no samples, so it can never begin again"):
            seen([1, 1], ends)
    nothing = source(0, 0).mix(source(1, 0), weights=[1, 1])
    assert list(Loader(nothing)) == []
    assert len(nothing) == 0


def test_stages_hold_from_the_sample_that_they_name() -> None:
    pipe = source(0, 90).mix(source(1, 90), weights=[1, 0], stages={2048: [1, 3]}, ends="forever")
    seen = list(islice(iter(Loader(pipe)), 4096))
    assert counts(seen[:2048], 2) == [2048, 0]
    assert counts(seen[2048:], 2) == [512, 1536]


def test_weights_of_tokens_need_lengths_that_are_known() -> None:
    with pytest.raises(BadOption, match="headrace tokenize"):
        source(0, 3).mix(source(1, 3), weights=[1, 1], by="tokens")


@pytest.mark.parametrize("bad", [[1], [0, 0], [-1, 2]])
def test_weights_that_say_nothing_are_refused(bad: list[float]) -> None:
    with pytest.raises(BadOption, match="weights"):
        source(0, 3).mix(source(1, 3), weights=bad)


# --- changes in a running job -----------------------------------------------------------------------------------------


def changed(ranks: int, steps: int, early: int, workers: int = 0, kind: Any = None) -> list[list[tuple[int, int]]]:
    """Global batches of a job whose weights change every 100 steps of 16 samples, told `early` steps before."""
    delivered: list[list[list[tuple[int, int]]]] = []
    pipe = three().batch(16 // ranks)
    for rank in range(ranks):
        with Loader(pipe, seed=4, world=World(rank=rank, ranks=ranks), workers=workers, kind=kind) as loader:
            mine = []
            for step, batch in enumerate(islice(iter(loader), steps)):
                mine.append(list(batch))
                if (step + early + 1) % 100 == 0:
                    turn = (step + early + 1) // 100
                    loader.reweight([1 + turn % 3, 1, turn % 2], at_step=100 * turn)
            delivered.append(mine)
    return [[sample for one in step for sample in one] for step in zip(*delivered, strict=True)]


def test_a_change_holds_from_the_same_sample_on_every_rank_whenever_it_is_told() -> None:
    alone = changed(1, 350, early=1)
    assert changed(2, 350, early=37) == alone
    assert changed(4, 350, early=80) == alone
    plain = batches(Loader(three().batch(16), seed=4), 350)
    assert plain[:128] == alone[:128]  # the first change asks for step 100: block 1600..2048 ends at step 128
    assert plain[128:] != alone[128:]


def test_shares_stay_exact_while_weights_change_workers_die_and_ranks_change() -> None:
    import os
    import signal

    ideal, seen = np.zeros(3), []
    weights: list[float] = [5, 3, 2]
    state: Any = None
    last = 0
    for turn in range(depth(4, 30)):
        ranks = (1, 2)[turn % 2]
        wanted = (turn + 1) * 1600
        states = []
        parts: list[list[Any]] = []
        for rank in range(ranks):
            world = World(rank=rank, ranks=ranks)
            with Loader(three().batch(16 // ranks), seed=4, world=world, workers=1, kind="process") as loader:
                if state is not None:
                    loader.load_state_dict(json.loads(state))
                samples = iter(loader)
                mine = [list(next(samples)) for _ in range(20)]
                new = [1 + turn % 4, 2, turn % 3]
                start = loader.reweight(new, at_step=wanted // 16)
                os.kill(loader.worker_pids()[0], signal.SIGKILL)
                mine += [list(batch) for batch in islice(samples, 80)]
                states.append(json.dumps(loader.state_dict()))
                parts.append(mine)
        assert len(set(states)) == 1
        state = states[0]
        seen += [sample for step in zip(*parts, strict=True) for one in step for sample in one]
        ideal += np.array(weights) * (start - last) / sum(weights)
        if len(seen) >= start:
            assert np.abs(np.array(counts(seen[:start], 3)) - ideal).max() < 2
        last, weights = start, new
    assert len(seen) == depth(4, 30) * 1600
    for name, size in enumerate((70, 110, 130)):
        rows = [i for n, i in seen if n == name]
        assert all(sorted(rows[at : at + size]) == list(range(size)) for at in range(0, len(rows) - size, size))


def test_a_snapshot_keeps_the_journal_and_its_size() -> None:
    pipe = three().batch(BATCH)
    loader = Loader(pipe, seed=4)
    samples = iter(loader)
    without = len(json.dumps(loader.state_dict()))
    for turn in range(40):
        next(samples)
        loader.reweight([turn + 1, 1, 2], at_sample=(turn + 1) * BLOCK)
    state = json.loads(json.dumps(loader.state_dict()))
    assert without <= 1024 + 40 * 3
    assert len(json.dumps(state)) - without <= 40 * (16 + 2 * 3) + 32
    rest = [list(batch) for batch in islice(samples, 600)]
    other = Loader(pipe, seed=4)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert batches(other, 600) == rest
    other.load_state_dict({key: value for key, value in state.items() if key != "weights"})
    assert batches(other, 600) != rest  # a snapshot without changes takes them back


def test_an_epoch_begins_with_the_weights_that_the_last_one_ended_with() -> None:
    loader = Loader(source(0, 3000).mix(source(1, 3000), weights=[1, 1], ends="first"), seed=4)
    for number, _ in enumerate(loader):
        if number == 10:
            assert loader.reweight([3, 1], at_sample=2000) == 2048
    seen = list(islice(iter(loader), 2048))
    assert counts(seen, 2) == [1536, 512]


def test_a_change_of_what_is_delivered_already_is_refused() -> None:
    loader = Loader(three().batch(BATCH), seed=4)
    samples = iter(loader)
    for _ in range(200):
        next(samples)
    with pytest.raises(BadOption, match="1600 samples of the mixture are delivered already"):
        loader.reweight([1, 1, 1], at_step=100)
    with pytest.raises(BadOption, match="at_step="):
        loader.reweight([1, 1, 1])
    with pytest.raises(BadOption, match="3 inputs"):
        loader.reweight([1, 1], at_step=1000)
    with pytest.raises(BadOption, match="this one has 0"):
        Loader(source(0, 4).batch(2)).reweight([1], at_step=3)
    with pytest.raises(BadOption, match="at_sample="):
        Loader(three().filter(bool).batch(2)).reweight([1, 1, 1], at_step=3)


def test_a_journal_is_short_text_and_anything_else_is_refused() -> None:
    journal = (Change(0, 5, (1, 4095)), Change(2, 2**47 - 1, (0, 7)))
    assert read_journal(journal_text(journal), 2) == journal
    assert len(journal_text(journal)) == 2 * (12 + 2 * 2)
    assert still_needed(journal, 2) == journal
    assert still_needed(journal, 3) == journal[1:]
    planned = (WeightStage(0, (1, 1)), WeightStage(9, (2, 1)))
    assert stages_in(0, planned, journal) == (WeightStage(0, (1, 1)), WeightStage(5, (1, 4095)))
    assert stages_in(1, planned, journal) == (WeightStage(0, (1, 4095)),)
    for damaged in (
        7,
        journal_text(journal)[:-1],
        "*" * 16,
        journal_text(journal[::-1]),
        journal_text((Change(0, 0, (1, 1)),)),
    ):
        with pytest.raises(SnapshotRefused):
            read_journal(damaged, 2)
