"""Mix: several pipes by weight, each with its exact share in every block, and any sample of it by its position.

Which input a sample comes from is arithmetic (`plan.mixture`). Over inputs with random access so is which sample of the
input it is: nothing is read ahead, and everything before the mixture runs in all workers. Over streams the same pattern
is followed, in one place, and the end of an input is noticed when it is reached.

Weights may change in a running job (`Loader.reweight`). The list of these changes is the *journal*: no part of the
fingerprint of the pipe, and kept in snapshots (`ops.branch.journal`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import BadOption
from headrace.op import Here, Indexed, InputCursor, Lengths, Op
from headrace.ops.ahead import ahead_in
from headrace.ops.branch.journal import LIVE, Journal, stages_in
from headrace.ops.repeated import RepeatedInput
from headrace.plan.mixture import NEVER, Ends, Mixture, WeightStage, whole_weights

if TYPE_CHECKING:
    from headrace.plan.order import Ints
    from headrace.plan.token_mixture import TokenMixture

T = TypeVar("T")
log = logging.getLogger("headrace")
BLOCKS = 64
"""Blocks of the mixture that are kept worked out."""
TOGETHER = 0.01
"""Inputs that all end within this last part of the samples have ended together: no warning is needed."""
PLANS = 4
"""Mixtures by tokens whose plans are kept."""


@dataclass(frozen=True, slots=True)
class Mix(Op[T, T]):
    """Samples of several pipes, in the shares that `stages` say, from which sample of the mixture on."""

    stages: tuple[WeightStage, ...]
    ends: Ends = "drop"
    journal: Journal = ()
    """Changes of weights that were made while it ran."""
    by_tokens: bool = False
    """Weights are shares of tokens, not of samples."""
    quiet = True

    def __post_init__(self) -> None:
        # The plan knows what can be wrong with stages and ends; the lengths come later.
        Mixture((1,) * len(self.stages[0].weights), self.stages, 0, "first" if self.ends == "all" else self.ends)

    def mixture(self, lengths: Sequence[int], key: int, epoch: int) -> Mixture | None:
        """The order of an epoch, over inputs of these lengths; None if there is nothing in them."""
        if not any(lengths):
            return None
        return Mixture(tuple(lengths), stages_in(epoch, self.stages, self.journal), key, self.ends)

    def order(self, inputs: Sequence[Indexed], here: Here) -> "Mixture | TokenMixture | None":
        """The order of an epoch over these inputs; None if there is nothing in them."""
        lengths = [inner.length for inner in inputs]
        made = self.mixture(lengths, here.seed, here.epoch)
        if made is None or not self.by_tokens:
            return made
        return _plan(made, self.ends, inputs, here.seed)

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        known = [n for n in inputs if n is not None]
        if len(known) < len(inputs) or (self.by_tokens and self.ends != "drop"):
            return None
        made = self.mixture(known, 0, self.journal[-1].epoch if self.journal else 0)
        return 0 if made is None else made.length if made.length < NEVER else None

    def streamed_length(self, inputs: tuple[int | None, ...]) -> int | None:
        """Of streams: when the mixture draws from one that has ended depends on the order of the epoch. So only where
        every sample comes is it known how many."""
        if self.ends != "drop" or self.by_tokens:
            return None
        stages = stages_in(self.journal[-1].epoch if self.journal else 0, self.stages, self.journal)
        last = stages[-1].weights
        total = 0
        for source, length in enumerate(inputs):
            if length is None or (not last[source] and any(stage.weights[source] for stage in stages)):
                return None
            total += length if last[source] else 0
        return total

    def caution(self, lengths: Callable[[], tuple[int | None, ...]]) -> str:
        known = [length or 0 for length in lengths()] if self.ends == "drop" and not self.by_tokens else []
        if not known or not all(known):  # when a stream will end is not known yet
            return ""
        made = self.mixture(known, 0, 0)
        end = None if made is None else made.first_ending()
        if made is None or end is None:
            return ""
        position, source = end
        rounding = min(sum(made.stages[-1].weights), made.length // 10)  # shares are exact after whole periods
        if made.length - position <= max(TOGETHER * made.length, rounding):
            return ""
        return end_warning(self, source, f"after {position} of {made.length} samples")

    def index(self, inputs: tuple[Indexed, ...], here: Here) -> Indexed | None:
        made = self.order(inputs, here)
        if made is None:
            return Indexed(0, _nothing)
        repeated = [RepeatedInput(inner) for inner in inputs]
        block_at, drawn = made.block_at, lru_cache(maxsize=BLOCKS)(made.drawn)

        def find(position: int) -> tuple[Indexed, int]:
            """The input, as it is read in the turn of this sample, and the row there."""
            start = block_at(position)
            block = drawn(start)
            return repeated[int(block.source[position - start])].find(int(block.number[position - start]))

        def get(position: int) -> T:
            inner, row = find(position)
            sample: T = inner.get(row)
            return sample

        found = Indexed(made.length, get)
        if any(inner.many is not None for inner in inputs):
            found.many = partial(_many, find)
        found.ahead = ahead_in(inputs, lambda position: [find(position)])
        known = [inner.lengths for inner in inputs if inner.lengths is not None]
        if len(known) == len(inputs):
            tokens, keys = sum(one.tokens for one in known), tuple(one.key for one in known)
            stages = stages_in(here.epoch, self.stages, self.journal)
            made_by = (stages, here.seed, self.ends, self.by_tokens)
            found.lengths = Lengths(partial(_lengths, made, repeated), tokens, (*keys, made_by))
        return found

    def flow(self, *inputs: Any) -> Iterator[T]:
        *pipes, here = inputs
        indexed = [pipe.indexed() for pipe in pipes]
        if all(one is not None for one in indexed):
            whole = self.index(tuple(indexed), here)
            assert whole is not None
            for position in range(here.emitted, whole.length):
                yield whole.get(position)
        else:
            yield from self._streams(pipes, here)

    def _streams(self, pipes: Sequence[InputCursor[T]], here: Here) -> Iterator[T]:
        """Read in one place. The note says how often each input has ended, and at which position each was left out."""
        turns, left_out = ([0] * len(pipes), []) if here.note is None else here.note
        wanted = [i for i in range(len(pipes)) if any(stage.weights[i] for stage in self.stages)]
        position, fresh = here.emitted, -1
        made, sources = self._streamed(left_out, here), []
        start = stop = -1
        while position < made.length:
            if not start <= position < stop:
                start = made.block_at(position)
                sources = made.drawn(start).source.tolist()
                stop = start + len(sources)
            source = sources[position - start]
            try:
                sample = next(pipes[source])
            except StopIteration:
                turns[source] += 1
                if self.ends == "first" or fresh == source or (self.ends == "all" and all(turns[i] for i in wanted)):
                    return
                if self.ends == "drop":
                    left_out.append([position, source])
                    made, stop = self._streamed(left_out, here), -1
                    if position < made.length:
                        log.warning(end_warning(self, source, f"after {position} samples of the mixture"))
                else:
                    pipes[source].again(turns[source])
                    fresh = source  # if it ends at once, it has no samples at all
                here.rest([turns, left_out])
                continue
            position, fresh = position + 1, -1
            yield sample

    def _streamed(self, left_out: Sequence[Sequence[int]], here: Here) -> Mixture:
        """The mixture of streams, with each of those that have ended left out from there on."""
        stages = stages_in(here.epoch, self.stages, self.journal)
        lengths = (NEVER,) * len(stages[0].weights)
        return Mixture(lengths, stages, here.seed, "drop", left_out=tuple((at, source) for at, source in left_out))

    def accepts(self, note: object) -> bool:
        inputs = len(self.stages[0].weights)
        if note is None:
            return True
        if not isinstance(note, list) or len(note) != 2 or not all(isinstance(part, list) for part in note):
            return False
        turns, left_out = note
        return (
            len(turns) == inputs
            and all(_whole(turn) for turn in turns)
            and all(
                isinstance(one, list) and len(one) == 2 and _whole(one[0]) and _whole(one[1]) and one[1] < inputs
                for one in left_out
            )
            and [one[0] for one in left_out] == sorted(one[0] for one in left_out)
        )

    def identity(self) -> tuple[Any, ...]:
        stages = tuple((start, *weights) for start, weights in self.stages)
        return ("mix", stages, self.ends, *(["tokens"] if self.by_tokens else []))

    def describe(self) -> str:
        (_, first), *later = self.stages
        more = "".join(f", {start}: {weights}" for start, weights in later)
        by = ", by='tokens'" if self.by_tokens else ""
        return f"mix({':'.join(map(str, first))}{more}, ends={self.ends!r}{by})"

    def weigh(self, weights: Sequence[float]) -> tuple[int, ...]:
        """Weights as the user gives them, as whole numbers."""
        return whole_weights(weights, LIVE)


def end_warning(mix: Mix[Any], source: int, when: str) -> str:
    """The warning that an input of a mixture has ended while the others go on."""
    weights = ":".join(map(str, mix.stages[0].weights))
    return (
        f"mix({weights}): input {source} (counted from 0) ends {when}; the rest comes from the other inputs alone, so "
        'the weights do not hold from there on. ends="first" stops there, ends="all" or "forever" begins it again, '
        'ends="drop" (the default) gives every sample once'
    )


_planned: "dict[tuple[object, ...], TokenMixture]" = {}
"""Mixtures by tokens: planning one costs, and a pipe is opened more often than its order changes."""


def _plan(made: Mixture, ends: Ends, inputs: Sequence[Indexed], seed: int) -> "TokenMixture":
    from headrace.plan.token_mixture import TokenMixture

    known = [inner.lengths for inner in inputs]
    if not all(known):
        raise BadOption("the lengths of these documents are not known any more: make the pipe anew")
    key = (tuple(one.key for one in known if one is not None), made.lengths, made.stages, ends, seed)
    found = _planned.get(key)
    if found is None:
        repeated = [RepeatedInput(inner) for inner in inputs]
        found = TokenMixture(
            made.lengths, made.stages, seed, ends,
            lambda source, turn, rows: repeated[source].tokens(turn, rows), [one.rounds for one in repeated],
        )  # fmt: skip
        _planned[key] = found
        for old in list(_planned)[:-PLANS]:
            _planned.pop(old, None)
    return found


def _lengths(made: "Mixture | TokenMixture", repeated: Sequence[RepeatedInput], positions: "Ints") -> "Ints":
    """How many tokens the samples at these positions have."""
    import numpy as np

    drawn = made(positions)
    found = np.empty(len(positions), np.int64)
    for source in np.unique(drawn.source).tolist():
        among = np.flatnonzero(drawn.source == source)
        turns, rows = repeated[source].rounds.find_all(drawn.number[among])
        for turn in np.unique(turns).tolist():
            found[among[turns == turn]] = repeated[source].tokens(turn, rows[turns == turn])
    return found


def _many(find: Callable[[int], tuple[Indexed, int]], positions: Sequence[int]) -> list[Any]:
    """The samples at these positions, those of one input and turn in one call."""
    groups: dict[Indexed, list[tuple[int, int]]] = {}
    for place, position in enumerate(positions):
        inner, row = find(position)
        groups.setdefault(inner, []).append((place, row))
    samples: list[Any] = [None] * len(positions)
    for inner, wanted in groups.items():
        rows = [row for _, row in wanted]
        made = [inner.get(row) for row in rows] if inner.many is None else inner.many(rows)
        for (place, _), sample in zip(wanted, made, strict=True):
            samples[place] = sample
    return samples


def mixed(
    pipes: Sequence[Any],
    weights: Sequence[float] | None,
    stages: Mapping[int, Sequence[float]] | None,
    ends: Ends,
    by: str,
) -> Mix[Any]:
    """The op that mixes these pipes, from the arguments of `Pipe.mix`."""
    if by not in ("samples", "tokens"):
        raise BadOption(f"mix(by={by!r}): weights are those of 'samples' or of 'tokens'")
    if by == "tokens":
        for number, pipe in enumerate(pipes):
            _check_known(number, pipe.indexed(0, 0))
    weights_from = {0: weights if weights is not None else [1.0] * len(pipes), **(stages or {})}
    for some in weights_from.values():
        if len(some) != len(pipes):
            raise BadOption(
                f"mix() joins {len(pipes)} pipes but got {len(some)} weights; give one for each, this pipe's first"
            )
    planned = tuple(WeightStage(start, whole_weights(weights_from[start])) for start in sorted(weights_from))
    return Mix(planned, ends, by_tokens=by == "tokens")


def _check_known(number: int, indexed: Indexed | None) -> None:
    if indexed is None or indexed.lengths is None:
        raise BadOption(
            f"mix(by='tokens'): the lengths of the samples of input {number} are not known without reading them; store "
            "its tokens first (headrace tokenize), or pack every input to rows of one length and mix these by samples"
        )
    if indexed.length and not indexed.lengths.tokens:
        raise BadOption(f"mix(by='tokens'): all samples of input {number} are empty, so no share of tokens can be its")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NEVER


def _nothing(position: int) -> Any:
    raise IndexError(f"position {position} of an empty mixture")
