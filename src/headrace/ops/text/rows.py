"""Rows: pieces of documents as the arrays that a model is trained on.

    padded   every row has the same length: `tokens`, `positions`, `documents` (1, 2, ... in the row; 0 is padding) and
             `mask` (False where a row only is filled up)
    flat     only what is there: `tokens`, `positions`, and where documents begin and end, as attention without padding
             wants it: `cu_seqlens` (starts with 0, ends with the tokens of the row) and `max_seqlen`

Positions begin with 0 in every piece, or go on where a document was cut (`positions="document"`). A document is an
array of tokens, or a dict of arrays of one length with its tokens under "tokens" or "input_ids": the other arrays (a
mask of the loss, say) are laid out in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.plan.packing import Packed, Row

Array = NDArray[Any]
Form = Literal["padded", "flat"]
NAMES = ("tokens", "input_ids")


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What a row looks like."""

    form: Form = "padded"
    pad: int = 0
    separator: int | None = None
    """A token that is put behind every document."""
    positions: Literal["piece", "document"] = "piece"

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise BadOption(f"form={self.form!r}: choose 'padded' or 'flat'")
        if self.positions not in ("piece", "document"):
            raise BadOption(f"positions={self.positions!r}: choose 'piece' or 'document'")

    def length(self, document: object) -> int:
        """How many tokens a document takes, its separator included; an empty one takes none."""
        tokens = len(tokens_of(document))
        return tokens + (self.separator is not None and tokens > 0)

    def row(self, pieces: Row, size: int, document: Callable[[int], object]) -> dict[str, Any]:
        """The arrays of one row of `size` tokens; `document(number)` gives the documents."""
        lengths = [piece.tokens for piece in pieces]
        used = sum(lengths)
        width = size if self.form == "padded" else used
        out = self._fields([document(piece.document) for piece in pieces], pieces, width)
        starts = [piece.offset if self.positions == "document" else 0 for piece in pieces]
        positions = np.zeros(width, np.int32)
        positions[:used] = _joined(
            [np.arange(at, at + n, dtype=np.int32) for at, n in zip(starts, lengths, strict=True)]
        )
        out["positions"] = positions
        if self.form == "flat":
            out["cu_seqlens"] = np.cumsum([0, *lengths], dtype=np.int32)
            out["max_seqlen"] = max(lengths, default=0)
            return out
        documents = np.zeros(width, np.int32)
        documents[:used] = np.repeat(np.arange(1, len(pieces) + 1, dtype=np.int32), lengths)
        out["documents"], out["mask"] = documents, documents > 0
        return out

    def _fields(self, found: Sequence[object], pieces: Row, width: int) -> dict[str, Any]:
        tokens = np.full(width, self.pad, np.int32)
        at = 0
        for one, (_, offset, count) in zip(found, pieces, strict=True):
            mine = tokens_of(one)[offset : offset + count]
            tokens[at : at + len(mine)] = mine
            if len(mine) < count:
                assert self.separator is not None
                tokens[at + len(mine)] = self.separator
            at += count
        out: dict[str, Any] = {"tokens": tokens}
        if found and isinstance(found[0], dict):
            if self.separator is not None:
                raise BadOption("pack(separator=) is for documents that are arrays: append it to the fields of others")
            for name in found[0]:
                if name not in NAMES:
                    out[name] = _laid_out(name, found, pieces, width)
        return out


def tokens_of(document: object) -> Array:
    """The tokens of a document."""
    if isinstance(document, dict):
        name = next((name for name in NAMES if name in document), None)
        if name is None:
            raise BadOption(
                f"a document to be packed is a dict of {', '.join(map(str, document))}: its tokens must be under "
                "'tokens' or 'input_ids'"
            )
        return np.asarray(document[name])
    tokens = np.asarray(document)
    if tokens.ndim != 1 or (len(tokens) and tokens.dtype.kind not in "iub"):
        raise BadOption(
            f"a document to be packed is a {type(document).__name__}, no list or array of tokens: tokenize() it first"
        )
    return tokens


def _laid_out(name: str, found: Sequence[object], pieces: Row, width: int) -> Array:
    parts = []
    for one, (_, offset, count) in zip(found, pieces, strict=True):
        assert isinstance(one, dict)
        values = np.asarray(one[name])
        if values.shape[:1] != tokens_of(one).shape:
            raise BadOption(
                f"the field {name!r} of a document has another length than its tokens, so it cannot be packed with "
                "them: leave it out before pack()"
            )
        parts.append(values[offset : offset + count])
    joined = _joined(parts)
    return np.concatenate([joined, np.zeros((width - len(joined), *joined.shape[1:]), joined.dtype)])


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def left_out(packed: Packed) -> Array:
    """Documents and tokens of a window that no row has."""
    return np.array([packed.dropped, packed.truncated], np.int64)
