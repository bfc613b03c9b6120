"""What a loader has done so far, in numbers: `loader.stats()`."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stats:
    """What a loader has done so far."""

    epochs: int
    batches: int
    waited: float
    """Seconds the training loop waited for data."""
    busy: dict[str, float]
    """Seconds that workers spent, by stage of the plan."""
    ops: dict[str, float]
    """Seconds that workers spent in each op: one ticket in sixteen is timed, and scaled up."""
    bytes: int
    """Shared memory in existence."""
    slots: int
    copies: int
    """Batches that were copied out because the user holds many."""
    retries: int
    """Workers that ended and were replaced."""
    skips: int
    """Samples that failed and were left out."""
    workers: int = 0
    """How many there are now: what was asked for, or what "auto" has come to."""
    prefetch: int = 2
    tried: dict[int, float] = field(default_factory=dict)
    """With workers="auto": batches a second by the number of workers, as far as they were tried."""
    advice: str = ""
    """Said when workers cost more than they give."""
    autosave: str = ""
    """Why the last snapshot could not be written; empty while they can."""
