"""Orders: the indices that torch's own samplers give, bit for bit, with a way to go on from the middle.

Only samplers of exactly torch's classes are known here; a subclass may do anything and is iterated as it is. An order
draws when torch's sampler would draw, from the same generator, the same numbers.

    take(n)   the next n indices, fewer at the end
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

CHUNK = 32
"""Indices that RandomSampler draws at a time when it draws with replacement."""


class Plain:
    """Any iterable."""

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


class Sequential:
    """SequentialSampler."""

    def __init__(self, sampler: SequentialSampler) -> None:
        self._source = sampler.data_source
        self._indices: range | None = None

    def take(self, n: int) -> list[int]:
        indices = range(len(self._source)) if self._indices is None else self._indices
        self._indices = indices[n:]
        return list(indices[:n])

    def skip(self, n: int) -> int:
        indices = range(len(self._source)) if self._indices is None else self._indices
        self._indices = indices[n:]
        return min(n, len(indices))


class IndexChunks:
    """Tensors of indices, drawn one after the other when they are needed."""

    def __init__(self) -> None:
        self._tensors: Iterator[Any] | None = None
        self._now = torch.empty(0, dtype=torch.int64)
        self._at = 0

    def _draw(self) -> Iterator[Any]:
        raise NotImplementedError

    def _index(self, numbers: list[int]) -> list[Any]:
        return numbers

    def take(self, n: int) -> list[Any]:
        taken: list[int] = []
        while len(taken) < n:
            if self._at >= len(self._now) and not self._next():
                break
            part = self._now[self._at : self._at + n - len(taken)].tolist()
            self._at += len(part)
            taken += part
        return self._index(taken)

    def skip(self, n: int) -> int:
        left = n
        while left:
            if self._at >= len(self._now) and not self._next(left):
                break
            step = min(left, len(self._now) - self._at)
            self._at += step
            left -= step
        return n - left

    def _next(self, ahead: int = 0) -> bool:
        """The next tensor; when `ahead` indices are left out anyway, it may be a large one."""
        if self._tensors is None:
            self._tensors = self._draw()
        self._bulk = ahead
        found = next(self._tensors, None)
        if found is None:
            return False
        self._now, self._at = found, 0
        return True


class Random(IndexChunks):
    """RandomSampler, with or without replacement."""

    def __init__(self, sampler: RandomSampler) -> None:
        super().__init__()
        self._sampler = sampler

    def _draw(self) -> Iterator[Any]:
        sampler = self._sampler
        n = len(sampler.data_source)
        draw = sampler.generator
        if draw is None:
            draw = torch.Generator()
            draw.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
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
    """SubsetRandomSampler."""

    def __init__(self, sampler: SubsetRandomSampler) -> None:
        super().__init__()
        self._sampler = sampler

    def _draw(self) -> Iterator[Any]:
        yield torch.randperm(len(self._sampler.indices), generator=self._sampler.generator)

    def _index(self, numbers: list[int]) -> list[Any]:
        indices = self._sampler.indices
        return [indices[i] for i in numbers]


class WeightedDraws(IndexChunks):
    """WeightedRandomSampler."""

    def __init__(self, sampler: WeightedRandomSampler) -> None:
        super().__init__()
        self._sampler = sampler

    def _draw(self) -> Iterator[Any]:
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
