"""Autosave: snapshots written while the epoch runs, each whole or not at all.

A snapshot counts the batch that is about to be handed over as delivered; where batches are taken ahead of the caller
(copies to a device), the last one that the caller has. A new file replaces the old one in one step
(`sources.atomic`), so that a crash at any moment leaves a whole snapshot. If it cannot be written, the last whole file
stays, log and `stats()` say what is wrong, and the epoch goes on.

Ranks need not meet at every step, so one may be far behind another. Each writes how far it has come itself, rank 0 to
the file that was named, the others to files beside it; they do not communicate:

    run.json           rank 0 at step 4000
    run.json.rank1     rank 1 at step 2000
    run.json.rank2     rank 2 at step 4000         the next attempt goes on after step 2000, on all ranks

The next attempt reads all of them. Each file says where its attempt began, and on how many ranks, which tells several
attempts of a job apart. The attempt that began last counts. If all its ranks have written, the job goes on from the
earliest of their places, otherwise from where that attempt began; so no sample is passed over. All ranks find the same
place, however far others of them have come meanwhile: as long as the slowest has not written anything, the attempt
counts as just begun.

A file is a snapshot and a few numbers more: `steps` of the epoch that were delivered when it was taken, `since`, those
delivered after it, and `attempt`. `since` is kept up to date in place, at a fixed width, so that after a crash the next
attempt can say how many steps are done again.
"""

import glob
import hashlib
import json
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headrace.engine.places import EpochPlace, plain_epoch_place
from headrace.errors import BadOption, SnapshotRefused, check_whole
from headrace.sources.atomic import atomic_write, prepare

log = logging.getLogger("headrace")
WIDTH = 12

State = dict[str, Any]


class Saved(NamedTuple):
    """The file of one rank."""

    state: State
    steps: int
    """Steps of the epoch before this place."""
    since: int
    """Steps that were delivered after it."""
    rank: int
    made: int
    """Steps from where the attempt began to this place."""
    attempt: State
    """Where the attempt began (`epoch`, `at`, `steps`), on how many `ranks`, and its `job`."""

    @property
    def order(self) -> tuple[int, int]:
        """Orders the places of a job: later ones are larger."""
        return self.state["epoch"], self.steps

    @property
    def began(self) -> "Saved":
        """The place where its attempt began."""
        state = {**self.state, "epoch": self.attempt["epoch"], "at": self.attempt["at"]}
        return Saved(state, self.attempt["steps"], 0, self.rank, 0, self.attempt)


class Autosave:
    """Writes a snapshot every so many batches, if this is one of the `ranks` that write; `job` tells attempts apart."""

    def __init__(self, path: str | os.PathLike[str], every: int, rank: int = 0, ranks: int = 1, job: str = "") -> None:
        path = Path(path)
        check_whole("every", every, 1)
        if not path.parent.is_dir():
            raise BadOption(f"autosave={str(path)!r}: there is no folder {str(path.parent)!r}; make it first")
        self._path = path
        self._every = every
        self._rank = rank
        self._ranks = ranks
        self._job = hashlib.blake2b(job.encode(), digest_size=6).hexdigest()
        self._mine = path if rank == 0 else path.with_name(f"{path.name}.rank{rank}")
        if self._writes:
            try:
                prepare(str(path.parent))
            except OSError as error:
                raise BadOption(
                    f"autosave: no file can be written to {str(path.parent)!r} ({error}); choose another"
                ) from None
        self._attempt: State = {}
        self._steps = 0
        """Steps of the epoch that were made before this process began."""
        self._made = self._saved = self._since = 0
        """Steps of this process: all, those before the last whole file, those after it."""
        self._file: tuple[int, int] | None = None
        """The descriptor of the last whole file, and the offset of `since` in it."""
        self._closing: Callable[[], object] = lambda: None
        self.form: Callable[[], State] | None = None
        """Set by a door that keeps more than its loader knows: gives the whole state, in place of the loader's."""
        self.trouble = ""
        """Why the last snapshot could not be written."""

    @classmethod
    def of(
        cls, given: "str | os.PathLike[str] | Autosave", every: int, rank: int, ranks: int, job: str
    ) -> tuple["Autosave", State | None]:
        """The autosave of a loader, and the snapshot to go on from. A door that gives an `Autosave` has loaded it."""
        if isinstance(given, Autosave):
            return given, None
        made = cls(given, every, rank, ranks, job)
        return made, made.load()

    @property
    def _writes(self) -> bool:
        """Whether this rank writes."""
        return self._rank < self._ranks

    def load(self) -> State | None:
        """The snapshot that all ranks go on from, or None."""
        if not self._path.exists():
            return None  # the user has removed it to start anew, whatever files of other ranks are left
        found = [saved for path in (self._path, *self._others()) if (saved := _read(path)) is not None]
        if not found:
            return None
        last = max(saved.began.order for saved in found)
        attempts = _attempts([saved for saved in found if saved.began.order == last])
        whole = next((ranks for ranks in attempts if len(ranks) == ranks[0].attempt["ranks"]), None)
        place = attempts[0][0].began if whole is None else min(whole, key=lambda saved: saved.order)
        again = max(saved.made + saved.since - place.made for ranks in attempts for saved in ranks)
        self._steps = place.steps
        if self._rank == 0:
            log.log(
                logging.WARNING if again else logging.INFO,
                "%s: epoch %s goes on after step %d; %d steps that were delivered after it are done again",
                self._path, place.state["epoch"], place.steps, again,
            )  # fmt: skip
        return place.state

    def _others(self) -> Iterator[Path]:
        """The files of ranks other than the first."""
        return self._path.parent.glob(f"{glob.escape(self._path.name)}.rank*")

    def counter(
        self, epoch: int, at: EpochPlace | None, state: Callable[[], tuple[State, int]]
    ) -> Callable[[bool], None]:
        """What to call after each batch of an epoch that begins (`at` is None) or goes on, and with True at its end.

        `state` gives the state to write, and how many of these batches the caller does not have at that place.
        """
        before, self._steps = self._steps, 0
        seen = 0
        if not self._attempt:
            self._attempt = {
                "epoch": epoch, "at": None if self.form else plain_epoch_place(at), "steps": before,
                "ranks": self._ranks, "job": self._job,
            }  # fmt: skip

        def count(ended: bool) -> None:
            nonlocal seen
            if not self._writes:
                return
            if ended:
                if self._since and self.form is None:  # (a door that keeps more is not at its end yet)
                    now, held = state()
                    self._save(now, before + seen - held if held else 0, held)  # (0: before the next epoch)
                return
            seen += 1
            self._made += 1
            # The first one is written at once: trouble shows early, and this attempt can be told from the last one.
            if self._made % self._every == 0 or self._made == 1:
                now, held = state() if self.form is None else (self.form(), 0)
                self._save(now, before + seen - held, held)
            else:
                self._count_since()

        return count

    def _count_since(self) -> None:
        self._since += 1
        if self._file is not None:
            handle, place = self._file
            try:
                os.pwrite(handle, f"{self._since:{WIDTH}}".encode(), place)
            except OSError as error:
                self._complain(error)

    def _save(self, state: State, steps: int, held: int) -> None:
        attempt = {"rank": self._rank, "made": self._made - held, **self._attempt}
        text = f'{json.dumps({**state, "steps": steps, "attempt": attempt})[:-1]}, "since": '.encode()
        try:
            with atomic_write(str(self._mine), "wb", sync=True) as file:
                file.write(text + f"{0:{WIDTH}}}}".encode())
            handle = os.open(self._mine, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            self._complain(error)
            self._count_since()
            return
        self.close()
        self._closing = weakref.finalize(self, os.close, handle)
        self._file = handle, len(text)
        first, self._saved = not self._saved, self._made
        self._since = 0
        if self.trouble:
            log.warning("%s is written again", self._mine)
            self.trouble = ""
        if first and self._rank == 0:
            for path in self._others():  # of an earlier attempt on more ranks: they count no more
                if not path.name.endswith(tuple(f".rank{rank}" for rank in range(1, self._ranks))):
                    path.unlink(missing_ok=True)

    def _complain(self, error: OSError) -> None:
        if not self.trouble:
            kept = f"the one after {self._saved} steps is kept" if self._saved else "there is none yet"
            log.warning(
                "%s: no snapshot could be written (%s): %s, the epoch goes on, and it is tried again every %d batches; "
                "make room there", self._mine, error, kept, self._every,
            )  # fmt: skip
        self.trouble = f"{self._mine}: {error}"

    def next_epoch(self) -> None:
        """Nothing was left of the epoch in the file: the next one begins at its start."""
        self._steps = 0

    def leave(self) -> None:
        """The loader is closed. (A door makes one loader after the other, and goes on counting.)"""
        if self.form is None:
            self.close()

    def close(self) -> None:
        """Close the file: `since` is counted no more."""
        self._file = None
        self._closing()
        self._closing = lambda: None


def _read(path: Path) -> Saved | None:
    """The contents of a file; None if it was removed meanwhile."""
    try:
        state = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as broken:
        raise SnapshotRefused(f"{path} is not a snapshot ({broken}); delete it to start anew") from broken
    refused = SnapshotRefused(f"{path} is not a snapshot; delete it to start anew")
    if not isinstance(state, dict) or not isinstance(state.get("epoch"), int):
        raise refused
    steps, since = (_count(state.pop(name, 0), refused) for name in ("steps", "since"))
    attempt = state.pop("attempt", None)
    if attempt is None:  # a snapshot that the user has put there, or version 0.1
        attempt = {"rank": 0, "made": 0, "epoch": state["epoch"], "at": state.get("at"), "steps": steps, "ranks": 1}
    if not isinstance(attempt, dict) or "at" not in attempt:
        raise refused
    rank, made = (_count(attempt.pop(name, None), refused) for name in ("rank", "made"))
    for name in ("epoch", "steps", "ranks"):
        _count(attempt.get(name), refused)
    return Saved(state, steps, since, rank, made, attempt)


def _count(value: object, refused: SnapshotRefused) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise refused
    return value


def _attempts(found: list[Saved]) -> list[list[Saved]]:
    """Group files by attempt. (Two attempts can have begun at one place, if the first of them saved nothing new.)"""
    attempts: dict[tuple[int, str], list[Saved]] = {}
    for saved in found:
        attempts.setdefault((saved.attempt["ranks"], str(saved.attempt.get("job"))), []).append(saved)
    return list(attempts.values())
