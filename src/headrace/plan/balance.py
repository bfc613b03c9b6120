"""Balance: which samples make up a global step, and how the ranks share it by cost.

A step is a run of consecutive positions of the global order: `budget` cuts the order where a step would have too many
tokens. Only then do ranks come in: `deal` gives the dearest sample to the rank with the least to do so far. So the
samples of a step are the same for any number of ranks, and every rank computes the same deal without a message.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from headrace.errors import BadOption


def budget(lengths: Iterable[int], most: int, padded: bool = False) -> Iterator[range]:
    """Steps of at most `most` tokens: their sum, or, where rows are padded, rows times the longest of them."""
    start = stop = total = longest = 0
    for position, length in enumerate(lengths):
        if length > most:
            raise BadOption(
                f"sample {position} has {length} tokens, a step at most {most}: allow more, or split it before"
            )
        full = max(longest, length) * (stop - start + 1) if padded else total + length
        if full > most:
            yield range(start, stop)
            start, total, longest = stop, 0, 0
        total, longest, stop = total + length, max(longest, length), position + 1
    if stop > start:
        yield range(start, stop)


def deal(costs: Sequence[float], ranks: int, rows: int | None = None) -> list[list[int]]:
    """The samples of a step for each rank, in the order of the step: the dearest first to whoever has least.

    With `rows`, no rank gets more than so many. Every rank gets at least one sample.
    """
    if len(costs) < ranks:
        raise BadOption(f"a step of {len(costs)} samples leaves one of {ranks} ranks without any: make steps larger")
    if rows is not None and rows * ranks < len(costs):
        raise BadOption(f"{ranks} ranks of {rows} rows cannot take a step of {len(costs)} samples: allow more rows")
    shares: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0.0, rank) for rank in range(ranks)]
    empty = ranks
    for left, sample in zip(
        range(len(costs), 0, -1), sorted(range(len(costs)), key=lambda i: (-costs[i], i)), strict=True
    ):
        load, rank = heapq.heappop(least)
        if left == empty and shares[rank]:  # what is left is just enough for those that have nothing
            least = [(load, rank) for load, rank in least if not shares[rank]]
            heapq.heapify(least)
            load, rank = heapq.heappop(least)
        empty -= not shares[rank]
        shares[rank].append(sample)
        if rows is None or len(shares[rank]) < rows:
            heapq.heappush(least, (load + costs[sample], rank))
    return [sorted(share) for share in shares]
