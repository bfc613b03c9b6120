"""The 28 worked examples of the text path, each under its number.

Some are what another library does. Where ours differs on purpose, the example says what is the same: the counts of
every period, the rows that are needed, the sources that must not vanish.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption
from headrace.ops.text.balance import Balance
from headrace.ops.text.labels import flattened
from headrace.ops.text.rows import Document, RowLayout
from headrace.plan.balance import StepPlan, cut_by_tokens, deal_by_cost
from headrace.plan.mixture import Ends, Mixture, WeightStage, schedule, whole_weights
from headrace.plan.packing import Piece, TokenBlocks, best_fit
from headrace.plan.seed import key

D = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]
ENDED = [[*document, 0] for document in D]
EXAMPLES: dict[int, Callable[[], None]] = {}


def example(*numbers: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(check: Callable[[], None]) -> Callable[[], None]:
        EXAMPLES.update(dict.fromkeys(numbers, check))
        return check

    return keep


def rows(pipe: Pipe[Any], name: str = "tokens") -> list[list[int]]:
    return [row[name].tolist() for row in Loader(pipe)]


def split(**options: Any) -> Pipe[Any]:
    return Pipe.of(ENDED).pack(4, form="flat", **options)


def blocks(sizes: list[int], length: int, overlap: int = 0) -> TokenBlocks:
    return TokenBlocks(np.cumsum(sizes).tolist(), length, overlap)


def begins(made: TokenBlocks) -> list[tuple[int, int]]:
    """Document and offset where each row begins, and where what is left does."""
    every = [*(made.row(number) for number in range(made.count)), made.rest]
    return [(row[0].document, row[0].offset) for row in every if row]


def order(lengths: tuple[int, ...], weights: tuple[int, ...], ends: Ends) -> list[tuple[int, int]]:
    """Sources and their rows, as they are before blocks are mixed."""
    made = Mixture(lengths, (WeightStage(0, weights),), 7, ends, block=1)
    drawn = made(np.arange(made.length))
    return [(s, n % lengths[s]) for s, n in zip(drawn.source.tolist(), drawn.number.tolist(), strict=True)]


def sources(weights: tuple[int, ...], count: int) -> list[int]:
    return schedule(weights, (0,) * len(weights)).at(np.arange(count)).tolist()


@example(1)
def split_without_an_end_token() -> None:
    assert rows(Pipe.of(D).pack(4, form="flat")) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


@example(2)
def split_with_an_end_token() -> None:
    assert rows(split()) == [[1, 2, 3, 0], [4, 5, 0, 6], [7, 8, 9, 0], [10, 0]]
    assert rows(Pipe.of(D).pack(4, form="flat", separator=0)) == rows(split())


@example(3)
def split_with_an_overlap() -> None:
    assert rows(split(overlap=1)) == [[1, 2, 3, 0, 4], [4, 5, 0, 6, 7], [7, 8, 9, 0, 10], [10, 0]]


@example(4)
def document_ids() -> None:
    made = blocks([len(document) for document in ENDED], 4)
    ids = [[piece.document for piece in made.row(number) for _ in range(piece.tokens)] for number in range(3)]
    assert ids == [[0, 0, 0, 0], [1, 1, 1, 2], [2, 2, 2, 2]]
    assert rows(Pipe.of(ENDED).pack(4), "documents")[:3] == [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 1, 1]]  # in the row


@example(5)
def positions() -> None:
    assert rows(split(), "positions")[:3] == [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 2, 3]]
    assert rows(split(positions="document"), "positions")[2] == [1, 2, 3, 4]


@example(6)
def boundaries() -> None:
    row = list(Loader(split()))[1]
    assert (row["cu_seqlens"].tolist(), row["max_seqlen"]) == ([0, 3, 4], 3)


@example(7)
def tails() -> None:
    assert len(rows(split(drop_tail=True))) == 3
    padded = Pipe.of(ENDED).pack(4, pad=99)
    assert (rows(padded)[3], rows(padded, "mask")[3]) == ([10, 0, 99, 99], [True, True, False, False])
    assert rows(split())[3] == [10, 0]
    assert rows(Pipe.of(ENDED).cycle(2).pack(4, form="flat"))[3] == [10, 0, 1, 2]  # carried into the next epoch


@example(8, 9)
def megatrons_sample_index() -> None:
    made = blocks([3, 2, 4, 1], 4, 1)
    assert made.count == 2
    assert begins(made) == [(0, 0), (1, 1), (2, 3)]
    assert made.rest[-1] == Piece(3, 0, 1)


@example(10)
def megatrons_sample_index_in_another_order() -> None:
    assert begins(blocks([5, 5], 3)) == [(0, 0), (0, 3), (1, 1), (1, 4)]


@example(11)
def best_fit_decreasing() -> None:
    made = best_fit([3, 5, 2, 4, 1, 6], 8).rows
    assert [{piece.document: piece.tokens for piece in row} for row in made] == [
        {5: 6, 2: 2},
        {1: 5, 0: 3},
        {3: 4, 4: 1},
    ]


@example(12)
def grains_first_fit() -> None:
    """Ours has no first fit: as many rows, and the same ids in a row of the same documents."""
    assert len(best_fit([3, 5, 2, 4, 1, 6], 8).rows) == 3
    documents = [Document(number, np.ones(4, np.int64), {}) for number in range(3)]
    row = RowLayout().row((Piece(0, 0, 2), Piece(1, 0, 4), Piece(2, 0, 1)), 8, documents)
    assert row["documents"].tolist() == [1, 1, 2, 2, 2, 2, 3, 0]


@example(13)
def grains_concat_and_split() -> None:
    of = [[9] * n for n in (14, 7, 5, 2, 3)]
    assert rows(Pipe.of(of).pack(8), "documents") == [
        [1] * 8, [1] * 6 + [2] * 2, [1] * 5 + [2] * 3, [1, 1, 2, 2, 3, 3, 3, 0]
    ]  # fmt: skip


@example(14)
def trls_packing() -> None:
    long = Pipe.of([[1, 2, 3, 4, 5], [6, 7], [8, 9, 10], [11]])
    truncated = rows(long.pack(4, how="fit", long="truncate", form="flat"))
    assert sorted(truncated) == sorted([[1, 2, 3, 4], [8, 9, 10, 11], [6, 7]])
    assert sorted(rows(long.pack(4, how="fit", form="flat"))) == sorted([[1, 2, 3, 4], [8, 9, 10, 5], [6, 7, 11]])


@example(15)
def round_robin_of_three() -> None:
    """`first` is that of HF's iterable datasets: it ends at once after the last row of a source."""

    def numbers(ends: Ends) -> list[int]:
        return [10 * source + row for source, row in order((3, 4, 5), (1, 1, 1), ends)]

    assert numbers("first") == [0, 10, 20, 1, 11, 21, 2]
    assert numbers("all") == [0, 10, 20, 1, 11, 21, 2, 12, 22, 0, 13, 23, 1, 10, 24]
    assert numbers("drop") == [0, 10, 20, 1, 11, 21, 2, 12, 22, 13, 23, 24]


@example(16)
def megatrons_blend() -> None:
    """The second of Megatron's has its 1 elsewhere in the period; each has as many."""
    assert sources((2, 1, 1), 8) == [0, 1, 2, 0, 0, 1, 2, 0]
    assert [sources((3, 1), 8)[at : at + 4].count(1) for at in (0, 4)] == [1, 1]


@example(17)
def levanters_rounding() -> None:
    """A source of which a block of 100 has none is not lost: it has its one in a thousand."""
    weights = whole_weights([0.5, 0.3, 0.199, 0.001])
    assert weights == (500, 300, 199, 1)
    assert np.bincount(sources(weights, 1000)).tolist() == [500, 300, 199, 1]
    assert sorted(np.bincount(sources((1, 1, 1), 100)).tolist()) == [33, 33, 34]
    with pytest.raises(BadOption, match="too small beside the others"):
        whole_weights([1.0, 1e-9])


@example(18)
def grains_weights() -> None:
    """In another order than Grain's, but each period holds the same samples."""
    theirs = [(0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1), (0, 3), (2, 1)]
    ours = order((10, 10, 10), (2, 1, 1), "first")[:8]
    assert [sorted(ours[at : at + 4]) for at in (0, 4)] == [sorted(theirs[at : at + 4]) for at in (0, 4)]
    assert sorted(sources((3, 1), 4)) == [0, 0, 0, 1]


@example(19)
def tijdemans_rule() -> None:
    assert sources((5, 3, 2), 10) == [0, 1, 0, 2, 0, 1, 0, 2, 1, 0]
    assert sources((7, 2, 1), 10) == [0, 0, 1, 0, 0, 2, 0, 0, 1, 0]


@example(20)
def ends_of_sources() -> None:
    assert sources((2, 1, 1), 4) == [0, 1, 2, 0]
    assert len(order((3, 4, 5), (2, 1, 1), "first")) == 5
    assert len(order((3, 4, 5), (2, 1, 1), "all")) == 19
    drawn = sources((2, 1, 1), 8)
    assert [drawn[:n].count(0) for n in (7, 8)] == [3, 4]  # "only when a row is missing" would be after 7


@example(21)
def sources_that_are_left_out() -> None:
    made = Mixture((3, 4, 5), (WeightStage(0, (2, 1, 1)),), 7, "drop")
    begun = [(stage.start, stage.weights) for stage in made._stages]
    assert begun == [(0, (2, 1, 1)), (5, (0, 1, 1)), (10, (0, 0, 1))]
    drawn = order((3, 4, 5), (2, 1, 1), "drop")
    assert sorted(drawn) == [(s, n) for s, size in enumerate((3, 4, 5)) for n in range(size)]


@example(22)
def fairseqs_budget() -> None:
    assert [list(step) for step in cut_by_tokens([3, 3, 4, 5, 5, 9, 2], 12, padded=True)] == [
        [0, 1, 2],
        [3, 4],
        [5],
        [6],
    ]


@example(23)
def a_global_budget() -> None:
    steps = [list(step) for step in cut_by_tokens([5, 3, 8, 2, 2, 6, 4, 1], 16)]
    assert steps == [[0, 1, 2], [3, 4, 5, 6, 7]]


@example(24)
def a_step_dealt_by_cost() -> None:
    assert deal_by_cost([25, 9, 64], 2) == [[2], [0, 1]]
    assert deal_by_cost([4, 4, 36, 16, 1], 2) == [[2], [0, 1, 3, 4]]


@example(25)
def quadratic_lengths() -> None:
    documents = Pipe.of([1, 2, 3]).sized([5, 10, 20])
    indexed = documents.indexed(0, 0)
    assert indexed is not None
    op: Balance[Any] = Balance(3, False, StepPlan(rows=3), lambda lengths: lengths + lengths * lengths / 20)
    assert op.steps(indexed, key(0)).costs([0, 1, 2]) == [6.25, 15, 40]


@example(26)
def flattened_rows() -> None:
    one = flattened(list(Pipe.of([[1, 2, 3], [4, 5]]).pack(5, how="fit", form="flat")))
    assert one["input_ids"].tolist() == [[1, 2, 3, 4, 5]]
    assert one["labels"].tolist() == [[-100, 2, 3, -100, 5]]
    assert one["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert (one["cu_seq_lens_q"].tolist(), one["max_length_q"]) == ([0, 3, 5], 3)


@example(27)
def an_empty_document() -> None:
    (row,) = Loader(Pipe.of([[], [1, 2], []]).pack(4, form="flat"))
    assert (row["tokens"].tolist(), row["cu_seqlens"].tolist()) == ([1, 2], [0, 2])
    assert best_fit([0, 2, 0], 4).dropped == 0


@example(28)
def a_document_longer_than_a_row() -> None:
    assert [piece.tokens for row in best_fit([9], 4, "split").rows for piece in row] == [4, 4, 1]
    assert best_fit([9], 4, "truncate").truncated == 5
    assert best_fit([9], 4, "drop").dropped == 1
    with pytest.raises(BadOption, match="document 0 has 9 tokens"):
        best_fit([9], 4, "error")


@pytest.mark.parametrize("number", range(1, 29))
def test_a_worked_example_of_the_specification(number: int) -> None:
    EXAMPLES[number]()
