"""Chunked gives the order's own values, and evaluates it rarely."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.order import Chunked, Ints, Shuffled, Windowed
from headrace.plan.share import Share


@dataclass
class Counted:
    """An order that remembers how many positions each call asked for."""

    length: int
    calls: list[int] = field(default_factory=list)

    def __call__(self, positions: Ints) -> Ints:
        self.calls.append(len(positions))
        return self.length - 1 - positions


@given(st.integers(1, 400), st.integers(1, 50), st.data())
def test_spans_and_single_positions_are_those_of_the_order(length: int, chunk: int, data: st.DataObject) -> None:
    order = Shuffled(length, 3)
    whole = order(np.arange(length, dtype=np.int64)).tolist()
    ranks = data.draw(st.integers(1, min(4, length)))
    rank, batch = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(1, 20))
    begin = data.draw(st.integers(0, length - ranks))
    share = data.draw(st.sampled_from([None, Share(length, batch, ranks, rank, start=begin)]))
    chunked = Chunked(order, chunk) if share is None else Chunked(order, chunk, run=share.batch, lanes=share.ranks)
    for _ in range(5):
        start = data.draw(st.integers(0, length))
        stop = data.draw(st.integers(start, length))
        assert chunked.span(start, stop) == whole[start:stop]
        if start < length:
            assert chunked.at(start) == whole[start]
    assert [chunked.at(position) for position in range(length)] == whole
    if share is not None:
        for step in range(share.steps):
            block = share.block(step)
            assert chunked.span(block.start, block.stop) == whole[block.start : block.stop]


def test_reading_through_an_order_evaluates_each_chunk_once() -> None:
    order = Counted(10_000)
    chunked = Chunked(order, 4096)
    assert [chunked.at(position) for position in range(10_000)] == list(range(9_999, -1, -1))
    assert order.calls == [4096, 4096, 10_000 - 8192]


def test_a_rank_among_many_evaluates_its_own_batches_together() -> None:
    share = Share(10**6, 8, ranks=100, rank=42)
    order = Counted(10**6)
    chunked = Chunked(order, 4096, run=share.batch, lanes=share.ranks)
    for step in range(share.steps - 1):
        block = share.block(step)
        assert chunked.span(block.start, block.stop) == [10**6 - 1 - position for position in block.positions()]
    assert len(order.calls) == -(-(share.steps - 1) * 8 // 4096)


def test_a_few_chunks_are_kept_so_that_overlapping_readers_share_them() -> None:
    order = Counted(1000)
    chunked = Chunked(order, 10)
    for position in (5, 15, 25, 35, 5, 15, 25, 35):
        chunked.at(position)
    assert len(order.calls) == 4
    chunked.at(45)
    chunked.at(5)
    assert len(order.calls) == 6


@pytest.mark.parametrize("length", [2**63, 2**63 - 1])
def test_the_last_positions_of_the_longest_order_can_be_read(length: int) -> None:
    share = Share(length, 5, ranks=3, rank=1, policy="pad")
    orders: list[Any] = [Shuffled(length, 1), Windowed(length, 100, 1)]
    for order in orders:
        wanted = order(np.arange(length - 20, length, dtype=np.uint64).astype(np.int64)).tolist()
        assert Chunked(order).span(length - 20, length) == wanted
        assert Chunked(order, run=share.batch, lanes=share.ranks).span(length - 20, length) == wanted


@pytest.mark.parametrize("chunked", [Chunked(Shuffled(10, 1), 4), Chunked(Shuffled(10, 1), 4, run=2, lanes=2)])
def test_positions_outside_are_refused(chunked: Chunked) -> None:
    for start, stop in ((-1, 2), (3, 11), (5, 4)):
        with pytest.raises(IndexError, match="outside"):
            chunked.span(start, stop)
    for _ in range(2):
        for position in (-1, 10, 11, 100):
            with pytest.raises(IndexError):
                chunked.at(position)
        chunked.at(9)  # the chunk at the edge is kept: the second turn looks into it
    with pytest.raises(BadOption, match="at least 1"):
        Chunked(Shuffled(10, 1), 0)
