"""Hugging Face: streams of data sets, of the hub or made in the program (`IterableDataset`).

A stream resumes from its own `state_dict`, which is taken every so many samples; samples after it are read again and
dropped. The state of a stream with a shuffle buffer leaves out what the buffer holds, so such a stream is read again
from its start. So is every stream if the installed `datasets` would lose samples (`states_are_exact`).
"""

import copy
import importlib.util
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.errors import MissingExtra
from headrace.op import Here, Source, place

STATE_EVERY = 256
"""Samples between two states: taking one costs about as much as several samples."""


def is_stream(data: object) -> bool:
    """Whether this is an `IterableDataset`. (If it is, `datasets` has been imported already.)"""
    module: Any = sys.modules.get("datasets")
    return module is not None and isinstance(data, module.IterableDataset)


def is_note(op: object, note: object) -> bool:
    """`accepts` of both sources: None, or [state, how many samples came before it]."""
    if note is None:
        return True
    return isinstance(note, list) and [type(part) for part in note] == [dict, int] and note[1] >= 0


@dataclass(frozen=True, slots=True, eq=False)
class HuggingFaceStream(Source[Any]):
    """The samples of an `IterableDataset`."""

    data: Any
    """An `IterableDataset`."""
    user = True
    verb = "huggingface"
    accepts = is_note
    divides = True

    def flow(self, here: Here) -> Iterator[Any]:
        # A copy: a data set keeps its state in itself, and several strands may read it in one process.
        return resumed_samples(copy.deepcopy(self.data), here)


@dataclass(frozen=True, slots=True)
class HuggingFace(Source[Any]):
    """The samples of `datasets.load_dataset(path, **options)`, streamed unless the options say otherwise."""

    path: str
    options: tuple[tuple[str, Any], ...] = ()
    verb = "huggingface"
    accepts = is_note
    divides = True

    def __post_init__(self) -> None:
        if importlib.util.find_spec("datasets") is None:
            raise MissingExtra("datasets is not installed; it comes with: pip install datasets")

    def flow(self, here: Here) -> Iterator[Any]:
        loaded = importlib.import_module("datasets").load_dataset(
            path=self.path, **{"streaming": True, **dict(self.options)}
        )
        return resumed_samples(loaded, here)


def resumed_samples(data: Any, here: Here) -> Iterator[Any]:
    """The samples of this strand, from where it was interrupted."""
    stream = data if is_stream(data) and not _has_buffer(data) and states_are_exact() else None
    state, before = (None, 0) if here.note is None else here.note
    first = 0
    if stream is not None and state is not None:
        stream.load_state_dict(state)
        first = before
    for number, sample in enumerate(data, first):
        if number < before:
            continue
        if number % here.strands == here.strand:
            place.at(here, number)
            yield sample
        if stream is not None and (number + 1) % STATE_EVERY == 0:
            here.rest([stream.state_dict(), number + 1])


@cache
def states_are_exact() -> bool:
    """Whether a stream that loads a state goes on right after the sample at which it was taken.

    Before release 4.8, a mapped stream of `datasets` goes on after the Arrow table that the sample was in: up to a
    thousand samples are lost.
    """
    datasets: Any = sys.modules["datasets"]

    def numbers() -> Any:
        return datasets.Dataset.from_dict({"n": [0, 1, 2]}).to_iterable_dataset().map(dict)

    stream, again = numbers(), numbers()
    next(iter(stream))
    again.load_state_dict(stream.state_dict())
    exact = bool(next(iter(again), None) == {"n": 1})
    if not exact:
        logging.getLogger("headrace").warning(
            "datasets %s loses samples when a stream goes on from its own state, so streams are read again from their "
            "start; with datasets 4.8 or newer they go on at once",
            datasets.__version__,
        )
    return exact


def _has_buffer(step: object) -> bool:
    """Whether this step of a stream, or one before it, holds samples in a shuffle buffer, which a state leaves out."""
    if type(step).__name__.startswith("BufferShuffled"):
        return True
    inner = getattr(step, "_ex_iterable", None), getattr(step, "ex_iterable", None), *getattr(step, "ex_iterables", ())
    return any(_has_buffer(other) for other in inner if other is not None)
