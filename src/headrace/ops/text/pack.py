"""Pack: documents as rows of a fixed number of tokens. The rows depend on neither workers nor ranks.

    PackRows      where the lengths of all documents are known (stored tokens): any row by its number, nothing is read
                  that is not in it. Documents end to end in the order they are stored need no plan at all; in any other
                  case the rows of each window are counted once for an order, at about 2 us a document.
    PackWindows   where they are not (tokenized just before): the documents of a window of positions, whatever filters
                  have left of them, are packed by themselves. A window is a unit of work, and the most that a resume
                  reads again.

Where documents may be lost (long="drop" or "truncate", drop_tail), every row says under `left_out` how many documents
and tokens its window has lost, on the first row of the window, and 0 on the others: their sum is exact.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.brief import arguments
from headrace.errors import BadOption
from headrace.op import Here, Indexed, Lengths, place
from headrace.ops.text.numbered import NumberedOp
from headrace.ops.text.windows import WindowOp
from headrace.plan.packing import Packed, Packing, TokenBlocks

if TYPE_CHECKING:
    import numpy as np

    from headrace.ops.text.planned import WindowPlans
    from headrace.ops.text.rows import RowLayout

    Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class PackWindows(WindowOp[dict[str, Any]]):
    """The rows of each window of documents, as a list."""

    packing: Packing
    layout: "RowLayout"

    @property
    def window(self) -> int:
        return self.packing.window

    def make(self, samples: list[Any], seed: int, last: bool) -> list[dict[str, Any]]:
        layout, size = self.layout, self.packing.size + self.packing.overlap
        made = self.packing.window_rows([layout.length(one) for one in samples], seed, last)
        rows = [layout.row(row, size, samples.__getitem__) for row in made.rows]
        return [_counted(self.packing, row, made, first=not i) for i, row in enumerate(rows)]

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

        def document(number: int) -> object:
            return _checked(inner.get(number), number, int(ends[number]) - (int(ends[number - 1]) if number else 0))

        def get(position: int) -> dict[str, Any]:
            pieces = blocks.row(position) if position < count else blocks.rest
            place.at(here, position)
            row = self.layout.row(pieces, size + self.packing.overlap, document)
            lost = Packed((), 0, 0 if tail else left)
            return _counted(self.packing, row, lost, first=position == count + tail - 1)

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
        size = self.packing.size + self.packing.overlap

        def document(first: int, lengths: list[int], number: int) -> object:
            return _checked(inner.get(first + number), first + number, lengths[number])

        def get(position: int) -> dict[str, Any]:
            window, number, plan = plans.find(position)
            read = partial(document, window * self.packing.window, plans.lengths(window))
            row = self.layout.row(plan.rows[number], size, read)
            place.at(here, position)
            return _counted(self.packing, row, plan, first=not number)

        def sums(power: int, positions: "Ints") -> "Ints":
            rows = (plans.find(position) for position in positions.tolist())
            return np.array([sum(piece.tokens**power for piece in plan.rows[n]) for _, n, plan in rows], np.int64)

        found = Indexed(plans.outputs, get)
        found.lengths = Lengths(partial(sums, 1), known.tokens, (*known.key, self, here.seed), partial(sums, 2))
        found.remark = f"pack: {inner.length} documents in {plans.windows} windows are {found.length} rows"
        return found

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

    @classmethod
    def name(cls) -> str:
        return "pack"


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


def _checked(document: object, number: int, tokens: int) -> object:
    """The document, if it is as long as was said: a longer one would lose its end without a word."""
    from headrace.ops.text.rows import tokens_of

    found = len(tokens_of(document))
    if found != tokens:
        raise BadOption(f"document {number} has {found} tokens where {tokens} were said: sized() needs their lengths")
    return document


def _counted(packing: Packing, row: dict[str, Any], made: Packed, first: bool) -> dict[str, Any]:
    """The row, with what its window has lost, where anything can be."""
    if packing.long in ("drop", "truncate") or packing.drop_tail:
        from headrace.ops.text.rows import left_out

        row["left_out"] = left_out(made) if first else left_out(Packed((), 0, 0))
    return row


def _describe(packing: Packing, layout: "RowLayout") -> str:
    said = [f"{packing.size}", f"how={packing.how!r}", f"window={packing.window}", f"form={layout.form!r}"]
    said += arguments(packing, ("size", "how", "window")) + arguments(layout, ("form",))
    return f"pack({', '.join(said)})"
