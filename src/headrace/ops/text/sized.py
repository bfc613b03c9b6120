"""Sized: documents whose lengths are known, from a column of a table or because they were measured.

Batches, steps and rows are planned from these lengths, and wrong lengths would make all of them wrong without an error.
So the tokens of each document are counted when it is read. (Text, images and the like have no tokens to count yet.)

Ops that leave out or multiply samples (filter, flatmap) end random access: sample 1000 behind them is known only after
all before it were made. `headrace.measure()` makes them once and writes down how many documents came out at each
position of the input, and how many tokens each has: a `Measurement`. With it any document can be had by its number.
"""

import io
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.op import Each, Here, Indexed, Lengths, place
from headrace.ops.text.numbered import NumberedOp, wrong_length
from headrace.ops.text.rows import tokens_of
from headrace.ops.text.windows import gather_lists
from headrace.sources.atomic import atomic_write
from headrace.sources.bytes import local_stream

T = TypeVar("T")
Ints = NDArray[np.int64]
WINDOW = 256
"""Positions that are measured in one piece of work."""


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """How many documents a pipe makes at each position of its input, how long they are, and which pipe it was."""

    counts: Ints
    """Documents at each position."""
    lengths: Ints
    """Tokens of each document."""
    pipe: str
    """The fingerprint of the pipe that was measured."""
    path: str = ""
    """The file that it was loaded from: other processes read that file, instead of being sent the arrays."""
    # Worked out once: every order that is opened asks for the first two, every snapshot for the last.
    ends: Ints = field(init=False, repr=False)
    """The first document behind each position."""
    token_ends: Ints = field(init=False, repr=False)
    """The first token behind each document."""
    digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or self.lengths.ndim != 1 or int(self.counts.sum()) != len(self.lengths):
            raise BadOption("a measurement has a number of documents for each position, and a length for each document")
        if any(len(some) and int(some.min()) < 0 for some in (self.counts, self.lengths)):
            raise BadOption("a measurement has no negative numbers")
        object.__setattr__(self, "ends", np.cumsum(self.counts))
        object.__setattr__(self, "token_ends", np.cumsum(self.lengths))
        digest = blake2b(self.counts.tobytes(), digest_size=8)
        digest.update(self.lengths.tobytes())
        object.__setattr__(self, "digest", digest.hexdigest())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path:
            return Measurement.load, (self.path, self.pipe.split())
        return Measurement, (self.counts, self.lengths, self.pipe)

    def save(self, path: str) -> None:
        with atomic_write(path, "wb") as file:
            np.savez(file, counts=_small(self.counts), lengths=_small(self.lengths), pipe=np.array(self.pipe))

    @classmethod
    def load(cls, path: str, pipe: Sequence[str]) -> "Measurement":
        """The measurement in this file; it must be that of a pipe with this fingerprint."""
        with local_stream(path) as file:
            stored = io.BytesIO(file.read())
        try:
            with np.load(stored, allow_pickle=False) as arrays:
                counts, lengths, measured = arrays["counts"], arrays["lengths"], arrays["pipe"]
            if counts.dtype.kind != "u" or lengths.dtype.kind != "u" or measured.dtype.kind != "U":
                raise ValueError("its arrays are of other types")
            found = cls(counts.astype(np.int64), lengths.astype(np.int64), str(measured), os.path.abspath(path))
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, BadOption) as error:
            raise BadOption(f"{path} is no file that headrace.measure() wrote, or is damaged: {error}") from error
        if found.pipe != " ".join(pipe):
            raise BadOption(f"{path} was measured with another pipe: remove it to measure anew, or give another path")
        return found


def _small(numbers: Ints) -> NDArray[np.unsignedinteger[Any]]:
    return numbers.astype(np.min_scalar_type(int(numbers.max()) if len(numbers) else 0))


@dataclass(frozen=True, slots=True)
class Measure(NumberedOp[Any, tuple[Ints, Ints]]):
    """For each window of positions: the number of documents at each position, and of tokens of each document."""

    gathers = True

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs

        def get(window: int) -> tuple[Ints, Ints]:
            lists = gather_lists(inner, range(window * WINDOW, min((window + 1) * WINDOW, inner.length)), here)
            lengths = [len(tokens_of(document)) for documents in lists for document in documents]
            return np.array([len(documents) for documents in lists], np.int64), np.array(lengths, np.int64)

        return Indexed(-(-inner.length // WINDOW), get)


@dataclass(frozen=True, slots=True, eq=False)
class Measured(NumberedOp[Any, Any]):
    """The documents that were measured, each by its number."""

    measurement: Measurement
    gathers = True
    verb = "sized"

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        (inner,) = inputs
        counts, lengths, ends = self.measurement.counts, self.measurement.lengths, self.measurement.ends
        if len(counts) != inner.length:
            raise BadOption(f"{len(counts)} positions were measured, and there are {inner.length}: measure() anew")
        kept: tuple[int, list[Any]] = (-1, [])
        """The last position that made several documents, and these: the next number is usually one of them."""

        def check(number: int, position: int, documents: Sequence[Any]) -> Any:
            many = int(counts[position])
            if len(documents) == many:
                document = documents[number - (int(ends[position]) - many)]
                tokens = len(tokens_of(document))
                if tokens == lengths[number]:
                    return document
                changed = f"document {number} has {tokens} tokens, and had {lengths[number]}"
            else:
                changed = f"position {position} gives {len(documents)} documents, and gave {many}"
            raise BadOption(
                f"{changed} when it was measured: measure() anew if data or tokenizer have changed; what is measured "
                "must not depend on chance"
            )

        def get(number: int) -> Any:
            nonlocal kept
            position = int(np.searchsorted(ends, number, side="right"))
            last, documents = kept
            if last != position:
                documents = inner.get(position)
                if len(documents) > 1:
                    kept = position, documents
            place.at(here, number)
            return check(number, position, documents)

        found = Indexed(len(lengths), get)
        if (many_below := inner.many) is not None:

            def many(numbers: Sequence[int]) -> list[Any]:
                positions = np.searchsorted(ends, numbers, side="right").tolist()
                asked = list(dict.fromkeys(positions))
                made = dict(zip(asked, many_below(asked), strict=True))
                return [check(n, position, made[position]) for n, position in zip(numbers, positions, strict=True)]

            found.many = many
        found.lengths = _known(lengths, self.measurement.token_ends, self.identity())
        return found

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return len(self.measurement.lengths)

    def describe(self) -> str:
        return f"sized({len(self.measurement.lengths)} documents of {len(self.measurement.counts)})"

    def identity(self) -> tuple[Any, ...]:
        return ("measured", self.measurement.digest)


@dataclass(frozen=True, slots=True, eq=False)
class Sized(Each[T, T]):
    """The same samples; `lengths` says how many tokens each has."""

    lengths: Sequence[int] | NDArray[Any]
    # Worked out once: every snapshot asks for the digest.
    _ends: NDArray[np.int64] = field(init=False, repr=False)
    _digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lengths = np.asarray(self.lengths, np.int64)
        if lengths.ndim != 1 or (len(lengths) and int(lengths.min()) < 0):
            raise BadOption("sized(lengths) takes one whole number >= 0 for each document")
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "_ends", np.cumsum(lengths))
        object.__setattr__(self, "_digest", blake2b(lengths.tobytes(), digest_size=8).hexdigest())

    def apply(self, sample: T) -> T:
        return sample

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Each.index(self, inputs, here)
        assert found is not None
        lengths = np.asarray(self.lengths)
        if len(lengths) != found.length:
            raise BadOption(f"sized() got {len(lengths)} lengths for {found.length} documents")
        fetch = found.get

        def get(position: int) -> T:
            sample: T = fetch(position)
            tokens = _tokens_in(sample)
            if tokens is not None and tokens != lengths[position]:
                raise wrong_length(position, tokens, lengths[position])
            return sample

        found.get = get
        found.lengths = _known(lengths, self._ends, self.identity())
        return found

    def describe(self) -> str:
        return f"sized({len(self.lengths)} lengths)"

    def identity(self) -> tuple[Any, ...]:
        return ("sized", self._digest)


def _known(lengths: Ints, ends: Ints, key: tuple[object, ...]) -> Lengths:
    return Lengths(lambda some: lengths[some], int(ends[-1]) if len(ends) else 0, key, ends=ends)


def _tokens_in(sample: object) -> int | None:
    """How many tokens a sample has, if it is a list or an array of whole numbers, or a dict with one; None for anything
    else."""
    if isinstance(sample, np.ndarray):
        return len(sample) if sample.ndim == 1 and sample.dtype.kind in "iu" else None
    if isinstance(sample, dict):
        found = sample.get("tokens", sample.get("input_ids"))
        return None if isinstance(found, dict) else _tokens_in(found)
    if isinstance(sample, list):
        return len(sample) if not sample or isinstance(sample[0], int) else None
    return None
