"""Saver: writes the file of an `Autosave` while the epoch runs, each time whole or not at all.

A state counts the batch that is about to be handed over as delivered; where batches are taken ahead of the caller
(copies to a device), the last one that the caller has. A new file replaces the old one in one step
(`sources.atomic`), so that a crash at any moment leaves a whole one. If it cannot be written, the last whole file
stays, log and `stats()` say what is wrong, and the epoch goes on.

A file is a state and two numbers more: `steps` of the epoch that were delivered when it was taken, and `since`, those
delivered after it. `since` is kept up to date in place, at a fixed width, so that after a crash the next start can say
how many steps are done again.
"""

import json
import logging
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headrace.engine.autosave import Autosave
from headrace.engine.epoch import Epoch
from headrace.errors import BadOption, SnapshotRefused
from headrace.sources.atomic import atomic_write, prepare

log = logging.getLogger("headrace")
WIDTH = 12

State = dict[str, Any]


class Saver:
    """Writes and reads the file of an `Autosave`."""

    def __init__(self, autosave: Autosave) -> None:
        self._path = Path(autosave.path)
        self._every = autosave.every
        folder = str(self._path.parent)
        if not os.path.isdir(folder):
            raise BadOption(f"autosave={str(self._path)!r}: there is no folder {folder!r}; make it first")
        try:
            prepare(folder)
        except OSError as error:
            raise BadOption(f"autosave: no file can be written to {folder!r} ({error}); choose another") from None
        self.steps = 0
        """Steps of the epoch that were made before this process began."""
        self._made = self._saved = self._since = 0
        """Steps of this process: all, those before the last whole file, those after it."""
        self._file: tuple[int, int] | None = None
        """The descriptor of the last whole file, and the offset of `since` in it."""
        self._closing: Callable[[], object] = lambda: None
        self.trouble = ""
        """Why the last state could not be written."""

    def load(self) -> State | None:
        """The state to go on from; None if there is no file."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        saved = _read(self._path, content)
        self.steps = saved.steps
        log.log(
            logging.WARNING if saved.since else logging.INFO,
            "%s: epoch %s goes on after step %d; %d steps that were delivered after it are done again",
            self._path, saved.state["epoch"], saved.steps, saved.since,
        )  # fmt: skip
        return saved.state

    def counter(self, state: Callable[[], tuple[State, int]]) -> Callable[[bool], None]:
        """What to call after each batch of an epoch that begins or goes on, and with True at its end.

        `state` gives the state to write, and how many of these batches the caller does not have at that place.
        """
        before, self.steps = self.steps, 0
        seen = 0

        def count(ended: bool) -> None:
            nonlocal seen
            if ended:
                if self._since:
                    now, held = state()
                    self._save(now, before + seen - held if held else 0)  # (0: before the next epoch)
                return
            seen += 1
            self._made += 1
            if self._made % self._every == 0 or self._made == 1:  # the first one at once: trouble shows early
                now, held = state()
                self._save(now, before + seen - held)
            else:
                self._count_since()

        return count

    def counter_of(
        self, epoch: "weakref.ref[Epoch[Any]]", state_of_loader: Callable[..., State]
    ) -> Callable[[bool], None]:
        """The same for an epoch of a Loader, where something may take batches ahead of the caller."""

        def state() -> tuple[State, int]:
            running = epoch()
            if running is None or running.handed_over is None or running.handed_over.state is None:
                return state_of_loader(ahead=True), 0
            return running.handed_over.state, running.handed - running.handed_over.count

        return self.counter(state)

    def _count_since(self) -> None:
        self._since += 1
        if self._file is not None:
            handle, place = self._file
            try:
                os.pwrite(handle, f"{self._since:{WIDTH}}".encode(), place)
            except OSError as error:
                self._complain(error)

    def _save(self, state: State, steps: int) -> None:
        text = f'{json.dumps({**state, "steps": steps})[:-1]}, "since": '.encode()
        try:
            with atomic_write(str(self._path), "wb", sync=True) as file:
                file.write(text + f"{0:{WIDTH}}}}".encode())
            handle = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            self._complain(error)
            self._count_since()
            return
        self.close()
        self._closing = weakref.finalize(self, os.close, handle)
        self._file = handle, len(text)
        self._saved, self._since = self._made, 0
        if self.trouble:
            log.warning("%s is written again", self._path)
            self.trouble = ""

    def _complain(self, error: OSError) -> None:
        if not self.trouble:
            kept = f"the one after {self._saved} steps is kept" if self._saved else "there is none yet"
            log.warning(
                "%s: no snapshot could be written (%s): %s, the epoch goes on, and it is tried again every %d batches; "
                "make room there", self._path, error, kept, self._every,
            )  # fmt: skip
        self.trouble = f"{self._path}: {error}"

    def close(self) -> None:
        """Close the file: `since` is counted no more."""
        self._file = None
        self._closing()
        self._closing = lambda: None


class Saved(NamedTuple):
    """What a file says."""

    state: State
    steps: int
    since: int


def _read(path: Path, content: bytes) -> Saved:
    try:
        state = json.loads(content)
    except (ValueError, RecursionError) as broken:
        raise SnapshotRefused(f"{path} is not a snapshot ({broken}); delete it to start anew") from broken
    if isinstance(state, dict) and isinstance(state.get("epoch"), int):
        steps, since = state.pop("steps", 0), state.pop("since", 0)  # (a snapshot that the user has put there has none)
        attempt = state.pop("attempt", {"ranks": 1})  # (headrace 0.2)
        if all(isinstance(count, int) and count >= 0 for count in (steps, since)) and isinstance(attempt, dict):
            if attempt.get("ranks") == 1:
                return Saved(state, steps, since)
            raise SnapshotRefused(
                f"{path} was written by one of {attempt.get('ranks')} ranks, and autosave= is for one process; go on "
                "from the state in a checkpoint, or delete the file to start anew"
            )
    raise SnapshotRefused(f"{path} is not a snapshot; delete it to start anew")
