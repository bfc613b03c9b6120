"""Uneven ends in worlds without processes: filled batches of streams, their masks, and what fullsync asks for."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.doors.dataloader2.services import ReadSettings
from headrace.errors import BadOption
from headrace.ranks.agree import Agreement
from tests.depth import depth
from tests.laws.pipes import Numbers, drawn, odd, stream
from tests.ranks.together import Meeting, Seat

SHAPES: dict[str, Any] = {
    "indexed": lambda n, b: Pipe.of(Numbers(n)).shuffle().batch(b),
    "streamed": lambda n, b: Pipe.of(stream(n)).shuffle(window=7).sharding_filter().map(int).batch(b),
    "assembled": lambda n, b: Pipe.of(stream(n)).batch(b),
}


def read(pipe: Pipe[Any], ranks: int, ends: Any, **how: Any) -> list[list[tuple[list[int], list[bool] | None]]]:
    out = []
    for rank in range(ranks):
        with Loader(pipe, seed=5, world=World(rank=rank, ranks=ranks), ends=ends, **how) as loader:
            out.append([(batch, loader.mask()) for batch in loader])
    return out


@settings(max_examples=depth(100, 1500))
@given(
    st.sampled_from(list(SHAPES)),
    st.integers(1, 60),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["pad", "repeat"]),
)
def test_filled_epochs_are_complete_and_without_the_mask_disjoint(
    shape: str, n: int, batch: int, ranks: int, ends: str
) -> None:
    got = read(SHAPES[shape](n, batch), ranks, ends)
    assert {len(rank) for rank in got} == {-(-n // (batch * ranks))}
    real: Counter[int] = Counter()
    filled: list[int] = []
    for step in zip(*got, strict=True):
        for samples, mask in step:
            assert len(samples) == batch
            mask = mask or [True] * batch
            assert len(mask) == batch
            real.update(x for x, true in zip(samples, mask, strict=True) if true)
            filled += [x for x, true in zip(samples, mask, strict=True) if not true]
    assert real == Counter(range(n))
    order = [x for step in zip(*got, strict=True) for samples, _ in step for x in samples][:n]
    if ends == "pad":
        assert set(filled) <= {order[-1]}
    else:
        assert filled == [order[i % n] for i in range(len(filled))]


def fragile(x: int) -> int:
    if x in (3, 8, 21):
        raise ValueError(x)
    return x


@pytest.mark.parametrize("ends", ["pad", "repeat"])
@pytest.mark.parametrize("source", [Numbers, stream])
@pytest.mark.parametrize("how", [{}, {"workers": 2, "kind": "thread"}])
def test_samples_that_were_left_out_have_no_place_in_the_mask(source: Any, ends: str, how: dict[str, Any]) -> None:
    for n in range(1, 24):
        with Loader(Pipe.of(source(n)).map(fragile).batch(4), ends=ends, on_error="skip", **how) as loader:  # type: ignore[arg-type]
            got = [(batch, loader.mask() or [True] * len(batch)) for batch in loader]
        real = [x for batch, mask in got for x, true in zip(batch, mask, strict=True) if true]
        assert real == [x for x in range(n) if x not in (3, 8, 21)]


@pytest.mark.parametrize("ends", ["pad", "repeat"])
@pytest.mark.parametrize("how", [{}, {"workers": 2, "start_method": "fork"}])
def test_a_row_of_which_one_sample_was_left_out_keeps_its_place_in_the_mask(ends: str, how: dict[str, Any]) -> None:
    for n in range(1, 26):
        with Loader(
            Pipe.of(Numbers(n)).map(fragile).batch(2).batch(4),
            ends=ends,
            on_error="skip",
            **how,  # type: ignore[arg-type]
        ) as loader:
            got = [(batch, loader.mask() or [True] * len(batch)) for batch in loader]
        real = [x for batch, mask in got for row, true in zip(batch, mask, strict=True) if true for x in row]
        assert real == [x for x in range(n) if x not in (3, 8, 21)]
    documents = Pipe.of([[i] * 3 for i in range(11)]).map(lambda d: [fragile(x) for x in d])
    with Loader(documents.sized([3] * 11).pack(6).batch(4), ends=ends, on_error="skip", **how) as loader:  # type: ignore[arg-type]
        for batch in loader:
            assert len(loader.mask() or batch) == len(batch)


@pytest.mark.parametrize(
    "pipe", [Pipe.of(Numbers(10)).batch(4).in_batch_shuffle(), Pipe.of(Numbers(10)).batch(4).filter(any)]
)
def test_no_mask_is_told_in_one_process_either_where_ops_leave_out_or_shuffle_filled_batches(pipe: Pipe[Any]) -> None:
    for ends in ("pad", "repeat"):
        with Loader(pipe, ends=ends) as loader:  # type: ignore[arg-type]
            batches = iter(loader)
            next(batches)
            with pytest.raises(BadOption, match="batch at the end of the pipe"):
                loader.mask()
    with Loader(pipe) as loader:
        assert all(loader.mask() is None for _ in loader)


def flat(value: Any) -> list[int]:
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("ends", ["pad", "repeat", "drop"])
@pytest.mark.parametrize(
    "pipe",
    [
        Pipe.of(Numbers(20)).threadpool_map(int),
        Pipe.of(Numbers(20)).threadpool_map(int).batch(4),
        Pipe.of(Numbers(20)).map_batches(list, batch_size=64).batch(4),
        Pipe.of(Numbers(20)).bucketbatch(4, batch_num=3, sort_key=sorted),
        Pipe.of(Numbers(20)).batch(8).unbatch(),
        Pipe.of(stream(20)).batch(8).unbatch().batch(5),
        Pipe.of(stream(20)).batch(3).batch(7),
    ],
)
def test_only_batches_that_arrive_are_filled_or_dropped(pipe: Pipe[Any], ends: Any) -> None:
    with Loader(pipe, ends=ends) as loader:
        got = [(batch, loader.mask()) for batch in loader]
    assert sorted(flat([batch for batch, _ in got])) == list(range(20))
    assert all(mask is None for _, mask in got)


@pytest.mark.parametrize("ends", ["short", "pad", "repeat", "drop"])
@pytest.mark.parametrize(
    "pipe",
    [
        Pipe.of(Numbers(22)).threadpool_map(int).batch(4),
        Pipe.of(Numbers(22)).shuffle(buffer_size=5).batch(4),
        Pipe.of(stream(22)).set_length(22).batch(4).map(list),
        Pipe.of(Numbers(22)).filter(odd).set_length(11).batch(4),
    ],
)
def test_the_length_counts_the_batch_that_is_dropped_at_the_end(pipe: Pipe[Any], ends: Any) -> None:
    with Loader(pipe, ends=ends) as loader:
        assert len(loader) == len(list(loader))


@pytest.mark.parametrize("ends", ["pad", "repeat"])
@pytest.mark.parametrize("left", [False, True])
def test_workers_fill_the_same_and_give_every_slot_back(ends: str, left: bool) -> None:
    # Large enough that samples travel in shared memory.
    pipe = Pipe.of(lambda: (np.full(3000, i) for i in range(53))).sharding_filter().map(drawn).batch(4)
    alone = read(pipe, 3, ends)
    with Loader(pipe, seed=5, world=World(rank=2, ranks=3), ends=ends, workers=2, start_method="fork") as loader:
        assert repr([(b, loader.mask()) for b in loader]) == repr(alone[2])
        held = []
        for _ in range(2):
            for _ in range(20):
                batches = iter(loader)
                assert len([b for b, _ in zip(batches, range(2 if left else 100), strict=False)]) == (2 if left else 5)
                batches.close()
            held.append(loader.stats().bytes)
        assert held[1] < held[0] + 10 * 2**16, "a slot of 64 kB that each epoch keeps would make it 20"


def test_a_batch_keeps_its_number_in_another_world() -> None:
    # Three ranks stop after 12 positions, two go on: the global generators must be seeded as if nothing had happened.
    pipe = Pipe.of(Numbers(60)).shuffle().map(drawn).batch(4)
    alone = [repr(batch) for batch in Loader(pipe, seed=5)]
    with Loader(pipe, seed=5, world=World(rank=0, ranks=3)) as loader:
        next(iter(loader))
        state = loader.state_dict()
    got = []
    for rank in range(2):
        with Loader(pipe, seed=5, world=World(rank=rank, ranks=2)) as loader:
            loader.load_state_dict(state)
            got.append([repr(batch) for batch in loader])
    assert [b for step in zip(*got, strict=True) for b in step] == alone[3:]


@pytest.mark.parametrize("tail", [lambda p: p.batch(4).fullsync(), lambda p: p.filter(odd).batch(4).fullsync(7)])
def test_the_time_out_of_fullsync_is_that_of_the_agreement(tail: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def of(world: World, timeout: float = 0.0) -> Seat:
        asked.append(timeout)
        return Seat(Meeting(1), 0)

    monkeypatch.setattr(Agreement, "of", of)
    with Loader(tail(Pipe.of(Numbers(40)).shuffle()), world=World(rank=0, ranks=2)) as loader:
        iter(loader)
    assert asked == [7 if "filter" in repr(loader.pipe) else 1800]


def test_a_fullsync_at_the_end_leaves_lengths_and_places_as_they_are() -> None:
    pipe = Pipe.of(Numbers(23)).shuffle().batch(4)
    for rank in range(2):
        world = World(rank=rank, ranks=2)
        with Loader(pipe.fullsync(), seed=5, world=world) as synced, Loader(pipe, seed=5, world=world) as loader:
            assert len(synced) == len(loader) == 3
            assert list(synced) == list(loader)


def test_the_service_hands_its_time_out_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from headrace import DistributedReadingService, IterableWrapper
    from headrace.doors.dataloader2 import services
    from headrace.ops.shape.same import FullSync
    from headrace.sharing import without_sync

    monkeypatch.setattr(services, "check_distributed", lambda initialized: None)
    service = DistributedReadingService(timeout=11, policy="pad")
    graph = service.initialize(IterableWrapper(range(5)).batch(2))
    assert isinstance(graph.op, FullSync)
    assert without_sync(graph)[1] == 11
    assert service.settings(ReadSettings()).ends == "pad"
