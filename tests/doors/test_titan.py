"""torchtitan's loader: finite data, another data-parallel degree, worker processes, against its own abstract class."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from headrace import Pipe
from headrace.doors.titan.loader import TitanBatches, titan_dataloader
from headrace.errors import BadOption, MissingExtra
from headrace.ops.text.labels import flattened, shifted

torch = pytest.importorskip("torch")
LENGTH = 16


def documents() -> list[Any]:
    return [np.full(n, n, np.int32) for n in np.random.default_rng(0).integers(1, 30, 200).tolist()]


def rows(tokenizer: Any, length: int) -> Pipe[Any]:
    of = documents()
    return Pipe.of(of).sized([len(d) for d in of]).shuffle().pack(length, how="fit", window=32)


def steps(build: Any, ranks: int, states: Any = None, most: int = 10**6) -> tuple[list[Any], list[Any]]:
    """The rows of each global step, and what each rank saves then."""
    delivered, saved = [], []
    for rank in range(ranks):
        loader = build(rank, ranks)
        if states is not None:
            loader.load_state_dict(states[0])
        batches = list(islice(iter(loader), most))
        assert all(inputs["input"].shape == labels.shape for inputs, labels in batches)
        delivered.append([inputs["input"].tolist() for inputs, _ in batches])
        saved.append(loader.state_dict())
        loader.close()
    return [[row for batch in step for row in batch] for step in zip(*delivered, strict=True)], saved


def plain(rank: int, ranks: int, workers: int = 0) -> TitanBatches:
    return TitanBatches(
        rows(None, LENGTH), rows=8 // ranks, dp_rank=rank, dp_world_size=ranks, seed=1, workers=workers, length=LENGTH,
        repeat=False,
    )  # fmt: skip


def test_finite_data_ends_on_all_ranks_at_one_step_and_goes_on_at_another_degree() -> None:
    whole, _ = steps(plain, 1)
    assert steps(plain, 4)[0] == whole
    first, saved = steps(plain, 2, most=5)
    assert all(state == saved[0] for state in saved)
    rest, _ = steps(plain, 4, saved)
    assert first + rest == whole
    assert steps(lambda rank, ranks: plain(rank, ranks, workers=1), 1)[0] == whole


def test_repeated_data_of_less_than_a_step_is_refused() -> None:
    """It would be read for ever, without a batch."""
    few = Pipe.of([np.full(8, 1, np.int32)]).sized([8]).pack(LENGTH, how="fit", window=32)
    loader = TitanBatches(
        few, rows=2, dp_rank=0, dp_world_size=2, seed=1, workers=0, length=LENGTH, repeat=True
    )  # fmt: skip
    with pytest.raises(BadOption, match="fewer rows than one step of all ranks"):
        next(iter(loader))
    loader.close()


def test_data_that_is_repeated_goes_on_from_the_end_of_an_epoch() -> None:
    def make() -> TitanBatches:
        return TitanBatches(
            rows(None, LENGTH), rows=8, dp_rank=0, dp_world_size=1, seed=1, workers=0, length=LENGTH, repeat=True
        )

    many = len(steps(plain, 1)[0])
    first, again = make(), make()
    batches = iter(first)
    for _ in range(many):
        next(batches)
    again.load_state_dict(first.state_dict())
    assert torch.equal(next(iter(again))[1], next(batches)[1])
    first.close()
    again.close()


def test_data_that_is_repeated_has_no_end() -> None:
    loader = TitanBatches(
        rows(None, LENGTH), rows=64, dp_rank=0, dp_world_size=1, seed=1, workers=0, length=LENGTH, repeat=True
    )
    assert len(list(islice(iter(loader), 12))) == 12


def test_labels_never_cross_documents() -> None:
    (row,) = Pipe.of([[1, 2, 3], [4, 5]]).pack(7)
    made = shifted(row)
    assert made["labels"].tolist() == [2, 3, -100, 5, -100, -100, -100]
    flat = list(Pipe.of([[1, 2, 3], [4, 5]]).pack(5, how="fit", form="flat"))
    one = flattened(flat)
    assert one["input_ids"].tolist() == [[1, 2, 3, 4, 5]]
    assert one["labels"].tolist() == [[-100, 2, 3, -100, 5]]
    assert one["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert one["cu_seq_lens_q"].tolist() == [0, 3, 5]
    assert one["max_length_q"] == 3


def test_without_torchtitan_the_error_says_so_in_one_line() -> None:
    try:
        import torchtitan  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingExtra, match="torchtitan is not installed"):
            titan_dataloader(rows)


@pytest.mark.integrations
def test_it_is_one_of_torchtitans_own_loaders() -> None:
    pytest.importorskip("torchtitan")
    made = titan_dataloader(rows)
    assert not made.__abstractmethods__
    config = made.Config(workers=1, seed=1)

    def build(rank: int, ranks: int) -> Any:
        return config.build(
            dp_world_size=ranks, dp_rank=rank, tokenizer=None, seq_len=LENGTH, local_batch_size=8 // ranks,
            snapshot_every_n_steps=1,
        )  # fmt: skip

    assert isinstance(build(0, 1), torch.distributed.checkpoint.stateful.Stateful)
    first, saved = steps(build, 2, most=5)
    rest, _ = steps(build, 1, saved)
    assert first + rest == steps(plain, 1)[0]
