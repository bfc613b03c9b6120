"""A loader says when its workers cost more than they give."""

import time

import pytest

from headrace import DataLoader2, IterableWrapper, Loader, MultiProcessingReadingService, Pipe
from headrace.observe import meter


@pytest.fixture
def costly_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket costs so much on its way that no work of these tests is worth it, however busy the machine is."""
    monkeypatch.setattr(meter, "TICKET_SECONDS", 10.0)


def trivial(x: int) -> int:
    return x + 1


def slow(x: int) -> int:
    time.sleep(0.002)
    return x


@pytest.mark.usefixtures("costly_way")
def test_trivial_work_is_said_to_be_cheaper_without_workers() -> None:
    with Loader(Pipe.of(range(4000)).map(trivial).batch(4), workers=2) as loader:
        assert loader.stats().advice == ""  # nothing is known yet
        assert len(list(loader)) == 1000
        assert "workers cost more than they give" in loader.stats().advice
        assert loader.explain().endswith(loader.stats().advice)


def test_real_work_is_not() -> None:
    with Loader(Pipe.of(range(800)).map(slow).batch(4), workers=2) as loader:
        assert len(list(loader)) == 200
        assert loader.stats().advice == ""
        assert "cost more" not in loader.explain()


@pytest.mark.usefixtures("costly_way")
def test_without_workers_there_is_nothing_to_say() -> None:
    with Loader(Pipe.of(range(4000)).map(trivial).batch(4)) as loader:
        assert len(list(loader)) == 1000
        assert loader.stats().advice == ""


@pytest.mark.usefixtures("costly_way")
def test_graphs_of_datapipes_say_it_too() -> None:
    graph = IterableWrapper(range(4000)).shuffle().sharding_filter().map(trivial).batch(4)
    loader = DataLoader2(graph, reading_service=MultiProcessingReadingService(num_workers=2))
    try:
        assert len(list(loader)) == 1000
        assert "workers cost more than they give" in loader.explain()
    finally:
        loader.shutdown()
