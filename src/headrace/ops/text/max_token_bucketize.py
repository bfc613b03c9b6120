"""Max-token buckets: batches of samples of like length, each with a bounded number of tokens."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadOption
from headrace.op import Here, Op, place
from headrace.ops.shape.batch import DataChunk
from headrace.plan.balance import cut_by_tokens


@dataclass(frozen=True, slots=True)
class MaxTokenBucketize(Op[Any, DataChunk[Any]]):
    """Chunks from a buffer ordered by length; a chunk's tokens, padded or not, stay within `max_token_count`."""

    max_token_count: int
    len_fn: Callable[[Any], int] = len
    min_len: int = 0
    max_len: int | None = None
    buffer_size: int = 1000
    include_padding: bool = False
    user = True

    def __post_init__(self) -> None:
        longest = self.max_token_count if self.max_len is None else self.max_len
        if self.min_len < 0 or self.min_len > longest:
            raise BadOption("``min_len`` should be larger than 0 and equal to or smaller than ``max_len``.")
        if longest > self.max_token_count:
            raise BadOption("``max_token_count`` must be equal to or greater than ``max_len``.")
        if self.buffer_size <= 0:
            raise BadOption("'buffer_size' is required to be a positive integer.")
        object.__setattr__(self, "max_len", longest)

    def flow(self, samples: Iterator[Any], here: Here) -> Iterator[DataChunk[Any]]:
        waiting: deque[Any] = deque()

        def sizes() -> Iterator[int]:
            for size, sample in self._shortest_first(samples, here):
                waiting.append(sample)
                yield size

        for chunk in cut_by_tokens(sizes(), self.max_token_count, self.include_padding):
            yield DataChunk([waiting.popleft() for _ in chunk])

    def _shortest_first(self, samples: Iterator[Any], here: Here) -> Iterator[tuple[int, Any]]:
        """The length of each sample, and the sample: always the shortest of a full buffer."""
        heap: list[tuple[int, int, Any]] = []
        for number, sample in enumerate(samples):
            place.at(here, number)
            size = self.len_fn(sample)
            if not self.min_len <= size <= self.max_len:  # type: ignore[operator]
                continue
            heapq.heappush(heap, (size, number, sample))  # equal lengths keep their order
            if len(heap) == self.buffer_size:
                yield heapq.heappop(heap)[::2]
        while heap:
            yield heapq.heappop(heap)[::2]
