"""Ranks that count: every sample comes once, or is counted in a warning, whatever ops decide how many there are."""

import json
import logging
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.errors import BadPipe, warn_once
from tests.depth import depth
from tests.laws.pipes import Numbers, stream
from tests.ranks.together import together

SOURCES: dict[str, Any] = {"indexed": Numbers, "streamed": stream}
THREAD: dict[str, Any] = {"workers": 1, "kind": "thread"}
"""Ranks are threads of one process here, and threads do not touch what is global."""
OPS: dict[str, Any] = {
    "filter that keeps all": (lambda p: p.filter(keep), lambda n: Counter(range(n))),
    "filter": (lambda p: p.filter(some), lambda n: Counter(x for x in range(n) if some(x))),
    "flatmap": (lambda p: p.flatmap(many), lambda n: Counter(y for x in range(n) for y in many(x))),
    "unbatch": (lambda p: p.map(pair).unbatch(), lambda n: Counter(y for x in range(n) for y in pair(x))),
}


def keep(x: int) -> bool:
    return True


def some(x: int) -> bool:
    return x % 7 > 2


def many(x: int) -> list[int]:
    return [x] * (x % 5)


def pair(x: int) -> list[int]:
    return [x, x]


class Records(logging.Handler):
    """What is logged meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"

    def __enter__(self) -> "Records":
        logging.getLogger("headrace").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("headrace").removeHandler(self)


def left_out(text: str) -> int:
    """Samples that the warnings of all ranks count."""
    return sum(int(count) for count in re.findall(r"(\d+) samples (?:of this rank )?are left out", text))


def read(pipe: Pipe[Any], ranks: int, monkeypatch: pytest.MonkeyPatch, ends: Any = "short") -> list[list[Any]]:
    def body(world: World) -> list[Any]:
        with Loader(pipe, seed=5, world=world, ends=ends, **THREAD) as loader:
            return list(loader)

    return together(ranks, body, monkeypatch)


@settings(max_examples=depth(40, 2000))
@given(
    st.sampled_from(list(SOURCES)), st.sampled_from(list(OPS)), st.integers(20, 110), st.integers(1, 5),
    st.integers(2, 4), st.data(),
)  # fmt: skip
def test_every_sample_comes_once_or_is_counted(
    source: str, op: str, n: int, batch: int, ranks: int, data: st.DataObject
) -> None:
    change, expected = OPS[op]
    pipe = change(Pipe.of(SOURCES[source](n)).sharding_filter())
    batched = data.draw(st.booleans())
    pipe = pipe.batch(batch) if batched else pipe
    with pytest.MonkeyPatch.context() as monkeypatch, Records() as records:
        got = read(pipe, ranks, monkeypatch)
    assert len({len(rank) for rank in got}) == 1
    delivered = Counter(x for rank in got for item in rank for x in (item if isinstance(item, list) else [item]))
    assert not delivered - expected(n)
    assert delivered.total() + left_out(records.text) == expected(n).total()
    if source == "indexed":
        assert left_out(records.text) < ranks, "what is left is dealt as long as it is enough for a step"
        assert not batched or not left_out(records.text)


@pytest.mark.parametrize("ends", ["short", "pad", "repeat"])
@pytest.mark.parametrize("op", ["filter", "flatmap"])
def test_what_only_fills_a_batch_is_not_counted_as_left_out(
    op: str, ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (17, 19, 21, 33):
        pipe = Pipe.of(Numbers(n)).filter(is_there) if op == "filter" else Pipe.of(Numbers(n)).flatmap(one)
        with Records() as records:
            got = read(pipe.batch(4), 4, monkeypatch, ends)
        assert len({x for rank in got for batch in rank for x in batch}) + left_out(records.text) == n


def is_there(x: int) -> bool:
    return True


REGROUPED: dict[str, Any] = {
    "unbatched": lambda p: p.filter(keep).batch(3).unbatch(),
    "batched twice": lambda p: p.flatmap(one).batch(1).batch(1),
    "in the consumer": lambda p: p.filter(keep).fullsync().map(int),
}


def one(x: int) -> list[int]:
    return [x]


@pytest.mark.parametrize("shape", list(REGROUPED))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_what_not_every_rank_can_have_is_counted_where_samples_are_regrouped_too(
    shape: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(ranks, 3 * ranks + 1):
        with Records() as records:
            got = read(REGROUPED[shape](Pipe.of(Numbers(n))), ranks, monkeypatch)
        assert {len(rank) for rank in got} == {n // ranks}
        counted = sum(int(count) for count in re.findall(r"(\d+) \w+ (?:of this rank )?are left out", records.text))
        assert counted == n % ranks
    with pytest.raises(BadPipe, match=r"no step of this epoch can be made|1 samples are left"):
        read(REGROUPED[shape](Pipe.of(Numbers(1))), ranks, monkeypatch)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_filter_that_rejects_all_that_a_rank_was_dealt_does_not_empty_the_epoch(
    ranks: int, batch: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for modulus, rest in ((ranks, 1), (2 * ranks, 1), (ranks, 0)):
        pipe = Pipe.of(Numbers(201)).filter(lambda x, m=modulus, r=rest: x % m == r)
        pipe = pipe if batch is None else pipe.batch(batch)

        def body(world: World, pipe: Pipe[Any] = pipe) -> list[Any]:
            with Loader(pipe, world=world, workers=workers, kind="thread") as loader:
                return list(loader)

        got = together(ranks, body, monkeypatch)
        assert len({len(rank) for rank in got}) == 1
        flat = [x for rank in got for item in rank for x in ([item] if batch is None else item)]
        wanted = [x for x in range(201) if x % modulus == rest]
        assert len(flat) == len(set(flat))
        assert set(flat) <= set(wanted)
        assert len(wanted) - len(flat) < ranks


@pytest.mark.parametrize("op", ["filter", "flatmap"])
def test_fewer_samples_than_ranks_are_refused_with_both_numbers(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(keep: Any) -> Pipe[Any]:
        pipe = Pipe.of(Numbers(67))
        return (pipe.filter(keep) if op == "filter" else pipe.flatmap(lambda x: [x] if keep(x) else [])).batch(4)

    for many in (1, 2):
        with pytest.raises(BadPipe, match=rf"{many} samples are left .* for 3 ranks"):
            read(chosen(lambda x, many=many: 40 <= x < 40 + many), 3, monkeypatch)
    assert read(chosen(lambda x: 40 <= x < 43), 3, monkeypatch) == [[[x]] for x in (42, 40, 41)]
    assert read(chosen(lambda x: x > 100), 3, monkeypatch) == [[], [], []]


def test_snapshots_of_any_step_continue_in_any_world(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(Numbers(201)).shuffle().filter(lambda x: x % 3 == 1).batch(4)
    wanted = {x for x in range(201) if x % 3 == 1}

    def whole(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, **THREAD) as loader:
            return [(batch, json.dumps(loader.state_dict())) for batch in loader]

    first = together(3, whole, monkeypatch)
    steps = len(first[0])
    assert len({state for rank in first for _, state in rank}) == steps, "one snapshot for the whole job"
    for step in range(0, steps, depth(3, 1)):
        before = [x for rank in first for batch, _ in rank[: step + 1] for x in batch]
        for ranks in (1, 2, 3):

            def rest(world: World, state: str = first[1][step][1]) -> Any:
                with Loader(pipe, seed=5, world=world, **THREAD) as loader:
                    loader.load_state_dict(json.loads(state))
                    return list(loader)

            then = together(ranks, rest, monkeypatch) if ranks > 1 else [rest(World())]
            after = [x for rank in then for batch in rank for x in batch]
            assert len(before + after) == len(set(before + after))
            assert set(before + after) == wanted
            if ranks == 3:
                assert then == [[batch for batch, _ in rank[step + 1 :]] for rank in first]


def test_epochs_that_follow_are_not_disturbed_by_one_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(Numbers(90)).shuffle().filter(lambda x: x % 2 == 1).batch(4)

    def body(world: World) -> Any:
        with Loader(pipe, seed=5, world=world, **THREAD) as loader:
            epochs = [list(loader) for _ in range(3)]
            for steps in (1, 3, 5):
                loader.set_epoch(0)
                for _, _ in zip(range(steps), loader, strict=False):
                    pass
            loader.set_epoch(1)
            return epochs, list(loader)

    for epochs, second in together(2, body, monkeypatch):
        assert second == epochs[1]
        assert len(epochs[0]) == len(epochs[2])


def fails(x: int) -> int:
    """All samples of the second batch of 4, and a few others."""
    if 4 <= x < 8 or x in (21, 40):
        raise ValueError(x)
    return x


FRAGILE: dict[str, Any] = {
    "indexed": Pipe.of(Numbers(48)).map(fails).batch(4),
    "collated": Pipe.of(Numbers(48)).map(fails).batch(4).map(list),
    "streamed": Pipe.of(stream(48)).map(fails).batch(4),
}
GOOD = set(range(48)) - {4, 5, 6, 7, 21, 40}


@pytest.mark.parametrize("shape", list(FRAGILE))
def test_samples_that_fail_leave_ranks_with_equal_steps_and_full_batches(
    shape: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def body(world: World) -> Any:
        with Loader(FRAGILE[shape], world=world, on_error="skip", **THREAD) as loader:
            return [(item, json.dumps(loader.state_dict())) for item in loader]

    ranks = 2
    got = together(ranks, body, monkeypatch)
    assert len({len(rank) for rank in got}) == 1
    flat = [x for rank in got for item, _ in rank for x in (item if isinstance(item, list) else [item])]
    assert len(flat) == len(set(flat))
    assert set(flat) <= GOOD
    if shape != "streamed":
        assert set(flat) == GOOD
        assert {len(item) for rank in got for item, _ in rank[:-1]} == {4}, "42 samples: only the last step is short"
    out = sum(
        record.args[0] * (4 if record.args[1] == "batches" else 1)  # type: ignore[index,operator,misc]
        for record in caplog.records
        if "are left out, because" in record.msg
    )
    assert out >= len(GOOD) - len(flat) > out - 4
    for step, (_, state) in enumerate(got[0]):
        assert state == got[1][step][1] or "streamed" in shape

        def rest(world: World, state: str = state) -> Any:
            with Loader(FRAGILE[shape], world=world, on_error="skip", **THREAD) as loader:
                loader.load_state_dict(json.loads(state))
                return list(loader)

        assert together(ranks, rest, monkeypatch) == [[item for item, _ in rank[step + 1 :]] for rank in got]


def test_a_snapshot_where_samples_fail_loads_on_any_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe.of(Numbers(48)).map(fails).batch(8)

    def begin(world: World) -> Any:
        with Loader(pipe, world=world, on_error="skip", **THREAD) as loader:
            batches = iter(loader)
            return [next(batches), next(batches)], loader.state_dict()

    first = together(2, begin, monkeypatch)

    def rest(world: World) -> Any:
        with Loader(pipe, world=world, on_error="skip", **THREAD) as loader:
            loader.load_state_dict(first[0][1])
            return list(loader)

    for ranks in (1, 2, 3):
        then = together(ranks, rest, monkeypatch) if ranks > 1 else [rest(World())]
        flat = [x for batches, _ in first for batch in batches for x in batch]
        assert sorted(flat + [x for rank in then for batch in rank for x in batch]) == sorted(GOOD)


@pytest.mark.parametrize("shape", ["indexed", "collated"])
def test_where_samples_may_fail_ranks_that_are_not_connected_are_warned(
    shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    worlds = [World(rank=rank, ranks=2) for rank in range(2)]
    got = [list(Loader(FRAGILE[shape], world=world, on_error="skip")) for world in worlds]
    assert sorted(x for rank in got for batch in rank for x in batch) == sorted(GOOD)
    assert "torch.distributed does not connect these ranks" in caplog.text
    with pytest.raises(BadPipe, match=r"ops after the division.*initialise torch\.distributed"):
        iter(Loader(Pipe.of(Numbers(48)).filter(bool).batch(4), world=worlds[0]))
