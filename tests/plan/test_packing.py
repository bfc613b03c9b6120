"""Packing: rows worked out by hand, and laws over random lengths."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import BadOption
from headrace.plan.packing import Long, Packing, Piece, TokenBlocks, best_fit

DOCUMENTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]
WITH_END = [[*document, 0] for document in DOCUMENTS]
lengths = st.lists(st.integers(0, 30), max_size=60)


def blocks(documents: list[list[int]], size: int, overlap: int = 0) -> TokenBlocks:
    return TokenBlocks(np.cumsum([len(d) for d in documents], dtype=np.int64), size, overlap)


def tokens(documents: list[list[int]], row: tuple[Piece, ...]) -> list[int]:
    return [token for piece in row for token in documents[piece.document][piece.offset :][: piece.tokens]]


@pytest.mark.parametrize(
    ("documents", "overlap", "rows", "rest"),
    [
        (DOCUMENTS, 0, [[1, 2, 3, 4], [5, 6, 7, 8]], [9, 10]),
        (WITH_END, 0, [[1, 2, 3, 0], [4, 5, 0, 6], [7, 8, 9, 0]], [10, 0]),
        (WITH_END, 1, [[1, 2, 3, 0, 4], [4, 5, 0, 6, 7], [7, 8, 9, 0, 10]], [10, 0]),
    ],
)
def test_blocks_as_they_are_worked_out_by_hand(
    documents: list[list[int]], overlap: int, rows: list[list[int]], rest: list[int]
) -> None:
    made = blocks(documents, 4, overlap)
    assert [tokens(documents, made.row(b)) for b in range(made.count)] == rows
    assert tokens(documents, made.rest) == rest


def test_pieces_say_their_document_and_where_they_begin_in_it() -> None:
    assert blocks(WITH_END, 4).row(1) == (Piece(1, 0, 3), Piece(2, 0, 1))
    assert blocks(WITH_END, 4).row(2) == (Piece(2, 1, 4),)


@given(lengths, st.integers(1, 12), st.integers(0, 1))
def test_blocks_hold_every_token_once_in_order(sizes: list[int], size: int, overlap: int) -> None:
    documents = [[100 * d + t for t in range(n)] for d, n in enumerate(sizes)]
    made = blocks(documents, size, overlap)
    rows = [tokens(documents, made.row(b)) for b in range(made.count)]
    assert all(len(row) == size + overlap for row in rows)
    assert [t for row in rows for t in row[:size]] + tokens(documents, made.rest) == [
        t for document in documents for t in document
    ]
    assert all(row[size:] == after[:overlap] for row, after in pairwise(rows))
    assert sum(piece.tokens for piece in made.rest) < size + overlap or not overlap


def test_a_trillion_tokens_are_found_at_once() -> None:
    ends = np.arange(1, 10**6 + 1, dtype=np.int64) * 10**6
    assert TokenBlocks(ends, 4096).row(10**12 // 4096 - 1)[0].document == 999_999


def test_best_fit_as_it_is_worked_out_by_hand() -> None:
    packed = best_fit([3, 5, 2, 4, 1, 6], 8)
    assert [[(p.document, p.tokens) for p in row] for row in packed.rows] == [
        [(5, 6), (2, 2)],
        [(1, 5), (0, 3)],
        [(3, 4), (4, 1)],
    ]
    split = best_fit([5, 2, 3, 1], 4)
    assert [[(p.document, p.offset, p.tokens) for p in row] for row in split.rows] == [
        [(0, 0, 4)], [(2, 0, 3), (0, 4, 1)], [(1, 0, 2), (3, 0, 1)]
    ]  # fmt: skip


def slowly(sizes: list[int], size: int) -> list[list[int]]:
    """The rule as it is stated: the longest first, each into the fullest row with room, the oldest of those."""
    rows: list[list[int]] = []
    for length in sorted((n for n in sizes if n), reverse=True):
        fitting = [row for row in rows if sum(row) + length <= size]
        if fitting:
            max(fitting, key=sum).append(length)
        else:
            rows.append([length])
    return rows


@given(lengths, st.integers(30, 50))
def test_best_fit_follows_its_rule(sizes: list[int], size: int) -> None:
    packed = best_fit(sizes, size)
    assert [[piece.tokens for piece in row] for row in packed.rows] == slowly(sizes, size)


@given(lengths, st.integers(1, 40), st.sampled_from(["split", "truncate", "drop"]))
def test_every_token_is_in_one_row_or_counted(sizes: list[int], size: int, long: Long) -> None:
    packed = best_fit(sizes, size, long)
    assert all(0 < sum(piece.tokens for piece in row) <= size for row in packed.rows)
    seen = [(p.document, p.offset + t) for row in packed.rows for p in row for t in range(p.tokens)]
    assert len(seen) == len(set(seen))
    expected = {"split": sizes, "truncate": [min(n, size) for n in sizes], "drop": [n * (n <= size) for n in sizes]}[
        long
    ]
    assert sorted(seen) == [(d, t) for d, n in enumerate(expected) for t in range(n)]
    assert packed.dropped == sum(n > size for n in sizes) * (long == "drop")
    assert packed.truncated == sum(max(0, n - size) for n in sizes) * (long == "truncate")


@given(lengths, st.integers(1, 12), st.integers(0, 12), st.booleans(), st.booleans())
@example([1], 4, 1, False, True)  # alone in its window, and no longer than what rows share
def test_every_token_of_a_window_that_is_cut_is_in_a_row_or_counted(
    sizes: list[int], size: int, overlap: int, drop_tail: bool, last: bool
) -> None:
    made = Packing(size, overlap=min(overlap, size), drop_tail=drop_tail).window_rows(sizes, 0, last)
    seen = {(piece.document, piece.offset + t) for row in made.rows for piece in row for t in range(piece.tokens)}
    assert len(seen) + made.truncated == sum(sizes)
    assert made.dropped == 0
    assert not made.truncated or (drop_tail and last)
    assert all(made.rows)


def test_a_window_of_usual_lengths_is_nearly_full() -> None:
    sizes = np.random.default_rng(3).lognormal(6, 1, 4096).astype(int).clip(1).tolist()
    packed = best_fit(sizes, 4096)
    assert sum(sizes) / (4096 * len(packed.rows)) > 0.998


def test_wrong_options_are_refused() -> None:
    with pytest.raises(BadOption, match="document 1 has 9 tokens, a row 8"):
        best_fit([3, 9], 8, "error")
    with pytest.raises(BadOption, match="choose one of"):
        best_fit([1], 8, "cut")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="at least 1 token"):
        best_fit([1], 0)
    with pytest.raises(BadOption, match="covers the overlap"):
        TokenBlocks(np.array([5]), 2, 3)
    with pytest.raises(IndexError, match="outside 2 rows"):
        blocks(DOCUMENTS, 4).row(2)
