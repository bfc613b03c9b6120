"""Orders: the indices that torch's own samplers give, bit for bit, with a way to go on from the middle.

Only samplers of exactly torch's classes are known here; a subclass may do anything and is iterated as it is. An order
draws when torch's sampler would draw, from the same generator, the same numbers.
"""

from collections.abc import Callable, Generator, Iterator
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

from headrace.doors.torch.seeds import base_seed

CHUNK = 32
"""Indices that RandomSampler draws at a time when it draws with replacement."""
IN_A_ROW = 1 << 14
"""Indices of SequentialSampler that are made at a time; for many more torch would start threads."""
MOST = 1 << 16
"""Indices that are asked for at a time."""


class SamplerOrder:
    """The indices of one epoch.

    `packed`: numbers that torch draws are given as bytes, 64 bits each, and the worker makes the list.
    """

    def __init__(self, sampler: Any, packed: bool = False) -> None:
        self._sampler = sampler
        self.wanted = 0
        """How many indices are needed now."""
        self.length = None if packed or type(sampler) is not SequentialSampler else len(sampler.data_source)
        """torch asks for it when `iter()` is called, but only where samples are not batched."""
        self._chunks = KNOWN.get(type(sampler), _iterated)(sampler, self)
        self._now: Any = ()
        """The last chunk, and how far it is used."""
        self._at = 0
        self._asked = type(sampler) not in KNOWN
        """The sampler itself is iterated."""
        self._places = type(sampler) is SubsetRandomSampler
        """What is drawn are places in the sampler's own list of indices, which may be anything."""
        self.packed = packed and type(sampler) in KNOWN and not self._places

    def take(self, n: int) -> Any:
        """The next n indices, fewer at the end: a list, or bytes."""
        if self.packed:
            if self._at + n <= len(self._now):  # (nearly always)
                self._at += n
                return bytes(self._now[self._at - n : self._at])
            return b"".join(map(bytes, self._parts(n)))
        taken = [index for part in self._parts(n) for index in part]
        return [self._sampler.indices[place] for place in taken] if self._places else taken

    def close(self) -> None:
        """Nothing more will be asked."""
        self._chunks.close()

    def skip(self, n: int) -> int:
        """Leave n out: one permutation, or one bulk draw. How many there were to leave out."""
        return sum(map(len, self._parts(n)))

    def _parts(self, n: int) -> Iterator[Any]:
        while n:
            if self._at == len(self._now):
                self.wanted = min(n, MOST)
                chunk: Any = next(self._chunks, ())
                array: Any = chunk.cpu().numpy() if torch.is_tensor(chunk) else None
                self._now, self._at = chunk if array is None else memoryview(array), 0
                if not self._now:
                    return
            part = self._now[self._at : self._at + n]
            self._at += len(part)
            n -= len(part)
            yield part
            if self._asked and len(self._now) < self.wanted:
                return  # the sampler has said that it ends; torch asks it again for the next batch only


# --- what samplers draw, in chunks; nothing is drawn before the first is asked for ------------------------------------


def _iterated(sampler: Any, order: SamplerOrder) -> Generator[list[Any]]:
    indices = iter(sampler)
    while chunk := list(islice(indices, order.wanted)):
        yield chunk


def _sequential(sampler: Any, order: SamplerOrder) -> Generator[torch.Tensor]:
    length = len(sampler.data_source) if order.length is None else order.length
    for first in range(0, length, IN_A_ROW):
        yield torch.arange(first, min(length, first + IN_A_ROW))


def _random(sampler: Any, order: SamplerOrder) -> Generator[torch.Tensor]:
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
        step = max(1, min(chunks, order.wanted // CHUNK))
        yield torch.randint(n, (CHUNK * step,), dtype=torch.int64, generator=draw)
        chunks -= step
    yield torch.randint(n, (sampler.num_samples % CHUNK,), dtype=torch.int64, generator=draw)


def _subset(sampler: Any, order: SamplerOrder) -> Generator[torch.Tensor]:
    yield torch.randperm(len(sampler.indices), generator=sampler.generator)


def _weighted(sampler: Any, order: SamplerOrder) -> Generator[torch.Tensor]:
    s = sampler
    yield torch.multinomial(s.weights, s.num_samples, s.replacement, generator=s.generator)


KNOWN: dict[type, Callable[[Any, SamplerOrder], Generator[torch.Tensor]]] = {
    SequentialSampler: _sequential,
    RandomSampler: _random,
    SubsetRandomSampler: _subset,
    WeightedRandomSampler: _weighted,
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
