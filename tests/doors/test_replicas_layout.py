"""PT-03, PT-04, PT-22: what a combined batch holds, where each replica's part of it lies, and batches of any form."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.replicas import (
    DataLoader,
    ICustomArgParser,
    Layout,
    Options,
    registerCustomArgParser,
    split,
)
from tests.doors.replicas_datasets import Pair

counts = st.integers(1, 4)


def options(
    iterations: int = 1, accumulation: int = 1, replicas: int = 1, group: int = 1, kind: str = "Consecutive"
) -> Options:
    made = Options().deviceIterations(iterations).replicationFactor(replicas).inputReplicaGrouping(group, kind)
    made.Training.gradientAccumulation(accumulation)
    return made


@given(counts, counts, counts, counts, counts)
def test_the_combined_batch_is_the_product_of_all_five_factors(
    batch: int, iterations: int, accumulation: int, groups: int, group: int
) -> None:
    given = options(iterations, accumulation, groups * group, group)
    loader = DataLoader(given, range(batch * iterations * accumulation * groups), batch_size=batch)
    assert loader.combinedBatchSize == batch * iterations * accumulation * groups
    (combined,) = loader
    assert len(combined) == loader.combinedBatchSize


def test_an_input_group_counts_once() -> None:
    assert DataLoader(options(replicas=8, group=2), range(64), batch_size=4).combinedBatchSize == 16


@given(counts, counts, counts, counts)
def test_the_micro_batches_of_a_replica_lie_where_the_layout_says(
    batch: int, iterations: int, accumulation: int, replicas: int
) -> None:
    given = options(iterations, accumulation, replicas)
    (combined,) = DataLoader(given, range(batch * iterations * accumulation * replicas), batch_size=batch)
    parts = split(combined, given)
    assert len(parts) == replicas
    for r, stream in enumerate(parts):
        assert len(stream) == iterations * accumulation
        for d in range(iterations):
            for g in range(accumulation):
                m = (d * accumulation + g) * replicas + r
                assert stream[d * accumulation + g].tolist() == list(range(m * batch, (m + 1) * batch))


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("Consecutive", [0, 0, 1, 1, 2, 2]), ("Orthogonal", [0, 1, 2, 0, 1, 2]), ("NoGrouping", range(6))],
)
def test_replicas_of_one_group_receive_the_same(kind: str, groups: Any) -> None:
    given = options(iterations=2, replicas=6, group=2, kind=kind)
    layout = Layout.of(given)
    streams = split(np.arange(layout.micro_batches), given)
    assert [stream[0].tolist() for stream in streams] == [[g] for g in groups]
    assert [stream[1].tolist() for stream in streams] == [[layout.groups + g] for g in groups]


def test_a_batch_that_is_not_whole_is_refused_with_all_factors() -> None:
    given = options(iterations=2, accumulation=3, replicas=4, group=2)
    with pytest.raises(BadOption) as told:
        split(np.arange(13), given)
    for word in (
        "13 samples",
        "12 micro-batches",
        "deviceIterations (2)",
        "replicationFactor (4)",
        "input_group_size (2)",
    ):
        assert word in str(told.value)
    assert "gradientAccumulation (3)" in str(told.value)
    with pytest.raises(BadOption, match="0 samples"):
        split(np.arange(0), given)


@dataclasses.dataclass
class Record:
    image: Any
    names: list[str]


class Own:
    """A class of the user's that nobody knows how to take apart."""

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


class OwnParser(ICustomArgParser):
    def yieldTensors(self, struct: Own) -> Iterator[Any]:
        yield struct.left
        yield struct.right

    def reconstruct(self, original_structure: Own, tensor_iterator: Iterator[Any]) -> Own:
        return Own(next(tensor_iterator), next(tensor_iterator))


def test_batches_of_every_form_are_split_and_keep_their_form() -> None:
    given = options(replicas=2)
    rows = torch.arange(4)
    assert [s[0].tolist() for s in split(rows, given)] == [[0, 1], [2, 3]]
    assert [s[0]["x"].tolist() for s in split({"x": rows}, given)] == [[0, 1], [2, 3]]
    first, second = (s[0] for s in split((rows, [rows.numpy(), ["a", "b", "c", "d"]]), given))
    assert isinstance(first, tuple)
    assert (first[1][1], second[1][1]) == (["a", "b"], ["c", "d"])
    (_, [pair]) = split(Pair(rows, rows), given)
    assert isinstance(pair, Pair)
    assert pair.label.tolist() == [2, 3]
    (_, [record]) = split(Record(rows, list("abcd")), given)
    assert (record.image.tolist(), record.names) == ([2, 3], ["c", "d"])


def test_a_class_of_the_users_is_split_by_its_parser_and_refused_without_one() -> None:
    given = options(replicas=2)
    batch = Own(torch.arange(4), torch.arange(4, 8))
    with pytest.raises(BadOption, match="not Own; for a class of your own use registerCustomArgParser"):
        split(batch, given)
    registerCustomArgParser(Own, OwnParser())
    _, [part] = split({"own": batch}, given)
    assert (part["own"].left.tolist(), part["own"].right.tolist()) == ([2, 3], [6, 7])
    with pytest.raises(BadOption):
        registerCustomArgParser(Own, OwnParser)  # type: ignore[arg-type]


def test_parts_look_into_the_batch_without_a_copy() -> None:
    batch = torch.zeros(4, 3)
    _, [part] = split(batch, options(replicas=2))
    part += 1
    assert batch.sum() == 6


def test_a_batch_whose_parts_disagree_is_refused() -> None:
    with pytest.raises(BadOption, match="4 to 6 samples"):
        split({"a": np.arange(4), "b": np.arange(6)}, options(replicas=2))
    with pytest.raises(BadOption, match="no array"):
        split({}, options(replicas=2))
