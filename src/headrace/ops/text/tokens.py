"""Stored tokens: documents of token files (`name.bin` and `name.idx`, as Megatron and `headrace tokenize` write them).

Files are mapped into memory, never loaded: a document is a view of its file, and its length is known without reading
it. So packing is planned from lengths alone, and any row of a trillion tokens is found by reading a few dozen numbers.
"""

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.op import Here, Indexed, Lengths, Source
from headrace.sources.bytes import DamagedFile, FileState, mapped
from headrace.sources.stored.format import Ints
from headrace.sources.stored.megatron import HEAD, index_of, token_type


class TokenFile(NamedTuple):
    """One pair of files, mapped."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int32]
    offsets: NDArray[np.int64]
    """In bytes."""
    index_path: str
    """Where the lengths and offsets stand."""

    @property
    def contiguous(self) -> bool:
        """Whether documents stand one behind the other and fill the file. (Only up to 64 of them are checked.)"""
        count, width = len(self.lengths), self.tokens.itemsize
        looked = np.unique(np.linspace(0, count - 1, min(count, 64)).astype(np.int64))
        after = self.offsets[looked] + self.lengths[looked].astype(np.int64) * width
        follow = np.append(self.offsets[looked[looked < count - 1] + 1], len(self.tokens) * width)
        return count == 0 or (int(self.offsets[0]) == 0 and np.array_equal(after, follow))


@dataclass(frozen=True, slots=True)
class StoredTokens(Source[NDArray[Any]]):
    """The documents of these files, each an array of tokens."""

    paths: tuple[str, ...]
    states: tuple[FileState, ...] = ()
    """Of each `.bin` and of its `.idx` when the pipe was made: one that has changed since is an error."""
    verb = "tokens"

    def __post_init__(self) -> None:
        if not self.paths:
            raise BadOption("no token files: give at least one path")
        if not self.states:
            object.__setattr__(self, "states", tuple(map(FileState.of, self._files())))

    def _files(self) -> tuple[str, ...]:
        """Every `.bin`, then every `.idx`."""
        return (*self.paths, *map(index_of, self.paths))

    def size(self) -> int:
        return self._store().documents[-1]

    def get(self, position: int) -> NDArray[Any]:
        _, file, start, count = self._store().find(position)
        return file.tokens[start : start + count]

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        found = Source.index(self, inputs, here)
        assert found is not None
        store = self._store()
        for path, state in zip(self._files(), self.states, strict=True):
            state.check(path, FileState.of(path))  # (a file that is overwritten changes under its mapping)
        ends = StoredEnds(store) if all(file.contiguous for file in store.files) else None
        found.lengths = Lengths(store.lengths_of, store.tokens[-1], (*self.identity(), self.states), ends=ends)
        return found

    def settle(self) -> None:
        self._store()

    def describe(self) -> str:
        store = self._store()
        return f"tokens({len(self.paths)} files, {store.documents[-1]} documents, {store.tokens[-1]} tokens)"

    def identity(self) -> tuple[Any, ...]:
        store = self._store()
        names = [os.path.basename(path) for path in self.paths]
        sizes = [state.size for state in self.states[: len(self.paths)]]
        said = repr([names, sizes, store.documents, str(store.files[0].tokens.dtype)])
        return ("tokens", blake2b(said.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest())

    def _store(self) -> "TokenStore":
        return _store(self.paths, self.states)


class TokenStore(NamedTuple):
    """All files, with the number of documents and of tokens up to the end of each."""

    files: tuple[TokenFile, ...]
    documents: list[int]
    tokens: list[int]

    def find(self, position: int) -> tuple[int, TokenFile, int, int]:
        """The number of the file of a document, the file, the document's first token in it, and how many it has."""
        number = bisect_right(self.documents, position)
        file = self.files[number]
        row = position - (self.documents[number - 1] if number else 0)
        start, count = int(file.offsets[row]) // file.tokens.itemsize, int(file.lengths[row])
        if start < 0 or count < 0 or start + count > len(file.tokens):
            raise DamagedFile(
                f"{file.index_path} says that document {row} lies outside the {len(file.tokens)} tokens there are"
            )
        return number, file, start, count

    def lengths_of(self, positions: Ints) -> Ints:
        found = np.empty(len(positions), np.int64)
        ends = np.array(self.documents, np.int64)
        where = np.searchsorted(ends, positions, side="right")
        for number in np.unique(where).tolist():
            among = where == number
            first = self.documents[number - 1] if number else 0
            found[among] = self.files[number].lengths[positions[among] - first]
        return found


class StoredEnds(Sequence[int]):
    """The first token after each document, counted over all files: looked up in the index, not held in memory."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    def __len__(self) -> int:
        return self._store.documents[-1]

    def __getitem__(self, number: int) -> int:  # type: ignore[override]  # (it is never sliced)
        store = self._store
        number = number + len(self) if number < 0 else number
        which, _, start, count = store.find(number)
        return start + count + (store.tokens[which - 1] if which else 0)


@lru_cache(maxsize=16)
def _store(paths: tuple[str, ...], states: tuple[FileState, ...]) -> TokenStore:
    ours = states[: len(paths)], states[len(paths) :]
    files = tuple(_mapped(path, data, index) for path, data, index in zip(paths, *ours, strict=True))
    documents = np.cumsum([len(file.lengths) for file in files]).tolist()
    return TokenStore(files, documents, np.cumsum([len(file.tokens) for file in files]).tolist())


def _mapped(path: str, state: FileState, index_state: FileState) -> TokenFile:
    index = index_of(path)
    state.check(path, FileState.of(path))
    index_state.check(index, FileState.of(index))
    dtype, count = token_type(index, index_state)
    if os.path.getsize(index) < HEAD + 12 * count or state.size % np.dtype(dtype).itemsize:
        raise DamagedFile(f"{index} or {path} is cut off: {count} documents need more, or a token is not whole")
    if not count or not state.size:
        return TokenFile(np.zeros(0, dtype), np.zeros(count, np.int32), np.zeros(count, np.int64), index)
    tokens, table = mapped(path).view(dtype), mapped(index)
    lengths = table[HEAD : HEAD + 4 * count].view("<i4")
    offsets = table[HEAD + 4 * count : HEAD + 12 * count].view("<i8")
    if int(offsets[-1]) + int(lengths[-1]) * tokens.itemsize > state.size:
        raise DamagedFile(f"{index} says that documents lie outside the {state.size} bytes of {path}")
    return TokenFile(tokens, lengths, offsets, index)


def token_files(paths: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]") -> tuple[str, ...]:
    """The `.bin` files at these paths: each is a file, with or without its ending, or a folder of them."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for path in (os.fspath(one) for one in given):
        if os.path.isdir(path):
            found += sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".bin"))
        else:
            found.append(path if path.endswith(".bin") else f"{path}.bin")
    missing = [path for path in found if not os.path.exists(path)]
    if missing or not found:
        raise BadOption(f"no token file at {', '.join(missing) or paths!r}: write one with `headrace tokenize`")
    return tuple(found)
