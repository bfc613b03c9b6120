"""Packing: which pieces of which documents make up each row of a fixed number of tokens. Integers in, integers out.

    TokenBlocks all documents end to end, cut every `size` tokens; a document may cross a border. Random access: any
                block is found among the ends of the documents in O(log documents), and nothing is planned.
    best_fit    whole documents (or pieces of those that are too long) laid into rows so that little room is left:
                the longest first, each into the fullest row that has room for it. A pure function of the lengths.

Neither knows of workers or ranks, so rows do not depend on them. To pack a stream, cut it into windows and pack each by
itself (`Packing.window_rows`): a window is planned anew from its lengths whenever it is needed.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.plan.order import permutation

How = Literal["split", "fit"]
Long = Literal["split", "truncate", "drop", "error"]
WINDOW = {"split": 1024, "fit": 4096}
"""Documents that are packed together. Where they are cut, only the last row of a window has room left. Where they stay
whole, 99.9 % of rows of 4096 tokens is filled by lognormal lengths, 99.5 % by uniform ones; with 1024 documents it
would be 99.6 and 98.5 %, which is more padding than others have."""


class Piece(NamedTuple):
    """Some tokens of a document: `tokens` of them from `offset` on."""

    document: int
    offset: int
    tokens: int


Row = tuple[Piece, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TokenBlocks:
    """Rows of `size` tokens; each shows `overlap` tokens of the next one too, for labels that are shifted by one."""

    ends: Sequence[int] | NDArray[np.int64]
    """The first token after each document, counted over all documents. It may be a view of a file: a row looks at
    O(log documents) of them."""
    size: int
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.overlap <= self.size:
            raise BadOption(
                f"size={self.size}, overlap={self.overlap}: give a size of at least 1 that covers the overlap"
            )

    @property
    def tokens(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def count(self) -> int:
        """Whole rows. What is left is shorter than a row: see `rest`."""
        return max(0, self.tokens - self.overlap) // self.size

    @property
    def rest(self) -> Row:
        """The tokens behind the last whole row."""
        return self._pieces(self.count * self.size, self.tokens)

    @property
    def unseen(self) -> int:
        """How many tokens no whole row shows: only where there are some does the rest make a row."""
        return self.tokens - self.count * self.size - (self.overlap if self.count else 0)

    def row(self, number: int) -> Row:
        if not 0 <= number < self.count:
            raise IndexError(f"row {number} is outside {self.count} rows")
        return self._pieces(number * self.size, (number + 1) * self.size + self.overlap)

    def _pieces(self, start: int, stop: int) -> Row:
        found = []
        document = bisect_right(self.ends, start)
        while start < stop:
            first = int(self.ends[document - 1]) if document else 0
            until = min(stop, int(self.ends[document]))
            if until > start:  # an empty document has no piece
                found.append(Piece(document, start - first, until - start))
            start, document = until, document + 1
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows, and what was left out of them because the policy for long documents, or `drop_tail`, said so."""

    rows: tuple[Row, ...]
    dropped: int = 0
    """Documents that were left out."""
    truncated: int = 0
    """Tokens that were left out, without those of dropped documents."""

    def __len__(self) -> int:
        return len(self.rows)


def best_fit(lengths: Sequence[int], size: int, long: Long = "split") -> Packed:
    """Lay documents into rows of `size` tokens. Those that are longer are cut into pieces, truncated, dropped or an
    error, as `long` says. Among equally long pieces the earlier comes first, among equally full rows the older."""
    if size < 1:
        raise BadOption(f"size={size}: give a row at least 1 token")
    pieces, dropped, truncated = _pieces(lengths, size, long)
    pieces.sort(key=lambda piece: -piece.tokens)  # stable: ties stay in order of document and offset
    rows: list[list[Piece]] = []
    open_rows: list[list[int]] = [[] for _ in range(size + 1)]
    """Rows by the room that they have, the oldest last."""
    rooms = 0
    """Bit n is set where some row has room for exactly n tokens: so the fullest row that fits is one look away."""
    for piece in pieces:
        fitting = rooms >> piece.tokens
        if fitting:
            room = piece.tokens + (fitting & -fitting).bit_length() - 1
            number = min(open_rows[room])
            open_rows[room].remove(number)
            if not open_rows[room]:
                rooms &= ~(1 << room)
        else:
            room, number = size, len(rows)
            rows.append([])
        rows[number].append(piece)
        if left := room - piece.tokens:
            open_rows[left].append(number)
            rooms |= 1 << left
    return Packed(tuple(tuple(row) for row in rows), dropped, truncated)


def _pieces(lengths: Sequence[int], size: int, long: Long) -> tuple[list[Piece], int, int]:
    """Pieces of at most `size` tokens, how many documents were dropped, and how many tokens truncated."""
    if long not in get_args(Long):
        raise BadOption(f"long={long!r}: choose one of {', '.join(map(repr, get_args(Long)))}")
    pieces: list[Piece] = []
    dropped = truncated = 0
    for document, length in enumerate(lengths):
        if length <= size:
            pieces += [Piece(document, 0, length)] if length else []
        elif long == "split":
            pieces += [Piece(document, at, min(size, length - at)) for at in range(0, length, size)]
        elif long == "truncate":
            pieces.append(Piece(document, 0, size))
            truncated += length - size
        elif long == "drop":
            dropped += 1
        else:
            raise too_long(document, length, size)
    return pieces, dropped, truncated


def too_long(document: int, length: int, size: int) -> BadOption:
    """The error for a document that is longer than a row, with `long="error"`."""
    return BadOption(
        f"document {document} has {length} tokens, a row {size}: say long='split', 'truncate' or 'drop', or make rows "
        "longer"
    )


@dataclass(frozen=True, slots=True)
class Packing:
    """How documents become rows. (Its repr is part of the fingerprint of a pipe: names here must not change.)"""

    size: int
    how: How = "split"
    long: Long = "split"
    overlap: int = 0
    """Tokens of the next row that a row shows too, for labels that are shifted by one; only where documents are split
    wherever a row ends."""
    drop_tail: bool = False
    """The last row of all is left out if it is not full. (Rows at the ends of other windows are filled up.)"""
    window: int = WINDOW["split"]

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise BadOption(f"how={self.how!r}: choose 'split' (documents cross rows) or 'fit' (they do not)")
        if self.long not in get_args(Long):
            raise BadOption(f"long={self.long!r}: choose one of {', '.join(map(repr, get_args(Long)))}")
        if self.how == "split" and self.long != "split":
            raise BadOption(f"long={self.long!r} is for how='fit': with 'split' every document is cut where a row ends")
        if self.how == "fit" and self.overlap:
            raise BadOption("overlap= is for how='split': rows that hold whole documents have no next token")
        for name, value in (("length", self.size), ("window", self.window)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadOption(f"pack({name}=): give a whole number of at least 1, not {value!r}")
        TokenBlocks((), self.size, self.overlap)

    def window_rows(self, lengths: Sequence[int], key: int, last: bool = True) -> Packed:
        """The rows of one window of documents. Where documents stay whole, the fullest rows are made first, and `key`
        mixes them. `last` says that no window comes behind it."""
        if self.how == "fit":
            made = best_fit(lengths, self.size, self.long)
            return replace(made, rows=tuple(made.rows[i] for i in permutation(len(made), key)))
        blocks = TokenBlocks(np.cumsum(lengths, dtype=np.int64).tolist(), self.size, self.overlap)
        rows = [blocks.row(number) for number in range(blocks.count)]
        dropped = self.drop_tail and last
        if blocks.unseen and not dropped:
            rows.append(blocks.rest)
        return Packed(tuple(rows), truncated=blocks.unseen if dropped else 0)
