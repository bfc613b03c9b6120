"""Stream: an iterable-style dataset as one strand per worker, read and batched as torch's fetcher does it.

batch   up to `batch_size` samples; an empty one ends the strand, a short last one is dropped if asked for
error   of the user's code: the strand goes on behind it, as torch's worker does; before ops that mix samples it is
        the end of the strand
state   what the `state_dict()` of the dataset or of its iterator gave, as often as 5 % of the time allows, and how
        many batches were read since; a dataset that has none is read again from the start. It is taken when the
        dataset is opened and behind the last batch, too
"""

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from headrace.doors.torch.context import WorkerContext
from headrace.doors.torch.fetch import Untold, told
from headrace.doors.torch.numpy_collate import is_default_collate
from headrace.engine.feeds.place import chain
from headrace.engine.feeds.strands import InStrands, Strand
from headrace.engine.places import RunPlace
from headrace.engine.wire import codec
from headrace.errors import SnapshotRefused
from headrace.op import Here, Source, place
from headrace.plan.seed import key, seed_globals

MOST_TRIES = 1000
"""Errors for each batch that is read again, after which a dataset counts as one that only fails."""
LARGEST_STATE = 100_000
"""Bytes; a larger state would not fit in a reply, so the one before it is kept and more batches are read again."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream(Source[Any]):
    """A dataset that every worker reads whole, in batches."""

    context: WorkerContext
    batch_size: int | None
    drop_last: bool
    keyed: bool
    """Seed the global generators before each batch."""
    single: bool = False
    """Samples as they are, for ops that mix them: not collated, and the first error is the last."""
    opens: bool = False
    every: int | None = None
    """The state is taken every so many batches; None: as often as time allows."""
    quiet = True
    batches = True
    divides = True

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return not self.single

    @property
    def fresh(self) -> bool:
        return self.batch_size is not None and is_default_collate(self.context.collate_fn)

    def flow(self, *inputs: Any) -> Iterator[Any]:
        (here,) = inputs
        return _Strand(self, here)

    def accepts(self, note: Any) -> bool:
        if note is None:
            return True
        counts = [note.get(name) for name in ("tries", "batches", "samples")] if isinstance(note, dict) else []
        return (
            len(counts) == 3
            and all(isinstance(n, int) and n >= 0 for n in counts)
            and all(isinstance(note.get(name), bool) for name in ("ended", "epoch over"))
            and {"dataset", "iterator"} <= note.keys()
        )

    def describe(self) -> str:
        return f"DataLoader over {type(self.context.dataset).__qualname__}"


class _Strand(Iterator[Any]):
    """One worker's batches."""

    def __init__(self, op: Stream, here: Here) -> None:
        here.seed = key(here.seed, "strand", here.strand)
        self._op = op
        self._here = here
        note = here.note or {"tries": 0, "batches": 0, "samples": 0, "ended": False}
        self._tries: int = note["tries"]
        """Batches, and errors in their places."""
        self._batches: int = note["batches"]
        self._position: int = note["samples"]
        self._ended: bool = note["ended"]
        self._end_noted = False
        self._stateful: dict[str, Any] = {}
        """The dataset and its iterator, as far as they have a state."""
        self._cost = self._looked = 0.0
        """Seconds that taking the state took, and when that was."""
        self._samples: Any = None if self._ended else self._opened()

    def __next__(self) -> Any:
        # What lies between the last note and the place of the snapshot, or of a worker's death, is read again.
        while self._batches < self._here.emitted:
            self._again()
        return self._next_batch()

    def _again(self) -> None:
        try:
            self._next_batch()
        except StopIteration:
            raise
        except Exception:
            # It was raised when its turn came; one that comes for ever did not.
            if self._tries > MOST_TRIES * (1 + self._here.emitted):
                raise

    def _next_batch(self) -> Any:
        if self._op.keyed and self._tries:  # (the first one goes on behind the opening)
            seed_globals(key(self._here.seed, "batch", self._tries))
        try:
            batch = self._read()
            self._batches += 1
        except StopIteration:
            if self._stateful and not self._end_noted:
                self._ended = self._end_noted = True
                self._note_state()
            raise
        except Exception:
            self._tries += 1
            raise
        self._tries += 1
        if self._stateful:
            # (Also behind the first batch: until then a dataset may still have the state of the epoch before.)
            self._note_state(asked=self._tries == 1)
        return batch

    def _read(self) -> Any:
        """The next batch or sample."""
        place.at(self._here, self._position)
        if self._ended:
            raise StopIteration
        size = self._op.batch_size
        if size is None:
            try:
                sample = next(self._samples)
            except StopIteration:
                self._ended = True  # an iterator that is asked once more may give what belongs to the next epoch
                raise
            self._position += 1
            return sample if self._op.single else self._collated(sample)
        batch: list[Any] = []
        while len(batch) < size:
            try:
                batch.append(next(self._samples))
            except StopIteration:
                self._ended = True
                break
            self._position += 1
            place.at(self._here, self._position)
        if not batch or (self._op.drop_last and len(batch) < size):
            raise StopIteration
        return self._collated(batch)

    def _collated(self, batch: Any) -> Any:
        try:
            return self._op.context.collate_fn(batch)
        except StopIteration as error:
            # It would end the strand in silence.
            raise RuntimeError("collate_fn raised StopIteration") from error

    # --- state --------------------------------------------------------------------------------------------------------

    def _opened(self) -> Any:
        """The dataset's iterator."""
        place.at(self._here, self._position)
        if self._op.keyed:
            seed_globals(key(self._here.seed, "batch", self._tries))
        dataset, note = self._op.context.dataset, self._here.note
        if stateful(dataset):
            self._stateful["dataset"] = dataset
        samples = None if note is None else restored(dataset, note)
        if samples is None or (note is not None and note["epoch over"]):
            samples = iter(dataset)
        if stateful(samples):
            if samples is dataset:
                self._stateful.clear()
            self._stateful["iterator"] = samples
        elif note is not None and note["samples"] == 0:
            samples = _BegunAnew(samples, dataset)
        if self._op.opens and self._stateful:
            self._note_state()
        return samples

    def _note_state(self, asked: bool = True) -> None:
        """Note where the dataset stands, unless that takes too much of the time."""
        now = time.perf_counter()
        if self._op.every:
            due = self._tries % self._op.every == 0
        else:
            due = now - self._looked >= 20 * self._cost
        if not due and not asked:
            return
        # (Packed, and opened again: what the dataset goes on changing is not the state of this moment.)
        states = {name: told(one, codec.pack_state) for name, one in self._stateful.items()}
        packed = {name: state for name, state in states.items() if isinstance(state, bytes)}
        if sum(map(len, packed.values())) <= LARGEST_STATE:
            note = {
                "tries": self._tries,
                "batches": self._batches,
                "samples": self._position,
                "ended": self._ended,
                "epoch over": False,
                "dataset": None,
                "iterator": None,
                **states,
                **{name: codec.unpack_state(state) for name, state in packed.items()},
            }
            self._here.rest(note)
        self._looked = time.perf_counter()
        self._cost = self._looked - now


class _BegunAnew(Iterator[Any]):
    """The samples of an epoch of which nothing was read yet, by a dataset that has just loaded its state.

    That may be the state in which it ended the epoch before: many datasets go back to the start only when the next
    epoch begins. So if nothing is left, they begin it.
    """

    def __init__(self, samples: Any, dataset: Any) -> None:
        self._samples = samples
        self._dataset = dataset
        self._begun = False

    def __next__(self) -> Any:
        begun, self._begun = self._begun, True
        try:
            return next(self._samples)
        except StopIteration:
            if begun:
                raise
            self._samples = iter(self._dataset)
        return next(self._samples)


def restored(dataset: Any, note: dict[str, Any]) -> Any:
    """Bring a dataset to where a note was taken; the iterator, if the note has a state of it."""
    for name in ("dataset", "iterator"):
        if isinstance(note[name], Untold):
            raise SnapshotRefused(note[name].why)
    note = deepcopy(note)  # a dataset may change the state that it is given
    if note["dataset"] is not None:
        dataset.load_state_dict(note["dataset"])
    if note["iterator"] is None:
        return None
    samples: Any = iter(dataset)
    samples.load_state_dict(note["iterator"])
    return samples


def next_epoch(place: RunPlace) -> RunPlace | None:
    """The start of the epoch after one that is at its end here, with the states of datasets and iterators.

    None if there are none.
    """
    if not isinstance(place.place, InStrands):
        return None
    strands = [strand.state for strand in place.place.strands]
    notes: list[Any] = [None if state is None else state[2] for state in strands]
    if not any(notes):
        return None
    begin = {"tries": 0, "batches": 0, "samples": 0, "ended": False, "epoch over": True}
    kept = [note and {**note, **begin} for note in notes]
    return RunPlace(InStrands(0, tuple(Strand(state=[0, 0, note, 0, []]) for note in kept)))


def behind_samples(place: RunPlace | None) -> bool:
    """Whether a dataset goes on from a state that it had behind some samples, which are not read again."""
    if place is None or place.place is None:
        return False
    strands = [strand for at in chain(place.place) if isinstance(at, InStrands) for strand in at.strands]
    states = [strand.state for strand in strands]
    while states:
        if (state := states.pop()) is not None:
            _, _, note, _, below = state
            if isinstance(note, dict) and note.get("samples"):
                return True
            states += below or ()
    return False


def stateful(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))
