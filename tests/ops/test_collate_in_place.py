"""Samples are written into their place in the batch as they are made; ragged ones by a declared choice."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.memory.rows import WORTH, Rows
from headrace.op import place

WIDE = WORTH // 4


class Wide:
    """Samples that are worth a row, beside small ones; the sample at `odd` has another shape."""

    def __init__(self, odd: int = -1) -> None:
        self.odd = odd

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"wide": np.full(WIDE + (i == self.odd), i, np.float32), "small": np.array([i]), "i": i}


def copies(pipe: Pipe[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many arrays were copied when the batches were there."""
    copied = 0
    real = place.grown

    def counted(arrays: Any) -> Any:
        nonlocal copied
        copied += arrays[0].nbytes >= WORTH
        return real(arrays)

    monkeypatch.setattr(place, "grown", counted, raising=False)
    with Loader(pipe) as loader:
        assert [batch["wide"][:, 0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    return copied


def test_a_sample_is_copied_once_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert copies(Pipe.of(Wide()).batch(4).collate(), monkeypatch) == 0
    assert copies(Pipe.of(Wide()).batch(4).map(list).collate(), monkeypatch) == 3  # somebody sees the list of samples


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("torch", [False, True])
def test_batches_are_the_same_as_without_rows(workers: int, torch: bool) -> None:
    def as_tensors(sample: Any) -> Any:
        import torch

        return {**sample, "wide": torch.from_numpy(sample["wide"]), "half": torch.ones(WORTH, dtype=torch.bfloat16)}

    pipe = Pipe.of(Wide())
    if torch:
        pytest.importorskip("torch")
        pipe = pipe.map(as_tensors)
    with Loader(pipe.batch(4).collate(), workers=workers) as loader:
        for number, batch in enumerate(loader):
            ids = list(range(4 * number, min(4 * number + 4, 10)))
            assert batch["i"].tolist() == ids
            assert batch["small"].tolist() == [[i] for i in ids]
            assert batch["wide"].tolist() == [[float(i)] * WIDE for i in ids]
            assert type(batch["wide"]).__name__ == ("Tensor" if torch else "ndarray")


def test_a_sample_of_another_shape_is_an_error_that_names_it_and_harms_no_other() -> None:
    with Loader(Pipe.of(Wide(odd=2)).batch(4).collate()) as loader, pytest.raises(ValueError, match="sample 2 has"):
        next(iter(loader))
    with Loader(Pipe.of(Wide(odd=2)).batch(4).collate(pad=-1)) as loader:
        batch = next(iter(loader))
    assert batch["wide"].shape == (4, WIDE + 1)
    assert batch["wide"][:, -1].tolist() == [-1, -1, 2, -1]


def test_a_sample_that_fails_leaves_its_row_to_the_next() -> None:
    def no_three(sample: Any) -> Any:
        if sample["i"] == 1:
            raise ValueError("bad")
        return sample

    with Loader(Pipe.of(Wide()).map(no_three).batch(4).collate(), on_error="skip") as loader:
        assert [batch["wide"][:, 0].tolist() for batch in loader] == [[0, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_only_the_last_op_before_the_batch_is_given_rows() -> None:
    kept: list[Any] = []

    def makes(i: int) -> Any:
        made = place.row((WORTH,), np.uint8)
        made[:] = i
        return made

    def keeps(array: Any) -> Any:
        kept.append(array)
        return array

    with Loader(Pipe.of(range(8)).map(makes).map(keeps).batch(2).collate(), workers=0) as loader:
        batches = [batch[:, 0].tolist() for batch in loader]
    assert batches == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [array[0] for array in kept] == list(range(8))  # what an op before keeps is its own
    assert not np.shares_memory(kept[0], kept[1])


def test_samples_that_are_looked_up_get_no_rows() -> None:
    stored = np.zeros((2, 10**8), np.uint8)  # no processor makes 100 MB in the time of a look-up
    rows = Rows(2, np.empty, 0)
    get = rows.into_rows(lambda i: stored[i])
    assert np.shares_memory(get(0), stored)
    assert np.shares_memory(get(1), stored)
    assert rows.empty


def test_rows_are_whole_only_when_all_are_there_and_in_order() -> None:
    rows = Rows(3, np.empty, 0)
    get = rows.into_rows(lambda i: np.full(WORTH, i, np.uint8))
    made = [get(i) for i in range(3)]
    assert rows.as_column(made)[:, 0].tolist() == [0, 1, 2]
    assert rows.as_column(made[:2])[:, 0].tolist() == [0, 1]
    assert rows.as_column([made[0], made[2]]) is None
    assert rows.as_column([made[1], made[0]]) is None


# --- ragged ---------------------------------------------------------------------------------------------------------


def collated(samples: list[Any], **options: Any) -> Any:
    (batch,) = list(Pipe.of(samples).batch(len(samples)).collate(**options))
    return batch


def test_unlike_arrays_and_lists_of_numbers_are_padded_at_their_ends() -> None:
    batch = collated(
        [{"ids": [1, 2, 3], "x": np.ones((1, 2), np.int8)}, {"ids": [], "x": np.ones((2, 1), np.int8)}], pad=0
    )
    assert batch["ids"].tolist() == [[1, 2, 3], [0, 0, 0]]
    assert batch["x"].tolist() == [[[1, 1], [0, 0]], [[1, 0], [1, 0]]]
    assert batch["x"].dtype == np.int8
    assert collated([(1, "a"), (2, "b")], pad=0)[1] == ["a", "b"]  # only arrays are padded


def test_unlike_arrays_are_padded_in_every_kind_of_container() -> None:
    a, b = np.ones(1), np.ones(2)
    want = [[1, 0], [1, 1]]
    assert collated([Pair(a, 1), Pair(b, 2)], pad=0).left.tolist() == want
    assert collated([Doubled(a), Doubled(b)], pad=0).twice.tolist() == [[2, 0], [2, 2]]
    assert collated([[{"x": a}], [{"x": b}]], pad=0)[0]["x"].tolist() == want
    assert collated([[np.int64(1)], np.array([1, 1])], pad=0).tolist() == want  # a list of numbers beside an array


def test_unlike_tensors_are_padded_or_nested() -> None:
    torch = pytest.importorskip("torch")
    samples = [torch.ones(2), torch.ones(3)]
    assert collated(samples, pad=7).tolist() == [[1, 1, 7], [1, 1, 1]]
    nested = collated([{"x": sample, "i": i} for i, sample in enumerate(samples)], pad="nested")
    assert nested["x"].is_nested
    assert [part.tolist() for part in nested["x"].unbind()] == [[1, 1], [1, 1, 1]]
    assert nested["i"].tolist() == [0, 1]
    with Loader(Pipe.of(samples).batch(2).collate(pad="nested"), workers=1) as loader:
        (batch,) = loader
    assert [part.tolist() for part in batch.unbind()] == [[1, 1], [1, 1, 1]]


def test_what_cannot_be_padded_is_an_error() -> None:
    torch = pytest.importorskip("torch")
    of_type = [
        *((np.uint8, pad) for pad in (-1, 300, 0.5, math.nan)),
        (np.int64, math.nan),
        (np.bool_, -1),
    ]
    for dtype, pad in of_type:
        for make in (
            lambda n, dtype=dtype: np.zeros(n, dtype),
            lambda n, dtype=dtype: torch.tensor(np.zeros(n, dtype)),
        ):
            with pytest.raises(ValueError, match=r"cannot be filled up with pad=.* does not hold"):
                collated([make(1), make(2)], pad=pad)
    with pytest.raises(ValueError, match="int64 cannot be filled up with pad=nan"):
        collated([[1, 2], [3]], pad=math.nan)
    with pytest.raises(ValueError, match="cannot pad"):
        collated([np.zeros(1), np.zeros((1, 1))], pad=0)
    for pad in ("zero", True, [0]):
        with pytest.raises(BadOption, match="takes a number or 'nested'"):
            Pipe.of([]).batch(1).collate(pad=pad)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="not both"):
        Pipe.of([]).batch(1).collate(list, pad=0)  # type: ignore[call-overload]


def test_masks_stay_when_arrays_are_filled_up_or_only_some_have_one() -> None:
    masked = np.ma.masked_array([1, 2], [True, False])
    filled = collated([masked, np.ma.masked_array([3, 4, 5], [False, False, True])], pad=0)
    assert filled.tolist() == [[None, 2, 0], [3, 4, None]]
    assert collated([np.array([1, 2]), masked]).tolist() == [[1, 2], [None, 2]]


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Doubled:
    x: Any
    twice: Any = field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.x


def test_dataclasses_with_fields_that_they_fill_themselves_are_collated() -> None:
    batch = collated([Doubled(1), Doubled(2)])
    assert (batch.x.tolist(), batch.twice.tolist()) == ([1, 2], [2, 4])


def test_large_tensors_of_which_only_the_second_has_a_gradient_are_stacked() -> None:
    torch = pytest.importorskip("torch")
    batch = collated([torch.zeros(4000), torch.ones(4000, requires_grad=True)])
    assert batch.requires_grad
    assert batch.sum() == 4000
