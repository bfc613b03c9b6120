"""Pack: documents as rows of a fixed number of tokens. The rows depend on neither workers nor ranks.

    PackRows      where the lengths of all documents are known (stored tokens): any row can be had by its number, and
                  only its documents are read. Documents that are cut end to end, in the order they are stored, need no
                  plan; otherwise the rows of each window are counted once for an order, at about 2 us a document.
    PackWindows   where they are not (tokenized just before): each window of positions is packed by itself, with the
                  documents that filters have left there. A window is one ticket, and at most one is read again by a
                  resume.

Where documents may be lost (long="drop" or "truncate", drop_tail), rows have a field `left_out`: the first row of each
window says how many documents and tokens the window has lost, the others say 0. So the sum over all rows is exact.

With `on_error="skip"` a document that fails is left out by itself. PackWindows packs the others as if it were not
there. PackRows has numbered its rows before any document is read, so the place of the document is padding; a row with
no document left is left out too, unless it is the one that says what its window has lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from headrace.brief import arguments
from headrace.context import read_each
from headrace.op import Here, Indexed, Lengths, Positions, place
from headrace.ops.text.numbered import MANY, NumberedOp, WindowPlans, wrong_length
from headrace.ops.text.rows import Document, RowLayout, check_piece, check_same_fields, with_same_fields
from headrace.ops.text.windows import WindowOp
from headrace.plan.packing import Packed, Packing, Piece, Row, TokenBlocks, too_long

Where = Callable[[int], tuple[Row, Callable[[int], tuple[int, int]], Packed, bool]]
"""From the number of a row to: its pieces; a function that gives the position and the length of a document of theirs;
what its window has lost; and whether it is the row of its window that says so."""


class PackOp:
    """What both ops have in common: how a row is made, printed and fingerprinted."""

    __slots__ = ()
    plan: Packing
    layout: RowLayout

    @property
    def loses(self) -> bool:
        """Whether documents or tokens can be lost: then rows have a field `left_out` that says how many were."""
        return self.plan.long in ("drop", "truncate") or self.plan.drop_tail

    @property
    def reserved(self) -> tuple[str, ...]:
        """Names of fields that pack() itself gives to a row."""
        return (*self.layout.made_fields, "left_out") if self.loses else self.layout.made_fields

    def row(self, pieces: Row, found: Sequence[Document | None], lost: Packed, first: bool) -> dict[str, Any]:
        row = self.layout.row(pieces, self.plan.size + self.plan.overlap, found)
        if self.loses:
            row["left_out"] = np.array([lost.dropped, lost.truncated] if first else [0, 0], np.int64)
        return row

    def describe(self) -> str:
        plan, layout = self.plan, self.layout
        said = [f"{plan.size}", f"how={plan.how!r}", f"window={plan.window}", f"form={layout.form!r}"]
        said += arguments(plan, ("size", "how", "window")) + arguments(layout, ("form",))
        return f"pack({', '.join(said)})"

    def identity(self) -> tuple[Any, ...]:
        return ("pack", repr(self.plan), repr(self.layout))


@dataclass(frozen=True, slots=True)
class PackWindows(PackOp, WindowOp[dict[str, Any]]):
    """The rows of each window of documents, as a list."""

    plan: Packing
    layout: RowLayout

    def taker(self) -> Callable[[object, int], Document]:
        layout, size, reserved = self.layout, self.plan.size, self.reserved
        refuses_long = self.plan.long == "error"

        def take(sample: object, position: int) -> Document:
            document = layout.document(sample, position, reserved)
            check_piece(document, 0, len(document.tokens))
            if refuses_long and (length := layout.length(document)) > size:
                raise too_long(position, length, size)
            return document

        return take

    def make(self, samples: list[Document], seed: int, last: bool, here: Here) -> list[dict[str, Any]]:
        made = self.plan.window_rows([self.layout.length(one) for one in samples], seed, last)
        rows = []
        for number, pieces in enumerate(made.rows):
            found = with_same_fields([samples[piece.document] for piece in pieces], here)
            rows.append(self.row(pieces, found, made, first=not number))
        return rows


@dataclass(frozen=True, slots=True)
class PackRows(PackOp, NumberedOp[Any, dict[str, Any]]):
    """Rows, each by its number."""

    plan: Packing
    layout: RowLayout
    rows: int | None = None
    """How many there are, if that is the same in every epoch."""
    verb = "pack"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        if inner.lengths is None:
            return None
        return (self._blocks if self.in_blocks(inner.lengths) else self._windows)(inner, inner.lengths, here)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.rows

    def in_blocks(self, known: Lengths) -> bool:
        """Whether documents are laid end to end as they are stored, and cut: then no window is planned."""
        return self.plan.how == "split" and known.ends is not None and self.layout.separator is None

    def _blocks(self, inner: Indexed, known: Lengths, here: Here) -> Indexed:
        assert known.ends is not None
        blocks, size = TokenBlocks(known.ends, self.plan.size, self.plan.overlap), self.plan.size
        count = blocks.count
        left = blocks.tokens - count * size
        tail = blocks.unseen > 0 and not self.plan.drop_tail
        ends, lost = known.ends, Packed((), truncated=0 if tail else blocks.unseen)

        def document(number: int) -> tuple[int, int]:
            return number, int(ends[number]) - (int(ends[number - 1]) if number else 0)

        def where(position: int) -> Any:
            pieces = blocks.row(position) if position < count else blocks.rest
            return pieces, document, lost, position == count + tail - 1

        found = self._indexed(count + tail, where, inner, here)
        full = size + self.plan.overlap
        found.lengths = Lengths(
            lambda some: np.where(some < count, full, left), count * size + left * tail, (*known.key, self)
        )
        found.remark = f"pack: {known.tokens} tokens, cut every {size}; nothing is planned"
        return found

    def _windows(self, inner: Indexed, known: Lengths, here: Here) -> Indexed:
        plans = self._plans(inner, here)

        def where(position: int) -> Any:
            window, number, plan = plans.find(position)
            first, lengths = window * self.plan.window, plans.lengths(window)
            return plan.rows[number], lambda document: (first + document, lengths[document]), plan, not number

        def sums(power: int, positions: Positions) -> Positions:
            rows = (plans.find(position) for position in positions.tolist())
            return np.array([sum(piece.tokens**power for piece in plan.rows[n]) for _, n, plan in rows], np.int64)

        found = self._indexed(plans.outputs, where, inner, here)
        found.lengths = Lengths(partial(sums, 1), known.tokens, (*known.key, self, here.seed), partial(sums, 2))
        found.remark = f"pack: {inner.length} documents in {plans.windows} windows are {found.length} rows"
        return found

    def _indexed(self, count: int, where: Where, inner: Indexed, here: Here) -> Indexed:
        layout, reserved, loses, spot = self.layout, self.reserved, self.loses, here.spot

        def get(position: int) -> dict[str, Any]:
            pieces, find, lost, first = where(position)
            before: list[Document] = []

            def read(piece: Piece) -> Document:
                number, tokens = find(piece.document)
                sample = inner.get(number)
                spot.here, spot.position = here, position
                document = layout.document(sample, number, reserved)
                if (length := len(document.tokens)) != tokens:  # a longer one would silently lose its end
                    raise wrong_length(number, length, tokens)
                check_piece(document, piece.offset, piece.tokens)
                before.append(document)
                check_same_fields(before[0], document)
                return document

            says = first and loses and (lost.dropped > 0 or lost.truncated > 0)
            found = read_each(pieces, read, here, position, always=says)
            place.at(here, position)
            return self.row(pieces, found, lost, first)

        return Indexed(count, get)

    def _plans(self, inner: Indexed, here: Here) -> WindowPlans[Packed]:
        packing, separated = self.plan, self.layout.separator is not None

        def plan(lengths: list[int], seed: int, last: bool) -> Packed:
            taken = [length + (length > 0) for length in lengths] if separated else lengths
            return packing.window_rows(taken, seed, last)

        return WindowPlans(inner, packing.window, here.seed, plan, (packing, separated))

    def documents_before(self, inner: Indexed, here: Here, row: int) -> int:
        """How many documents the rows before this one hold at the most: those of all windows up to theirs."""
        if inner.lengths is None or row <= 0:
            return 0
        begun = self._plans(inner, here).window_of(row - 1) + 1
        return min(begun * self.plan.window, inner.length)


def pack_known(packing: Packing, layout: RowLayout, documents: Indexed | None) -> PackRows | None:
    """The op that packs documents of known lengths; None where rows of them cannot be numbered."""
    op = PackRows(packing, layout)
    if documents is None or documents.lengths is None:
        return None
    if documents.length > MANY and not op.in_blocks(documents.lengths):
        return None
    if documents.lengths.ends is None:
        return op
    found = op.index((documents,), Here(0, 0, 0))
    return PackRows(packing, layout, None if found is None else found.length)  # as they are stored, in every epoch
