"""Mixture: which source each sample of a mixture comes from, as arithmetic with random access.

Weights are whole numbers with the sum P, and repeat with the period P. Inside a period, sources are set down by
Tijdeman's rule, so that in every prefix each source has its share to within one sample:

    weights 5 : 3 : 2      sources 0 1 0 2 0 1 0 2 1 0 | 0 1 0 2 ...

    sample q of the mixture comes from source i = table[q mod P], and is number rank[q mod P] + (q div P) x w_i of it

Each block of consecutive positions is then mixed by a keyed permutation, so that the pattern does not show. Which
samples a block holds does not depend on the key, and each source still gives its samples in its own order. Weights may
change: a `WeightStage` says which weights hold from which position on. A source goes on where it stopped, and what it
lacks of its exact share at that moment is made up for in the next stage. Blocks begin anew with each stage, so a stage
that is added changes nothing before it, as long as it begins at the end of a block (`next_border`).

At the end of a source (`ends`):

    first     the mixture ends with the first source that has no more samples; a source of weight 0 does not count
    all       it ends when every source was given once as a whole; shorter ones begin again
    drop      a source that has ended is left out, the weights of the others stay: every sample comes exactly once
    forever   every source begins again; there is no end

Samples of a source are numbered over all turns through it: number j of source i is row j mod n_i of turn j div n_i
where every turn has n_i rows. (`plan.rounds` finds it where turns differ.)
"""

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import gcd, lcm
from operator import attrgetter
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from headrace.errors import BadOption
from headrace.plan.order import Ints, Windowed
from headrace.plan.seed import key as derive

Floats = NDArray[np.float64]
Ends = Literal["first", "all", "drop", "forever"]
PERIOD = 1 << 16
"""The largest sum of weights: products stay below 2**63 up to 2**47 samples."""
BLOCK = 1024
"""Positions that are mixed with each other. Part of the order."""
OWED = 1 << 32
"""What a source lacks of its share where weights change is counted in 1/OWED of a sample."""
NEVER = 1 << 47
"""The length of a mixture without an end."""


def whole_weights(weights: Sequence[float], period: int = PERIOD) -> tuple[int, ...]:
    """Weights as whole numbers: exactly where their sum can be at most `period`, else by largest remainder.

    A weight so small that it would be rounded to 0 is refused: a source must not disappear silently.
    """
    given = [Fraction(w) for w in weights]
    if not given or min(given) < 0 or not any(given):
        raise BadOption(f"weights={list(weights)!r}: give numbers >= 0, at least one of them above 0")
    # 0.7 is not exactly seven tenths: the plainest fraction near it is meant.
    near = [one.limit_denominator(period) for one in given]
    common = lcm(*(one.denominator for one in near))
    numbers = [int(one * common) for one in near]
    shared = gcd(*numbers)
    numbers = [n // shared for n in numbers]
    if sum(numbers) <= period and all(bool(n) == bool(one) for n, one in zip(numbers, given, strict=True)):
        return tuple(numbers)
    total = sum(given)
    ideal = [one * period / total for one in given]
    numbers = [int(one) for one in ideal]
    rest = sorted(range(len(given)), key=lambda i: (numbers[i] - ideal[i], i))
    for i in rest[: period - sum(numbers)]:
        numbers[i] += 1
    for i, one in enumerate(given):
        if one and not numbers[i]:
            raise BadOption(
                f"weight {weights[i]!r} of source {i} is too small beside the others: 1 in {period} is least"
            )
    return tuple(numbers)


class Schedule(NamedTuple):
    """Which source comes at each place of a stage. From place `loop` on the sources repeat; `cycle` says how many
    samples of each source a repetition has."""

    source: Ints
    loop: int
    cycle: Ints

    def at(self, samples: Ints) -> Ints:
        """The sources of these samples of the stage."""
        repeated = np.maximum(samples - self.loop, 0) % (len(self.source) - self.loop)
        found: Ints = self.source[np.where(samples < self.loop, samples, repeated + self.loop)]
        return found

    def given(self, samples: int) -> Ints:
        """How many samples of each source are among the first `samples` of the stage."""
        turns, over = divmod(max(samples - self.loop, 0), len(self.source) - self.loop)
        place = samples if samples < self.loop else self.loop + over
        return turns * self.cycle + np.bincount(self.source[:place], minlength=len(self.cycle))

    def until(self, source: int, wanted: int) -> int:
        """After how many samples of the stage a source has given `wanted` of its own."""
        first = int((self.source[: self.loop] == source).sum())
        turns = max(0, wanted - first - 1) // int(self.cycle[source])
        place = np.flatnonzero(self.source == source)[wanted - 1 - turns * int(self.cycle[source])]
        return turns * (len(self.source) - self.loop) + int(place) + 1


@lru_cache(maxsize=64)
def schedule(weights: tuple[int, ...], owed: tuple[int, ...]) -> Schedule:
    """Tijdeman's rule as a schedule with release times and deadlines: sample x of source i may come from a certain
    place on, and of all that may come, the one with the earliest deadline is taken. `owed` is what each source lacks
    when the stage begins, in 1/OWED of a sample: so shares stay exact however often weights change."""
    period, slack = sum(weights), max(1, 2 * (len(weights) - 1))
    may_come: dict[int, list[int]] = defaultdict(list)
    counts = [0] * len(weights)

    def release(i: int, now: int) -> None:
        if weights[i]:
            earliest = -(-period * (slack * (OWED * counts[i] - owed[i]) + OWED) // (slack * OWED * weights[i]))
            may_come[max(earliest, now)].append(i)

    for i in range(len(weights)):
        release(i, 1)
    waiting: list[tuple[Fraction, int]] = []
    sources: list[int] = []
    states: dict[tuple[int, ...], int] = {}
    while (
        state := tuple(c - w * (len(sources) // period) for c, w in zip(counts, weights, strict=True))
    ) not in states:
        states[state] = len(sources)
        for place in range(len(sources) + 1, len(sources) + period + 1):
            while place not in may_come and not waiting:  # (a source of weight 0 keeps what it is owed)
                may_come[place] = may_come.pop(min(may_come))
            for i in may_come.pop(place, ()):
                must = slack * (OWED * (counts[i] + 1) - owed[i]) - OWED
                heapq.heappush(waiting, (Fraction(must, weights[i]), i))
            i = heapq.heappop(waiting)[1]
            sources.append(i)
            counts[i] += 1
            release(i, place + 1)
    loop = states[state]
    source = np.array(sources, np.int64)
    return Schedule(source, loop, np.bincount(source[loop:], minlength=len(weights)))


class WeightStage(NamedTuple):
    """From this position on, these weights hold."""

    start: int
    weights: tuple[int, ...]


class Drawn(NamedTuple):
    """Where samples come from: the source, and the number of the sample in it, counted over all turns through it."""

    source: Ints
    number: Ints


def running_counts(source: Ints) -> Ints:
    """For each entry, how many entries before it have the same source."""
    number = np.empty_like(source)
    for i in np.unique(source).tolist():
        same = np.flatnonzero(source == i)
        number[same] = np.arange(len(same))
    return number


class Blocks:
    """An order of samples that is worked out a block at a time. A block is named by its first position."""

    __slots__ = ()

    @property
    def length(self) -> int:
        """How many samples there are; NEVER, if it has no end."""
        raise NotImplementedError

    def block_at(self, position: int) -> int:
        """The first position of the block that a position lies in."""
        raise NotImplementedError

    def drawn(self, start: int) -> Drawn:
        """All samples of the block that begins at `start`."""
        raise NotImplementedError

    def next_border(self, position: int) -> int:
        """The first end of a block at or behind a position, where weights may change."""
        if position >= self.length:
            return self.length
        start = self.block_at(position)
        return position if start == position else start + len(self.drawn(start).source)

    def __call__(self, positions: Ints) -> Drawn:
        """The source and the number of the sample at each position."""
        source, number = np.empty_like(positions), np.empty_like(positions)
        order = np.argsort(positions, kind="stable")
        done = 0
        while done < len(order):
            start = self.block_at(int(positions[order[done]]))
            drawn = self.drawn(start)
            stop = np.searchsorted(positions, start + len(drawn.source), sorter=order)
            among, done = order[done:stop], int(stop)
            places = positions[among] - start
            source[among], number[among] = drawn.source[places], drawn.number[places]
        return Drawn(source, number)


@dataclass(frozen=True, slots=True)
class Mixture(Blocks):
    """A mixture by shares of samples, of sources with these lengths."""

    lengths: tuple[int, ...]
    stages: tuple[WeightStage, ...]
    key: int
    ends: Ends = "first"
    block: int = BLOCK
    left_out: tuple[tuple[int, int], ...] = ()
    """With `ends="drop"`, streams that have ended, as (position, source): from that position on it is left out. Lengths
    of streams are not known: give NEVER."""
    length: int = field(init=False, compare=False)
    _stages: tuple["_BegunStage", ...] = field(init=False, compare=False, repr=False)
    """The given stages, and those that begin where a source ends."""

    def __post_init__(self) -> None:
        self._check()
        stages, length = _unrolled(self)
        object.__setattr__(self, "_stages", stages)
        object.__setattr__(self, "length", length)

    def _check(self) -> None:
        if self.ends not in get_args(Ends):
            raise BadOption(f"ends={self.ends!r}: choose one of {', '.join(map(repr, get_args(Ends)))}")
        if not self.lengths or min(self.lengths) < 0:
            raise BadOption(f"lengths={self.lengths}: give how many samples each source of the mixture has")
        starts = [stage.start for stage in self.stages]
        if not starts or starts[0] != 0 or any(a >= b for a, b in pairwise(starts)):
            raise BadOption(f"stages start at {starts}: the first starts at 0, and each later than the one before")
        for stage in self.stages:
            if (
                len(stage.weights) != len(self.lengths)
                or min(stage.weights) < 0
                or not 0 < sum(stage.weights) <= PERIOD
            ):
                raise BadOption(f"weights={stage.weights}: give {len(self.lengths)} whole numbers (see whole_weights)")
            for source, weight in enumerate(stage.weights):
                if weight and not self.lengths[source] and self.ends in ("all", "forever"):
                    raise BadOption(
                        f"source {source} has no samples, so it can never begin again: give it the weight 0, or use "
                        "ends='drop'"
                    )

    def _stage(self, position: int) -> int:
        return bisect_right(self._stages, position, key=attrgetter("start")) - 1

    def block_at(self, position: int) -> int:
        if not 0 <= position < self.length:
            raise IndexError(f"a position is outside a mixture of {self.length} samples")
        return position - (position - self._stages[self._stage(position)].start) % self.block

    def drawn(self, start: int) -> Drawn:
        index = self._stage(start)
        stage = self._stages[index]
        stop = self._stages[index + 1].start if index + 1 < len(self._stages) else self.length
        mixed = Windowed(stop - stage.start, self.block, derive(self.key, "mixture", stage.start))
        first = start - stage.start
        source = stage.schedule.at(mixed(np.arange(first, min(first + self.block, stop - stage.start))))
        # Each source goes on where it stood before the block: how many of the same source come before, in this order.
        return Drawn(source, (stage.given + stage.schedule.given(first))[source] + running_counts(source))

    def first_ending(self) -> tuple[int, int] | None:
        """The source that gives its last sample first (with `drop`), as (samples of the mixture up to it, source); None
        if the mixture ends with it."""
        for stage in self._stages[1:]:
            for source in np.flatnonzero(stage.given >= np.array(self.lengths)).tolist():
                return stage.start, source
        return None

    def before(self, position: int) -> list[tuple[object, ...]]:
        """All that determines the samples before a position, which must be the end of a block."""
        return [(s.start, s.weights, s.given.tolist(), s.owed) for s in self._stages if s.start < position]


class _BegunStage(NamedTuple):
    """A stage, with how many samples of each source come before it and what each is owed (see `schedule`)."""

    start: int
    weights: tuple[int, ...]
    given: Ints
    owed: tuple[int, ...]

    @property
    def schedule(self) -> Schedule:
        return schedule(self.weights, self.owed)

    def endings(self, lengths: tuple[int, ...]) -> dict[int, int]:
        """At which position each source that this stage draws from will have given its last sample."""
        left = np.array(lengths) - self.given
        return {
            i: self.start + self.schedule.until(i, int(left[i]))
            for i, weight in enumerate(self.weights)
            if weight and left[i] > 0
        }

    def next(self, start: int, weights: tuple[int, ...]) -> "_BegunStage":
        samples, period = start - self.start, sum(self.weights)
        now = self.schedule.given(samples)
        owed = tuple(
            round(Fraction(OWED * (samples * w - period * int(now[i])), period)) + self.owed[i]
            for i, w in enumerate(self.weights)
        )
        return _BegunStage(start, weights, self.given + now, owed)


def _unrolled(mixture: Mixture) -> tuple[tuple[_BegunStage, ...], int]:
    """Every stage, with those that begin where a source ends; and the position where the mixture ends."""
    lengths, ends = mixture.lengths, mixture.ends
    done: list[_BegunStage] = []
    none = (0,) * len(lengths)
    coming = list(reversed(mixture.stages))
    while coming:
        start, weights = coming.pop()
        begun = done[-1].next(start, weights) if done else _BegunStage(start, weights, np.array(none, np.int64), none)
        stop = coming[-1].start if coming else NEVER
        if ends == "drop":
            gone = {source for position, source in mixture.left_out if position <= start}
            gone.update(np.flatnonzero(begun.given >= np.array(lengths)).tolist())
            begun = begun._replace(weights=tuple(0 if i in gone else weight for i, weight in enumerate(weights)))
            if not any(begun.weights):  # nothing of this stage is left; what comes after it comes at once
                if not coming:
                    return tuple(done), start
                coming[-1] = WeightStage(start, coming[-1].weights)
                continue
        if ends == "first" and any(w and not n for w, n in zip(weights, lengths, strict=True)):
            return tuple(done), start
        done.append(begun)
        endings = begun.endings(lengths)
        if ends == "first" and endings and min(endings.values()) <= stop:
            return tuple(done), min(endings.values())
        if ends == "drop":
            next_end = min([*endings.values(), *(position for position, _ in mixture.left_out if position > start)])
            if next_end < stop:
                coming.append(WeightStage(next_end, weights))
        missing = sum(g < n for g, n in zip(begun.given, lengths, strict=True))
        if ends == "all" and len(endings) == missing and max(endings.values(), default=start) <= stop:
            return tuple(done), max(endings.values(), default=start)
    if ends == "all":
        raise never_whole(begun.given, lengths, begun.weights)
    return tuple(done), NEVER


def never_whole(given: Ints, lengths: Sequence[int], weights: Sequence[float] | Floats) -> BadOption:
    """The error for `ends="all"`, where a source has samples left and a weight of 0."""
    never = next(i for i, length in enumerate(lengths) if given[i] < length and not weights[i])
    return BadOption(f"source {never} has weight 0 from now on, so ends='all' would never come: use 'first' or 'drop'")
