"""Token store: documents appended to a pair of token files, by a writer that can be killed and go on.

    name.bin.part     the tokens so far            -> name.bin at the end
    name.lengths      4 bytes a document so far    -> removed at the end; they are part of name.idx
    name.progress     how much of both was on the disk at the last mark

`mark(place)` writes everything up to now to the disk, with whatever the caller needs to go on from there. The next
writer cuts off what was appended after the last mark. The files are those of Megatron, so `Pipe.tokens`, `Pipe.stored`
and Megatron itself read them; their bytes do not depend on how often the writer was interrupted.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.sources.atomic import atomic_write
from headrace.sources.stored.megatron import HEAD, MAGIC, TYPES

VERSION = 1
WIDTHS = {"uint16": 8, "int32": 4}
"""The kinds of tokens that are written, as Megatron counts them."""
SMALL = 65500
"""Vocabularies below this are written in two bytes, as Megatron does."""


class TokenWriter:
    """Appends documents. `about` says what they are made from: a later writer goes on only if it is given the same."""

    def __init__(self, prefix: str, dtype: str, about: dict[str, Any]) -> None:
        if dtype not in WIDTHS:
            raise BadOption(f"tokens are written as {' or '.join(WIDTHS)}, not {dtype!r}")
        self._dtype, self._about = np.dtype(dtype), {"version": VERSION, "dtype": dtype, **about}
        self._prefix = prefix
        self.tokens = self.documents = 0
        self.place: Any = None
        """What an earlier writer that was interrupted gave to its last `mark()`."""
        os.makedirs(os.path.dirname(prefix) or ".", exist_ok=True)
        self._resume()
        self._bin = open(self._path(".bin.part"), "ab")  # noqa: SIM115 - closed by close()
        self._lengths = open(self._path(".lengths"), "ab")  # noqa: SIM115
        self._bin.truncate(self.tokens * self._dtype.itemsize)
        self._lengths.truncate(self.documents * 4)

    def _path(self, ending: str) -> str:
        return self._prefix + ending

    def _resume(self) -> None:
        path = Path(self._path(".progress"))
        if not path.exists():
            for ending in (".bin.part", ".lengths"):
                Path(self._path(ending)).unlink(missing_ok=True)
            return
        said = json.loads(path.read_text())
        if said["about"] != self._about:
            differing = [name for name in self._about if said["about"].get(name) != self._about[name]]
            raise BadOption(
                f"{path} is of a run with another {' and '.join(differing)}: give the same again, or remove {path} to "
                "begin anew"
            )
        self.tokens, self.documents, self.place = said["tokens"], said["documents"], said["place"]

    def append(self, documents: Sequence[NDArray[Any]]) -> None:
        """Add documents behind those that are there."""
        joined = np.concatenate(documents) if documents else np.zeros(0, np.int32)
        if len(joined) and not 0 <= int(joined.min()) <= int(joined.max()) <= np.iinfo(self._dtype).max:
            raise BadOption(f"token {int(joined.max())} does not fit into {self._dtype}: write them as int32")
        self._bin.write(joined.astype(self._dtype.newbyteorder("<")).data)
        self._lengths.write(np.array([len(one) for one in documents], "<i4").data)
        self.tokens += len(joined)
        self.documents += len(documents)

    def mark(self, place: object) -> None:
        """Make sure that everything up to now is on the disk, and keep `place` (plain data) with it."""
        for file in (self._bin, self._lengths):
            file.flush()
            os.fsync(file.fileno())
        said = {"about": self._about, "tokens": self.tokens, "documents": self.documents, "place": place}
        with atomic_write(self._path(".progress"), "wt") as progress:
            json.dump(said, progress)

    def finish(self) -> str:
        """Write the index, and give the files their names."""
        self.close()
        lengths = np.fromfile(self._path(".lengths"), "<i4")
        ends = np.cumsum(lengths, dtype="<i8") * self._dtype.itemsize
        count = len(lengths)
        code = WIDTHS[self._dtype.name]
        assert np.dtype(TYPES[code]) == self._dtype.newbyteorder("<")
        with atomic_write(self._path(".idx"), "wb") as index:
            head = MAGIC + (1).to_bytes(8, "little") + bytes([code])
            index.write(head + count.to_bytes(8, "little") + (count + 1).to_bytes(8, "little"))
            assert index.tell() == HEAD
            index.write(lengths.data)
            index.write((ends - lengths.astype("<i8") * self._dtype.itemsize).data)
            index.write(np.arange(count + 1, dtype="<i8").data)
        os.replace(self._path(".bin.part"), self._path(".bin"))
        for ending in (".lengths", ".progress"):
            Path(self._path(ending)).unlink(missing_ok=True)
        return self._path(".bin")

    def close(self) -> None:
        self._bin.close()
        self._lengths.close()
