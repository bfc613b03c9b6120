"""Journal: the changes of a mixture's weights that were made while a job ran, and their short text for snapshots.

A change is 4 letters for the epoch, 8 for the sample from which on it holds, and 2 for the weight of each input: a
letter is 6 bits. Text, because snapshots are JSON; short, because methods that learn weights change them all the time.
"""

from typing import NamedTuple

from headrace.errors import SnapshotRefused
from headrace.plan.mixture import WeightStage

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
VALUES = {letter: value for value, letter in enumerate(LETTERS)}
EPOCH, SAMPLE, WEIGHT = 4, 8, 2
LIVE = 1 << 6 * WEIGHT
"""The largest sum of weights of a change."""


class Change(NamedTuple):
    """From this sample of this epoch on, these weights hold."""

    epoch: int
    start: int
    weights: tuple[int, ...]


Journal = tuple[Change, ...]


def stages_in(epoch: int, stages: tuple[WeightStage, ...], journal: Journal) -> tuple[WeightStage, ...]:
    """The stages of an epoch. Planned stages that begin after a change do not hold any more. An epoch begins with the
    weights that the one before ended with, if these were changed."""
    earlier = [change for change in journal if change.epoch < epoch]
    now = [WeightStage(change.start, change.weights) for change in journal if change.epoch == epoch]
    planned = (WeightStage(0, earlier[-1].weights),) if earlier else stages
    return (*(stage for stage in planned if not now or stage.start < now[0].start), *now)


def still_needed(journal: Journal, epoch: int) -> Journal:
    """The changes that still matter in an epoch: those from this epoch on, and the last one before."""
    earlier = [change for change in journal if change.epoch < epoch]
    return (*earlier[-1:], *(change for change in journal if change.epoch >= epoch))


def journal_text(journal: Journal) -> str:
    return "".join(
        _letters(change.epoch, EPOCH)
        + _letters(change.start, SAMPLE)
        # (The sum of weights without a common divisor is at most LIVE, so only a lone input could have as much: 1.)
        + "".join(_letters(weight, WEIGHT) for weight in change.weights)
        for change in journal
    )


def read_journal(said: object, inputs: int) -> Journal:
    """The journal that a snapshot holds as text, for a mixture of so many inputs."""
    size = EPOCH + SAMPLE + WEIGHT * inputs
    if not isinstance(said, str) or len(said) % size or not set(said) <= VALUES.keys():
        raise SnapshotRefused(f"the snapshot's changes of weights are not those of a mixture of {inputs} inputs")
    found = tuple(_change(said[at : at + size]) for at in range(0, len(said), size))
    if list(found) != sorted(found) or len({change[:2] for change in found}) < len(found):
        raise SnapshotRefused("the snapshot's changes of weights are not in order")
    if not all(any(change.weights) and change.start for change in found):
        raise SnapshotRefused("a change of weights in the snapshot leaves nothing to draw from")
    return found


def _change(said: str) -> Change:
    weights = said[EPOCH + SAMPLE :]
    return Change(
        _number(said[:EPOCH]),
        _number(said[EPOCH : EPOCH + SAMPLE]),
        tuple(_number(weights[at : at + WEIGHT]) for at in range(0, len(weights), WEIGHT)),
    )


def _number(letters: str) -> int:
    value = 0
    for letter in letters:
        value = value * 64 + VALUES[letter]
    return value


def _letters(value: int, size: int) -> str:
    return "".join(LETTERS[value >> 6 * place & 63] for place in range(size - 1, -1, -1))
