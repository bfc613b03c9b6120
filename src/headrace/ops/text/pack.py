"""Pack: documents as rows of a fixed number of tokens. The rows depend on neither workers nor ranks.

    PackRows      where the lengths of all documents are known (stored tokens): any row by its number, nothing is read
                  that is not in it. Documents end to end in the order they are stored need no plan at all; in any other
                  case the rows of each window are counted once for an order, at about 2 us a document.
    PackWindows   where they are not (tokenized just before): the documents of a window of positions, whatever filters
                  have left of them, are packed by themselves. A window is a unit of work, and the most that a resume
                  reads again.

Where documents may be lost (long="drop" or "truncate", drop_tail), every row says under `left_out` how many documents
and tokens its window has lost, on the first row of the window, and 0 on the others: their sum is exact.

A document that fails is left out by itself, where the user said so (`on_error="skip"`). PackWindows packs the others as
if it were not there. Rows of PackRows are numbered before any document is read, so there its place is padding; a row of
which nothing is left is left out too, unless it is the one that says what its window has lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.brief import arguments
from headrace.errors import BadOption
from headrace.op import Here, Indexed, Lengths, place
from headrace.ops.text.lenient import what_works
from headrace.ops.text.numbered import NumberedOp
from headrace.ops.text.windows import WindowOp
from headrace.plan.packing import Packed, Packing, Piece, Row, TokenBlocks

if TYPE_CHECKING:
    import numpy as np

    from headrace.ops.text.planned import WindowPlans
    from headrace.ops.text.rows import Document, RowLayout

    Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class PackWindows(WindowOp[dict[str, Any]]):
    """The rows of each window of documents, as a list."""

    packing: Packing
    layout: "RowLayout"

    @property
    def window(self) -> int:
        return self.packing.window

    def taker(self) -> "Callable[[object, int], Document]":
        from headrace.ops.text.rows import check_piece

        layout, size, reserved = self.layout, self.packing.size, _reserved(self.packing, self.layout)
        refuses_long = self.packing.long == "error"

        def take(sample: object, position: int) -> "Document":
            document = layout.document(sample, position, reserved)
            check_piece(document, 0, len(document.tokens))
            if refuses_long and (length := layout.length(document)) > size:
                raise BadOption(
                    f"document {position} has {length} tokens, a row {size}: say long='split', 'truncate' or 'drop', "
                    "or make rows longer"
                )
            return document

        return take

    def make(
        self, samples: "list[Document]", seed: int, last: bool, refuse: Callable[[int, Exception], None]
    ) -> list[dict[str, Any]]:
        from headrace.ops.text.rows import with_same_fields

        layout, size = self.layout, self.packing.size + self.packing.overlap
        made = self.packing.window_rows([layout.length(one) for one in samples], seed, last)
        rows = []
        for number, pieces in enumerate(made.rows):
            found = with_same_fields([samples[piece.document] for piece in pieces], refuse)
            row = layout.row(pieces, size, found)
            rows.append(_counted(self.packing, row, made, first=not number))
        return rows

    def describe(self) -> str:
        return _describe(self.packing, self.layout)

    def identity(self) -> tuple[Any, ...]:
        return ("pack", repr(self.packing), repr(self.layout))


@dataclass(frozen=True, slots=True)
class PackRows(NumberedOp[Any, dict[str, Any]]):
    """Any row by its number."""

    packing: Packing
    layout: "RowLayout"
    rows: int | None = None
    """How many there are, if that is the same in every epoch."""
    verb = "pack"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        if inner.lengths is None:
            return None
        in_blocks = self.packing.how == "split" and inner.lengths.ends is not None and self.layout.separator is None
        return (self._blocks if in_blocks else self._windows)(inner, inner.lengths, here)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.rows

    def _blocks(self, inner: Indexed, known: Lengths, here: Here) -> Indexed:
        import numpy as np

        assert known.ends is not None
        blocks, size = TokenBlocks(known.ends, self.packing.size, self.packing.overlap), self.packing.size
        count = blocks.count
        left = blocks.tokens - count * size
        tail = left > self.packing.overlap and not self.packing.drop_tail
        ends = known.ends

        def document(number: int) -> tuple[int, int]:
            return number, int(ends[number]) - (int(ends[number - 1]) if number else 0)

        def get(position: int) -> dict[str, Any]:
            pieces = blocks.row(position) if position < count else blocks.rest
            lost = Packed((), 0, 0 if tail else left)
            return self._row(pieces, inner, document, lost, position == count + tail - 1, here, position)

        found = Indexed(count + tail, get)
        full = size + self.packing.overlap
        found.lengths = Lengths(
            lambda some: np.where(some < count, full, left), count * size + left * tail, (*known.key, self)
        )
        found.remark = f"pack: {known.tokens} tokens, cut every {size}; nothing is planned"
        return found

    def _windows(self, inner: Indexed, known: Lengths, here: Here) -> Indexed:
        import numpy as np

        plans = self._plans(inner, known, here)

        def document(first: int, lengths: list[int], number: int) -> tuple[int, int]:
            return first + number, lengths[number]

        def get(position: int) -> dict[str, Any]:
            window, number, plan = plans.find(position)
            find = partial(document, window * self.packing.window, plans.lengths(window))
            return self._row(plan.rows[number], inner, find, plan, not number, here, position)

        def sums(power: int, positions: "Ints") -> "Ints":
            rows = (plans.find(position) for position in positions.tolist())
            return np.array([sum(piece.tokens**power for piece in plan.rows[n]) for _, n, plan in rows], np.int64)

        found = Indexed(plans.outputs, get)
        found.lengths = Lengths(partial(sums, 1), known.tokens, (*known.key, self, here.seed), partial(sums, 2))
        found.remark = f"pack: {inner.length} documents in {plans.windows} windows are {found.length} rows"
        return found

    def _row(
        self,
        pieces: Row,
        inner: Indexed,
        find: Callable[[int], tuple[int, int]],
        lost: Packed,
        first: bool,
        here: Here,
        position: int,
    ) -> dict[str, Any]:
        """The row at a position. `find` says where a document of the pieces is, and how many tokens it has; the `first`
        row of a window says what the window has `lost`."""
        from headrace.ops.text.rows import SameFields, check_piece

        layout, same, reserved = self.layout, SameFields(), _reserved(self.packing, self.layout)
        spot = here.spot

        def read(piece: Piece) -> "Document":
            number, tokens = find(piece.document)
            sample = inner.get(number)
            spot.here, spot.position = here, position
            document = layout.document(sample, number, reserved)
            if (length := len(document.tokens)) != tokens:  # a longer one would lose its end without a word
                raise BadOption(
                    f"document {number} has {length} tokens where {tokens} were said: sized() needs their lengths"
                )
            check_piece(document, piece.offset, piece.tokens)
            return same.check(document)

        says = first and _counts(self.packing) and (lost.dropped > 0 or lost.truncated > 0)
        found = what_works(pieces, read, here, position, always=says)
        place.at(here, position)
        row = layout.row(pieces, self.packing.size + self.packing.overlap, found)
        return _counted(self.packing, row, lost, first)

    def _plans(self, inner: Indexed, known: Lengths, here: Here) -> "WindowPlans[Packed]":
        from headrace.ops.text.planned import WindowPlans

        packing, separated = self.packing, self.layout.separator is not None

        def plan(lengths: list[int], seed: int, last: bool) -> Packed:
            taken = [length + (length > 0) for length in lengths] if separated else lengths
            return packing.window_rows(taken, seed, last)

        return WindowPlans(
            inner, known, packing.window, here.seed, plan, lambda made: len(made.rows), (packing, separated)
        )

    def documents_before(self, inner: Indexed, here: Here, row: int) -> int:
        """How many documents the rows before this one can hold: those of all windows that have begun by then."""
        if inner.lengths is None or row <= 0:
            return 0
        begun = self._plans(inner, inner.lengths, here).window_of(row - 1) + 1
        return min(begun * self.packing.window, inner.length)

    def describe(self) -> str:
        return _describe(self.packing, self.layout)

    def identity(self) -> tuple[Any, ...]:
        return ("pack", repr(self.packing), repr(self.layout))


def can_be_planned(packing: Packing, layout: "RowLayout", documents: Indexed | None) -> bool:
    """Whether any row of these documents can be had by its number."""
    from headrace.ops.text.planned import MANY

    if documents is None or documents.lengths is None:
        return False
    in_blocks = packing.how == "split" and documents.lengths.ends is not None and layout.separator is None
    return in_blocks or documents.length <= MANY


def pack_known(packing: Packing, layout: "RowLayout", documents: Indexed) -> PackRows:
    """The op for documents of known lengths."""
    op = PackRows(packing, layout)
    if documents.lengths is not None and documents.lengths.ends is not None:  # as they are stored, in every epoch
        found = op.index((documents,), Here(0, 0, 0))
        return PackRows(packing, layout, None if found is None else found.length)
    return op


def _counts(packing: Packing) -> bool:
    """Whether documents or tokens can be lost, so that rows say how many were."""
    return packing.long in ("drop", "truncate") or packing.drop_tail


def _reserved(packing: Packing, layout: "RowLayout") -> tuple[str, ...]:
    """Fields that pack() itself gives to a row."""
    return (*layout.own, "left_out") if _counts(packing) else layout.own


def _counted(packing: Packing, row: dict[str, Any], made: Packed, first: bool) -> dict[str, Any]:
    """The row, with what its window has lost, where anything can be."""
    if _counts(packing):
        from headrace.ops.text.rows import left_out

        row["left_out"] = left_out(made) if first else left_out(Packed((), 0, 0))
    return row


def _describe(packing: Packing, layout: "RowLayout") -> str:
    said = [f"{packing.size}", f"how={packing.how!r}", f"window={packing.window}", f"form={layout.form!r}"]
    said += arguments(packing, ("size", "how", "window")) + arguments(layout, ("form",))
    return f"pack({', '.join(said)})"
