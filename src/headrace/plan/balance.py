"""Balance: which samples make up a global step, and how the ranks share it by cost.

A step is a run of consecutive positions of the global order: `cut_by_tokens` cuts the order where a step would have too
many tokens. Only then do ranks come in: `deal_by_cost` gives the dearest sample to the rank with the least to do so
far. So the samples of a step are the same for any number of ranks, and every rank computes the same deal without a
message.

To put samples of like length into a step, the samples of a window are sorted first (`StepPlan.window_steps`): steps
are cut from them, and come in a keyed random order.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.errors import BadOption
from headrace.plan.order import permutation


def cut_by_tokens(lengths: Iterable[int], most: int, padded: bool = False) -> Iterator[range]:
    """Steps of at most `most` tokens: their sum, or, where rows are padded, rows times the longest of them."""
    start = stop = total = longest = 0
    for position, length in enumerate(lengths):
        if length > most:
            raise too_large(position, length, most)
        full = max(longest, length) * (stop - start + 1) if padded else total + length
        if full > most:
            yield range(start, stop)
            start, total, longest = stop, 0, 0
        total, longest, stop = total + length, max(longest, length), position + 1
    if stop > start:
        yield range(start, stop)


def too_large(position: int, length: int, most: int) -> BadOption:
    """The error for a sample that does not fit into a step."""
    return BadOption(f"sample {position} has {length} tokens, a step at most {most}: allow more, or split it before")


def deal_by_cost(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Which samples of a step each rank gets, in the order of the step. The dearest sample is dealt first, each to the
    rank with the least cost so far; every rank gets at least one sample."""
    if len(costs) < ranks:
        raise BadOption(f"a step of {len(costs)} samples leaves one of {ranks} ranks without any: make steps larger")
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
        heapq.heappush(least, (load + costs[sample], rank))
    return [sorted(share) for share in shares]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """How an order of samples is cut into global steps: by rows, or by tokens.

    (Its repr is part of the fingerprint of a pipe: names here must not change.)
    """

    rows: int | None = None
    tokens: int | None = None
    like: bool = True
    """Samples of a step have like lengths."""
    padded: bool = False
    """Tokens are counted as rows times the longest of them."""
    window: int = 0
    """Samples that are sorted together; 0: 256 steps of rows, or 65536 samples. Of lognormal lengths in steps of 256
    rows on 8 ranks 1.2 % is padding then, and twice as much in windows of half the size."""

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.tokens is None):
            raise BadOption("say what a global step holds: rows= or tokens=")
        for name in ("rows", "tokens"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise BadOption(f"{name}={value!r}: give a whole number of at least 1")
        if not isinstance(self.window, int) or self.window < 0:
            raise BadOption(f"window={self.window!r}: give a whole number of samples")
        window = self.window or (65536 if self.rows is None else 256 * self.rows)
        # A window of whole steps: else each would end with one that is not full.
        object.__setattr__(self, "window", window if self.rows is None else -(-window // self.rows) * self.rows)

    def window_steps(self, lengths: Sequence[int], key: int) -> list[list[int]]:
        """The steps of one window of samples, as places in it. Only the last step of an epoch may have fewer rows."""
        order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i)) if self.like else list(range(len(lengths)))
        if self.rows is not None:
            cuts = [range(at, min(at + self.rows, len(order))) for at in range(0, len(order), self.rows)]
        else:
            assert self.tokens is not None
            sizes = [lengths[i] for i in order]
            cuts = _evened(list(cut_by_tokens(sizes, self.tokens, self.padded)), sizes, self.tokens, self.padded)
        steps = [[order[i] for i in cut] for cut in cuts]
        if not self.like:
            return steps
        short = self.rows is not None and len(steps[-1:]) and len(steps[-1]) < self.rows
        full = steps[:-1] if short else steps
        return [full[i] for i in permutation(len(full), key)] + (steps[-1:] if short else [])


def _evened(cuts: list[range], lengths: Sequence[int], most: int, padded: bool) -> list[range]:
    """The same cuts, with about as many samples in each of the last two: else the last step might hold a single one."""
    if len(cuts) < 2:
        return cuts
    start, stop = cuts[-2].start, cuts[-1].stop
    middle = min(cuts[-2].stop, start + (stop - start + 1) // 2)
    while len(list(cut_by_tokens(lengths[middle:stop], most, padded))) > 1:
        middle += 1
    return [*cuts[:-2], range(start, middle), range(middle, stop)]
