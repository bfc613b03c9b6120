"""Autosave: snapshots written while the epoch runs, each whole or not at all.

A snapshot counts the batch that is about to be handed over as delivered. It is written to a new file beside the old
one, which it then replaces in one step, so that a crash at any moment leaves a whole snapshot.

The file is a snapshot and two numbers more: `steps` of the epoch that were delivered when it was taken, and `since`,
those delivered after it. The last one is kept up to date in place, at a fixed width, so that whoever goes on after a
crash can say how many steps are done again.
"""

import json
import logging
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, SnapshotRefused

log = logging.getLogger("headrace")
WIDTH = 12


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
        self._steps = 0
        """Of the epoch that goes on, before this process."""
        self._loaded = False
        self._since = 0
        self._file: tuple[int, int] | None = None
        """The file that is there, and where in it the number of steps since stands."""
        self._closing: Callable[[], object] = lambda: None

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
        self._steps, since = (n if isinstance(n, int) else 0 for n in (state.pop(k, 0) for k in ("steps", "since")))
        self._loaded = True
        if self._writes:
            log.log(
                logging.WARNING if since else logging.INFO,
                "%s: epoch %s goes on after step %d; %d steps that were delivered after it are done again",
                self._path, state.get("epoch"), self._steps, since,
            )  # fmt: skip
        return state

    def counter(self, state: Callable[[], dict[str, Any]]) -> Callable[[], None]:
        """What to call after each batch of an epoch that begins."""
        before, self._steps = self._steps, 0
        seen = 0

        def count() -> None:
            nonlocal seen
            seen += 1
            if not self._writes:
                return
            # The first one is written at once: a place that cannot be written to shows early.
            if seen % self._every == 0 or not self._loaded:
                self.save(state(), before + seen)
            else:
                self._count_since()

        return count

    def _count_since(self) -> None:
        self._since += 1
        if self._file is not None:
            handle, place = self._file
            os.pwrite(handle, f"{self._since:{WIDTH}}".encode(), place)

    def save(self, state: dict[str, Any], steps: int = 0) -> None:
        text = f'{json.dumps({**state, "steps": steps})[:-1]}, "since": '.encode()
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with open(handle, "wb", closefd=False) as file:
                file.write(text + f"{0:{WIDTH}}}}".encode())
            os.fsync(handle)
            os.replace(name, self._path)
        except BaseException:
            os.close(handle)
            os.unlink(name)
            raise
        self.close()
        self._closing = weakref.finalize(self, os.close, handle)
        self._file = handle, len(text)
        self._since = 0
        self._loaded = True

    def close(self) -> None:
        """Nothing more is counted."""
        self._file = None
        self._closing()
        self._closing = lambda: None
