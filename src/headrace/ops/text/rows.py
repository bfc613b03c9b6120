"""Rows: pieces of documents as the arrays that a model is trained on.

    padded   every row has the same length: `tokens`, `positions`, `documents` (1, 2, ... in the row; 0 is padding) and
             `mask` (False for padding)
    flat     without padding: `tokens`, `positions`, and where documents begin and end, as attention without padding
             takes it: `cu_seqlens` (starts with 0, ends with the tokens of the row) and `max_seqlen`

Positions begin with 0 in every piece, or go on where a document was cut (`positions="document"`). A document is an
array of tokens, or a dict of arrays of one length with its tokens under "tokens" or "input_ids": the other arrays (a
mask of the loss, say) are laid out in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.op import Here
from headrace.ops.text.ids import LEAST, MOST, check_ids
from headrace.plan.packing import Row

Array = NDArray[Any]
Form = Literal["padded", "flat"]
NAMES = ("tokens", "input_ids")
NARROW = (np.dtype(np.uint16), np.dtype(np.int32), np.dtype(np.uint8))
"""The usual types of ids, which hold no others."""
NO_FIELDS: dict[str, Array] = {}


class Document(NamedTuple):
    """A document as rows are made of it."""

    number: int
    """Its position in the input: errors name it."""
    tokens: Array
    fields: dict[str, Array]
    """Its other arrays, each as long as its tokens."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What a row looks like. (Its repr is part of the fingerprint of a pipe: names here must not change.)"""

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
        for name, value in (("pad", self.pad), ("separator", self.separator)):
            if value is not None and not (LEAST <= value <= MOST and value == int(value)):
                raise BadOption(f"{name}={value!r}: ids must be whole numbers within int32")

    @property
    def made_fields(self) -> tuple[str, ...]:
        """Names of the fields that a row has besides those of its documents."""
        return ("positions", "cu_seqlens", "max_seqlen") if self.form == "flat" else ("positions", "documents", "mask")

    def length(self, document: Document) -> int:
        """How many tokens a document takes, its separator included; an empty one takes none."""
        tokens = len(document.tokens)
        return tokens + (self.separator is not None and tokens > 0)

    def document(self, sample: object, number: int, reserved: tuple[str, ...]) -> Document:
        """A sample as a document. None of its fields may have a `reserved` name: it would be overwritten.

        The ids are not checked here: only those of a piece that is used are (`check_piece`).
        """
        if type(sample) is np.ndarray and sample.ndim == 1 and sample.dtype in NARROW:
            return Document(number, sample, NO_FIELDS)
        tokens = tokens_of(sample, f"document {number}")
        if not isinstance(sample, dict):
            return Document(number, tokens, NO_FIELDS)
        if self.separator is not None:
            raise BadOption("pack(separator=) is for documents that are arrays: append it to the fields of others")
        if tokens.ndim != 1:
            raise BadOption(f"the tokens of document {number} are of shape {tokens.shape}: pack() takes a flat list")
        main = _main_field(sample)
        fields = {name: np.asarray(values) for name, values in sample.items() if name != main}
        for name, values in fields.items():
            if name in reserved:
                raise BadOption(
                    f"document {number} has a field {name!r}, and pack() makes one of that name: rename yours before "
                    "pack()"
                )
            if values.shape[:1] != tokens.shape:
                raise BadOption(
                    f"the field {name!r} of a document has another length than its tokens, so it cannot be packed with "
                    f"them: leave it out before pack() (document {number})"
                )
        return Document(number, tokens, fields)

    def row(self, pieces: Row, size: int, found: Sequence[Document | None]) -> dict[str, Any]:
        """The arrays of one row of `size` tokens. `found` has the document of each piece, or None for one that was left
        out: its place is padding (a flat row is shorter instead)."""
        if self.form == "flat":
            pieces = tuple(piece for piece, one in zip(pieces, found, strict=True) if one is not None)
            found = [one for one in found if one is not None]
        lengths = [piece.tokens for piece in pieces]
        used = sum(lengths)
        width = size if self.form == "padded" else used
        out = self._fields(found, pieces, width)
        there = np.array([one is not None for one in found], bool)
        starts = [piece.offset if self.positions == "document" else 0 for piece in pieces]
        places = [
            np.arange(at, at + n, dtype=np.int32) if one is not None else np.zeros(n, np.int32)
            for one, at, n in zip(found, starts, lengths, strict=True)
        ]
        positions = np.zeros(width, np.int32)
        positions[:used] = _joined(places)
        out["positions"] = positions
        if self.form == "flat":
            out["cu_seqlens"] = np.cumsum([0, *lengths], dtype=np.int32)
            out["max_seqlen"] = max(lengths, default=0)
            return out
        documents = np.zeros(width, np.int32)
        documents[:used] = np.repeat(np.cumsum(there, dtype=np.int32) * there, lengths)
        out["documents"], out["mask"] = documents, documents > 0
        return out

    def _fields(self, found: Sequence[Document | None], pieces: Row, width: int) -> dict[str, Any]:
        tokens = np.full(width, self.pad, np.int32)
        at = 0
        for one, (_, offset, count) in zip(found, pieces, strict=True):
            if one is not None:
                piece = one.tokens[offset : offset + count]
                tokens[at : at + len(piece)] = piece
                if len(piece) < count:
                    assert self.separator is not None
                    tokens[at + len(piece)] = self.separator
            at += count
        out: dict[str, Any] = {"tokens": tokens}
        first = next((one for one in found if one is not None), None)
        for name, like in () if first is None else first.fields.items():
            out[name] = _laid_out(name, like, found, pieces, width)
        return out


def check_piece(document: Document, offset: int, count: int) -> None:
    """Raise if a piece of a document has a value that cannot be a token id."""
    if document.tokens.dtype not in NARROW:
        check_ids(document.tokens[offset : offset + count], f"document {document.number}")


def check_same_fields(first: Document, document: Document) -> None:
    """Raise if a document has other fields than the first of its row, which are the fields of the row."""
    if (first.fields or document.fields) and first.fields.keys() != document.fields.keys():
        name = sorted(first.fields.keys() ^ document.fields.keys(), key=str)[0]
        has, lacks = (first, document) if name in first.fields else (document, first)
        raise BadOption(
            f"document {has.number} has a field {name!r}, and document {lacks.number} in the same row has none: "
            "give all documents the same fields before pack()"
        )


def with_same_fields(documents: Sequence[Document], here: Here) -> Sequence[Document | None]:
    """The documents of a row; None for one whose fields differ from the first's, with `on_error="skip"`."""
    if not any(one.fields for one in documents):
        return documents
    found: list[Document | None] = []
    for one in documents:
        try:
            check_same_fields(documents[0], one)
            found.append(one)
        except BadOption as error:
            here.spot.index = None  # that of the sample that was read last
            here.spot.skip(here, one.number, error)
            found.append(None)
    return found


def _main_field(document: dict[str, Any]) -> str | None:
    """The name of the field that has the tokens."""
    return next((name for name in NAMES if name in document), None)


def tokens_of(document: object, whose: str = "a document") -> Array:
    """The tokens of a document; `whose` is what errors call the document."""
    if isinstance(document, dict):
        name = _main_field(document)
        if name is None:
            raise BadOption(
                f"{whose} to be packed is a dict of {', '.join(map(str, document))}: its tokens must be under "
                "'tokens' or 'input_ids'"
            )
        return np.asarray(document[name])
    tokens = np.asarray(document)
    if tokens.ndim == 1 and tokens.dtype.kind in "fcO":
        check_ids(tokens, whose)
    elif tokens.ndim != 1 or (len(tokens) and tokens.dtype.kind not in "iub"):
        raise BadOption(
            f"{whose} to be packed is a {type(document).__name__}, no list or array of tokens: tokenize() it first"
        )
    return tokens


def _laid_out(name: str, like: Array, found: Sequence[Document | None], pieces: Row, width: int) -> Array:
    parts = [
        np.zeros((count, *like.shape[1:]), like.dtype) if one is None else one.fields[name][offset : offset + count]
        for one, (_, offset, count) in zip(found, pieces, strict=True)
    ]
    joined = _joined(parts)
    return np.concatenate([joined, np.zeros((width - len(joined), *joined.shape[1:]), joined.dtype)])


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)
