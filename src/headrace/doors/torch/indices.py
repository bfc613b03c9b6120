"""Indices: what the consumer lists for the workers, batch by batch, and how to list it again from the middle.

A sampler may draw random numbers when it is iterated, at its first index, or at every index, from its own generator,
the loader's or the global ones, and it runs ahead of what was delivered. So a snapshot holds what all of that stood at
*before* the epoch (`start_of`) and how many batches were delivered; resuming goes through the same moments in the same
order (`begin`).
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from headrace.doors.torch import seeds as seeds
from headrace.doors.torch.fetch import WIDTH, told
from headrace.doors.torch.orders import KNOWN, SamplerOrder, permuted
from headrace.doors.torch.state import UNCOUNTED, LoaderPlace, MapPlace, StreamPlace
from headrace.doors.torch.stream import stateful
from headrace.errors import SnapshotRefused
from headrace.sources.listed import ListedItems

if TYPE_CHECKING:
    from headrace.doors.torch.loader import DataLoader


class _Drawn(NamedTuple):
    """Where the epoch stands behind a batch of indices that the sampler has given."""

    number: int
    """How many batches, this one included."""
    samples: int
    """How many samples in them."""
    state: Any
    """The state of the sampler's iterator, if it has one."""


class Indices(Iterator[Any]):
    """Tickets `(first, index, packed)` of one epoch (see `fetch`)."""

    def __init__(self, index_sampler: Any, iterator: Any, batched: bool, keep: int) -> None:
        self._iterator = iterator
        self._batched = batched
        known = type(index_sampler) is BatchSampler if batched else type(index_sampler) in KNOWN
        self._sampler = index_sampler.sampler if known and batched else index_sampler
        self._order = SamplerOrder(self._sampler, packed=batched) if known else None
        """In place of the iterator, where the order is torch's own."""
        self._size = index_sampler.batch_size if known and batched else 1
        self._sized_by = index_sampler if known and batched and not index_sampler.drop_last else None
        """A batch sampler that looks at its `batch_size` for each batch."""
        self._fewest = self._size if known and batched and index_sampler.drop_last else 1
        """Indices that a batch of a known order must have."""
        self._began = (0, 0)
        """How many batches were delivered before this process began, and how many samples in them."""
        self._packed = self._order is not None and self._order.packed
        self._width = WIDTH if self._packed else 1
        self._stateful = stateful(iterator)
        self._drawn = deque([_Drawn(0, 0, None)], maxlen=keep)
        """The last batches."""
        self._batch: Any = None
        """The one drawn last, if it is not given out: `(first, index, packed)`, or the error that is raised there."""
        self.given = 0
        """How many are given out."""

    def __next__(self) -> Any:
        if self.given == self._drawn[-1].number:
            self._draw()
        batch, self._batch = self._batch, None  # (an error's frames hold the iterator, which must be able to end)
        self.given += 1
        if isinstance(batch, Exception):
            raise batch
        return batch

    def close(self) -> None:
        """The epoch is left: the sampler's iterator ends now, as in torch, and not when the collector comes."""
        self._iterator = None
        if self._order is not None:
            self._order.close()

    def _draw(self) -> None:
        """Ask the sampler for the next batch, or for the error that is raised in its place."""
        last = self._drawn[-1]
        try:
            if self._order is None:
                index = next(self._iterator)
                count = self._length(index)
            else:
                if self._sized_by is not None:
                    self._size = self._sized_by.batch_size
                index = self._order.take(self._size)
                count = len(index) // self._width
                if count < self._fewest:
                    raise StopIteration
                if not self._batched:
                    index = index[0]
            self._batch = (last.samples, index, self._packed)
        except StopIteration:
            raise
        except Exception as error:
            self._batch, count = error, 0
        self._note(last.number + 1, last.samples + count)

    def _length(self, index: Any) -> int:
        try:
            return len(index) if self._batched else 1
        except TypeError:
            return 1

    def _note(self, number: int, samples: int) -> None:
        state = told(self._iterator, deepcopy) if self._stateful else None
        self._drawn.append(_Drawn(number, samples, state))

    def at(self, number: int) -> tuple[int, Any]:
        """The samples in the first `number` batches, and the state of the sampler's iterator after them."""
        for drawn in self._drawn:
            if drawn.number == number:
                return drawn.samples, drawn.state
        batches, samples = self._began
        return samples + (number - batches) * self._size, None

    def go_to(self, at: MapPlace) -> None:
        """Go on from a place of a snapshot."""
        now = self.permuted
        if at.among is not None and now is not None and at.among != now:
            raise SnapshotRefused(
                f"the state stands inside an epoch in which {type(self._sampler).__name__} drew among {at.among} "
                f"samples, and there are {now} now: that is another order, in which some samples would come twice and "
                f"others never. Go on with the data as it was, or begin the next epoch without this state"
            )
        samples = at.samples
        if at.iterator is not None and self._stateful:
            self._iterator.load_state_dict(at.iterator)
        elif self._order is not None:
            # The batch size may be another one now: what counts is how many samples were delivered.
            if at.done and at.size not in (None, self.size):
                raise SnapshotRefused(
                    "the state stands where some batches have come before their turn (in_order=False), and batches "
                    "have another size now: load it with the batch_size that it was taken with"
                )
            found = self._order.skip(samples)
            if found < samples:
                raise SnapshotRefused(
                    f"the snapshot stands at sample {samples}, but the sampler gives only {found} now"
                )
        else:
            passed: list[int] = []
            with suppress(StopIteration):
                while len(passed) < at.batches:
                    passed.append(self._length(next(self._iterator)))
            if len(passed) < at.batches:
                raise SnapshotRefused(
                    f"the snapshot stands at batch {at.batches}, but the sampler gives only {len(passed)} now"
                )
            samples = sum(passed)
            if at.size == 0 and not at.done and at.samples not in (samples, UNCOUNTED):
                raise SnapshotRefused(
                    f"the {at.batches} batches before the state had {at.samples} samples, and the sampler gives "
                    f"{samples} in as many now: some would come twice, or never. Load it with the sampler as it was"
                )
        self._began = (at.batches, samples)
        self._note(at.batches, samples)
        self.given = at.batches
        self.peek()

    @property
    def size(self) -> int:
        """Samples in each batch; 0 where only the sampler knows."""
        return 0 if self._order is None else self._size

    @property
    def permuted(self) -> int | None:
        """Among how many samples a random sampler draws."""
        return permuted(self._sampler)

    def peek(self) -> None:
        """Draw the next index now: samplers that draw random numbers at their first index draw them all then."""
        if self.given == self._drawn[-1].number:
            with suppress(StopIteration):
                self._draw()


class IndexLists:
    """The list of the epoch that is about to begin; the loader, which asks for it, outlives epochs."""

    def __init__(self, sampler: object) -> None:
        self.sampler = sampler
        self.now: Indices | None = None

    def open(self, epoch: int, number: int) -> Iterator[Any]:
        assert self.now is not None
        assert self.now.given == number
        return self.now


class ListedIndices(ListedItems[Any]):
    """The indices that a sampler gives: whoever reads of them is told which sampler."""

    __slots__ = ()

    def describe(self) -> str:
        assert isinstance(self.items, IndexLists)
        return f"listed({type(self.items.sampler).__name__})"


# --- what a sampler draws from ----------------------------------------------------------------------------------------


def start_of(loader: "DataLoader[Any]", samplers: bool) -> dict[str, Any]:
    """Everything that the order of the epoch that is about to begin depends on, as far as it is plain data."""
    start: dict[str, Any] = {}
    if loader.generator is not None:
        start["loader"] = seeds.generator_state(loader.generator)
        start["once"] = loader._seeds_once
    if not samplers:
        return start
    for name, sampler in _samplers(loader):
        if stateful(sampler):
            start[f"{name} state"] = told(sampler, deepcopy)
        elif callable(getattr(sampler, "set_epoch", None)) and isinstance(getattr(sampler, "epoch", None), int):
            start[f"{name} epoch"] = sampler.epoch
        own = getattr(sampler, "generator", None)
        if isinstance(own, torch.Generator):
            if own is not loader.generator:
                start[f"{name} generator"] = seeds.generator_state(own)
        elif type(sampler) in KNOWN:
            if type(sampler) is not SequentialSampler:
                start["torch"] = seeds.generator_state()
        elif type(sampler) not in (BatchSampler, DistributedSampler) and not stateful(sampler):
            start["torch"], start["others"] = seeds.generator_state(), seeds.global_others()
        if kept := {
            key: seeds.own_state(one) for key, one in seeds.own_generators(sampler) if one is not loader.generator
        }:
            start[f"{name} generators"] = kept
    return start


def set_back(loader: "DataLoader[Any]", start: dict[str, Any]) -> None:
    """Put generators and samplers back to the start of the epoch."""
    if loader.generator is not None and "loader" in start:
        seeds.set_generator_state(start["loader"], loader.generator)
    for name, sampler in _samplers(loader):
        if f"{name} state" in start:
            if not stateful(sampler):
                raise SnapshotRefused(
                    f"the snapshot holds the state of a {name}, but this one has no load_state_dict()"
                )
            sampler.load_state_dict(deepcopy(start[f"{name} state"]))
        if f"{name} epoch" in start and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(start[f"{name} epoch"])
        if f"{name} generator" in start and isinstance(getattr(sampler, "generator", None), torch.Generator):
            seeds.set_generator_state(start[f"{name} generator"], sampler.generator)
        kept = start.get(f"{name} generators", {})
        for key, one in seeds.own_generators(sampler):
            if key in kept:
                seeds.set_own_state(kept[key], one)
    if "torch" in start:
        seeds.set_generator_state(start["torch"])
    if "others" in start:
        seeds.set_global_others(start["others"])


def begin(loader: "DataLoader[Any]", start: dict[str, Any], at: LoaderPlace, keep: int = 2) -> Indices | None:
    """Begin the epoch of a snapshot once more: the indices of a map-style dataset from there on.

    Generators and samplers are left where an uninterrupted run would have them, global generators as they are.
    """
    outside = seeds.Globals()
    try:
        set_back(loader, start)
        iterator = iter(loader._index_sampler)
        seed_drawn, iterated = at.drawn
        if seed_drawn:
            seeds.base_seed(loader.generator)
        if iterated == 2:
            iterator = iter(loader._index_sampler)
        if isinstance(at, StreamPlace):
            return None
        indices = Indices(loader._index_sampler, iterator, loader._auto_collation, keep)
        indices.go_to(at)
        return indices
    finally:
        outside.put_back()


def _samplers(loader: "DataLoader[Any]") -> list[tuple[str, Any]]:
    """The sampler that is iterated, the one that it reads, and so on, each under its name in a snapshot."""
    found: list[Any] = [loader._index_sampler]
    while (inner := _read_by(found[-1])) is not None and all(inner is not one for one in found):
        found.append(inner)
    first = ["batch sampler"] if loader._auto_collation else []
    return list(zip([*first, "sampler", *(f"sampler {n}" for n in range(2, len(found) + 1))], found, strict=False))


def _read_by(sampler: Any) -> Any:
    """The sampler inside of a sampler, if it is one that says so by the usual names."""
    inside = (getattr(sampler, name, None) for name in ("sampler", "batch_sampler"))
    return next((inner for inner in inside if inner is not None and not callable(inner)), None)
