"""Autosave: snapshots written while the epoch runs, each whole or not at all.

A snapshot counts the batch that is about to be handed over as delivered. It is written to a new file beside the old
one, which it then replaces in one step, so that a crash at any moment leaves a whole snapshot.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, SnapshotRefused


class Autosave:
    """Writes a snapshot every so many batches."""

    def __init__(self, path: Path, every: int, writes: bool) -> None:
        if not isinstance(every, int) or every < 1:
            raise BadOption(f"every must be a whole number >= 1, not {every!r}")
        if not path.parent.is_dir():
            raise BadOption(f"autosave={str(path)!r}: there is no folder {str(path.parent)!r}; make it first")
        self._path = path
        self._every = every
        self._writes = writes
        """Only one rank of a job writes: the snapshot is the same on all."""

    def load(self) -> dict[str, Any] | None:
        """The snapshot that is there, or None."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            state = json.loads(text)
        except ValueError as broken:
            raise SnapshotRefused(f"{self._path} is not a snapshot ({broken}); delete it to start anew") from broken
        if not isinstance(state, dict):
            raise SnapshotRefused(f"{self._path} is not a snapshot; delete it to start anew")
        return state

    def counter(self, state: Callable[[], dict[str, Any]]) -> Callable[[], None]:
        """What to call after each batch."""
        seen = 0

        def count() -> None:
            nonlocal seen
            seen += 1
            if self._writes and seen % self._every == 0:
                self.save(state())

        return count

    def save(self, state: dict[str, Any]) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)
        except BaseException:
            os.unlink(name)
            raise
