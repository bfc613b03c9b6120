"""Fetch: the samples of one batch of indices from a map-style dataset, collated.

A ticket is `(first, index, packed)`:

    first    the number of the batch's first sample in the epoch, which `headrace.rng()` is keyed by
    index    what the batch sampler gave (or, without batches, the sampler); with `packed`, its numbers as bytes

An error gains a note that names the index.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headrace.doors.torch.numpy_collate import default_collate, unlike
from headrace.engine.wire.codec import pack_state
from headrace.op import Each, place

SHOWN = 8
"""Indices of a batch that an error names."""
WIDTH = 8
"""Bytes of a packed index."""


def numbers(packed: bytes) -> list[int]:
    """The indices of a packed ticket."""
    return memoryview(packed).cast("q").tolist()


@dataclass(frozen=True, slots=True, eq=False)
class Skipped:
    """An item of the stream that is no batch: one that was delivered before the snapshot, or a mark of a strand."""


SKIP = None
"""The ticket of a batch that was delivered before the snapshot was taken."""


class WithState(NamedTuple):
    """A batch, and the state of its worker's dataset after it."""

    batch: Any
    state: Any
    """Packed, or `Untold`."""


@dataclass(frozen=True, slots=True)
class Untold:
    """In place of a state that cannot be told: only who asks for the state of the loader is to hear of that."""

    why: str


class HasState(Protocol):
    def state_dict(self) -> Any: ...


def told(thing: HasState, keep: Callable[[Any], Any]) -> Any:
    """What `keep` makes of the state that a dataset or a sampler tells."""
    try:
        return keep(thing.state_dict())
    except Exception as error:
        why = f"the state_dict() of {type(thing).__qualname__} gives nothing that can be kept"
        return Untold(f"{why}: {type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True, eq=False)
class Fetch(Each[Any, Any]):
    """Read a batch of indices, or one index, and collate."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    batched: bool
    keeps_state: bool = False
    """Each batch comes `WithState`."""
    user = True

    def apply(self, sample: Any) -> Any:
        if sample is SKIP:
            return Skipped()
        first, index, packed = sample
        if packed:
            index = numbers(index)
        batch = self._batch(first, index)
        return WithState(batch, told(self.dataset, pack_state)) if self.keeps_state else batch

    def _batch(self, first: int, index: object) -> Any:
        if not self.batched:
            place.spot.position = first
            return self.collate_fn(self._one(index))
        dataset = self.dataset
        if getattr(dataset, "__getitems__", None):
            place.spot.position = first
            try:
                samples = dataset.__getitems__(index)
            except Exception as error:
                error.add_note(f"headrace: dataset.__getitems__({_brief(index)}) raised this")
                raise
        else:
            samples = self._each(dataset, first, index)
        place.spot.position = first
        try:
            return self.collate_fn(samples)
        except Exception as error:
            error.add_note(f"headrace: while the samples of indices {_brief(index)} were collated{self._why(samples)}")
            raise

    def _why(self, samples: Any) -> str:
        """What is wrong with samples that cannot be collated, where torch's rules are the only ones."""
        if self.collate_fn is not default_collate:
            return ""
        try:
            why = unlike(samples)
        except Exception:  # of a class of the user's, or a nested tensor, which does not even have a shape
            return ""
        return f": {why}" if why else ""

    def _each(self, dataset: Any, first: int, index: Any) -> list[Any]:
        samples: list[Any] = []
        spot, append = place.spot, samples.append
        spot.position = first
        at: Any = None
        try:
            for at in index:
                append(dataset[at])
                spot.position += 1
        except Exception as error:
            error.add_note(f"headrace: dataset[{at!r}] raised this, in the batch of indices {_brief(index)}")
            raise
        return samples

    def _one(self, index: object) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            error.add_note(f"headrace: dataset[{index!r}] raised this")
            raise

    def describe(self) -> str:
        return f"DataLoader over {type(self.dataset).__qualname__}"


def _brief(index: Any) -> str:
    try:
        many = list(index)
    except TypeError:
        return repr(index)
    shown = ", ".join(map(repr, many[:SHOWN]))
    return f"[{shown}]" if len(many) <= SHOWN else f"[{shown}, ... {len(many)} in all]"
