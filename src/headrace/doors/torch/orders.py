"""Orders: the indices that torch's own samplers give, bit for bit, with a way to go on from the middle.

Only samplers of exactly torch's classes are known here; a subclass may do anything and is iterated as it is. An order
draws when torch's sampler would draw, from the same generator, the same numbers.

    take(n)   the next n indices, fewer at the end
    raw(n)    the same as bytes, 64 bits each, if the order is `packed`: workers make numbers of them, not the consumer
    skip(n)   leave n out: one permutation, or one bulk draw, and no index by index
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from headrace.doors.torch.fetch import WIDTH, numbers
from headrace.doors.torch.seeds import base_seed

CHUNK = 32
"""Indices that RandomSampler draws at a time when it draws with replacement."""
IN_A_ROW = 1 << 14
"""Indices of SequentialSampler that are made at a time; for many more torch would start threads."""


class Plain:
    """Any iterable."""

    packed = False

    def __init__(self, sampler: Any) -> None:
        self._indices = iter(sampler)

    def take(self, n: int) -> list[Any]:
        return list(islice(self._indices, n))

    def skip(self, n: int) -> int:
        """How many there were to leave out."""
        left = n
        while left and (block := len(self.take(min(left, 65536)))):
            left -= block
        return n - left


class IndexChunks:
    """Tensors of indices, drawn one after the other when they are needed."""

    packed = True
    """What `raw` gives are the indices."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._tensors: Iterator[torch.Tensor] | None = None
        self._now = memoryview(b"")
        """The last one, as bytes, and how far it is used."""
        self._at = 0
        self._bulk = 0
        """So many indices are about to be left out: the next tensor may be a large one."""

    def _draw(self) -> Iterator[torch.Tensor]:
        raise NotImplementedError

    def take(self, n: int) -> list[Any]:
        return numbers(self.raw(n))

    def raw(self, n: int) -> bytes:
        wanted = n * WIDTH
        taken = bytes(self._now[self._at : self._at + wanted])
        self._at += len(taken)
        while len(taken) < wanted and self._next():
            part = bytes(self._now[: wanted - len(taken)])
            self._at = len(part)
            taken += part
        return taken

    def skip(self, n: int) -> int:
        left = n
        while left:
            self._bulk = left
            if self._at >= len(self._now) and not self._next():
                break
            step = min(left, (len(self._now) - self._at) // WIDTH)
            self._at += step * WIDTH
            left -= step
        self._bulk = 0
        return n - left

    def _next(self) -> bool:
        if self._tensors is None:
            self._tensors = self._draw()
        found = next(self._tensors, None)
        if found is None:
            return False
        array: Any = found.cpu().numpy()
        self._now, self._at = memoryview(array).cast("B"), 0
        return True


class Sequential(IndexChunks):
    """SequentialSampler."""

    _made = 0
    """Indices that are made, or left out."""

    def _draw(self) -> Iterator[torch.Tensor]:
        length = len(self._sampler.data_source)
        while self._made < length:
            first, self._made = self._made, min(length, self._made + IN_A_ROW)
            yield torch.arange(first, self._made)

    def skip(self, n: int) -> int:
        """What is left out is not made."""
        at = self._made - (len(self._now) - self._at) // WIDTH
        stop = min(at + n, len(self._sampler.data_source))
        self._made, self._at = stop, len(self._now)
        return stop - at


class Random(IndexChunks):
    """RandomSampler, with or without replacement."""

    def _draw(self) -> Iterator[torch.Tensor]:
        sampler = self._sampler
        n = len(sampler.data_source)
        draw = sampler.generator
        if draw is None:
            draw = torch.Generator()
            draw.manual_seed(base_seed(None))
        if not sampler.replacement:
            for _ in range(sampler.num_samples // n):
                yield torch.randperm(n, generator=draw)
            # One more is always drawn, even where none of it is needed.
            yield torch.randperm(n, generator=draw)[: sampler.num_samples % n]
            return
        chunks = sampler.num_samples // CHUNK
        while chunks:
            # One large draw gives the same numbers as many small ones.
            step = max(1, min(chunks, self._bulk // CHUNK))
            yield torch.randint(n, (CHUNK * step,), dtype=torch.int64, generator=draw)
            chunks -= step
        yield torch.randint(n, (sampler.num_samples % CHUNK,), dtype=torch.int64, generator=draw)


class Subset(IndexChunks):
    """SubsetRandomSampler: what it draws are places in its own list of indices, which may be anything."""

    packed = False

    def _draw(self) -> Iterator[torch.Tensor]:
        yield torch.randperm(len(self._sampler.indices), generator=self._sampler.generator)

    def take(self, n: int) -> list[Any]:
        indices = self._sampler.indices
        return [indices[i] for i in super().take(n)]


class WeightedDraws(IndexChunks):
    """WeightedRandomSampler."""

    def _draw(self) -> Iterator[torch.Tensor]:
        s = self._sampler
        yield torch.multinomial(s.weights, s.num_samples, s.replacement, generator=s.generator)


KNOWN: dict[type, Any] = {
    SequentialSampler: Sequential,
    RandomSampler: Random,
    SubsetRandomSampler: Subset,
    WeightedRandomSampler: WeightedDraws,
}


def permuted(sampler: object) -> int | None:
    """Among how many samples a sampler draws, if it is one of torch's whose order follows from that number."""
    if type(sampler) is RandomSampler:
        return len(sampler.data_source)
    if type(sampler) is SubsetRandomSampler:
        return len(sampler.indices)
    if type(sampler) is DistributedSampler and sampler.shuffle:
        return len(sampler.dataset)  # type: ignore[arg-type]
    return len(sampler.weights) if type(sampler) is WeightedRandomSampler else None


def order_of(sampler: object) -> Any:
    """The indices of one epoch."""
    return KNOWN.get(type(sampler), Plain)(sampler)
