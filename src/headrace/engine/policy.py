"""Policy: how a pipe is run, as one frozen value, checked in one place.

None of this changes which samples arrive or in which order (`ordered=False` and `on_error` excepted). Most fields are
options of a `Loader`; the last four are set by doors only, whose promises need them (`Loader.of`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headrace.errors import BadOption, TooManyErrors, check_whole, meant

Kind = Literal["inline", "thread", "process", "ray"]
"""The kinds of workers: `engine/pool.py` makes a set of each."""
KINDS: tuple[str, ...] = get_args(Kind)
START_METHODS = ("server", "fork", "forkserver", "spawn")
MEMORY = 256 * 1024 * 1024
STRETCH = 8


@dataclass(frozen=True, slots=True)
class Budget:
    """How many samples may fail and be skipped in one epoch: a count, a fraction of those read so far, or both."""

    count: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        if self.count is None and self.fraction is None:
            raise BadOption("Budget() needs count= or fraction=")
        if self.count is not None and self.count < 0:
            raise BadOption(f"Budget(count=) needs a number >= 0, not {self.count}")
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise BadOption(f"Budget(fraction=) needs a number between 0 and 1, not {self.fraction}")

    def spent(self, skipped: int, seen: int) -> bool:
        """Whether `skipped` failures among `seen` samples are too many; a fraction is not judged before 100 samples."""
        if self.count is not None and skipped > self.count:
            return True
        return self.fraction is not None and skipped > self.fraction * max(seen, 100)


def too_many(budget: Budget, skipped: int, position: int, op: str, error: str) -> TooManyErrors:
    """The error of a budget that is spent; it names the last of the failures."""
    return TooManyErrors(
        f"{skipped} samples have failed, more than on_error={budget} allows; the last one at position {position} in "
        f"{op}: {error}"
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """How a pipe is run."""

    workers: int = 0
    kind: Kind = "inline"
    prefetch: int = 2
    """Tickets that wait in a worker's own queue."""
    ordered: bool = True
    """False: batches as they come. Single samples, streams in several stages, and ranks that share an epoch keep their
    order: otherwise no snapshot could say where they stand."""
    timeout: float | None = None
    """Seconds to wait for the next batch before WorkerStuck is raised."""
    start_method: Literal["server", "fork", "forkserver", "spawn"] | None = None
    memory: int = MEMORY
    """Bytes of shared memory that batches in flight and in the user's hands may take before they are copied out."""
    worker_init: Callable[[int], None] | None = None
    restarts: int = 100
    """Dead workers replaced per epoch."""
    on_error: Literal["raise", "skip"] | Budget = "raise"
    on_poison: Literal["raise", "skip"] = "raise"
    on_stuck: Literal["raise", "replace"] = "raise"
    recycle: int | None = None
    """Replace each worker after this many tickets."""
    recycle_memory: int | None = None
    """Replace a worker whose private memory exceeds this many bytes."""
    window: int | None = None
    """Tickets issued but not delivered, whatever memory they take; None: 8 per worker, as far as `memory` allows."""
    stretch: bool = True
    """While tickets are short or pinned, `prefetch` is STRETCH times as large, and the window large enough for that."""
    pinned: bool = False
    """Ticket k belongs to worker k mod workers; False: any worker may take any ticket."""
    randomness: Literal["keyed", "carried"] = "keyed"
    """Global generators: seeded before each ticket, or only once per worker."""

    def __post_init__(self) -> None:
        for name, least in (("workers", 0), ("prefetch", 1), ("restarts", 0), ("memory", 1)):
            check_whole(name, getattr(self, name), least)
        for name in ("recycle", "recycle_memory", "window"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise BadOption(f"{name} must be None or a whole number >= 1, not {value!r}")
        _one_of("kind", self.kind, KINDS)
        if self.start_method is not None:
            _one_of("start_method", self.start_method, START_METHODS)
            if self.kind != "process":
                raise BadOption(f"start_method={self.start_method!r} is for kind='process', not {self.kind!r}")
        if self.kind != "inline" and self.workers == 0:
            raise BadOption(f"kind={self.kind!r} needs workers >= 1")
        if self.kind == "inline" and self.workers != 0:
            raise BadOption("kind='inline' runs in the caller's thread: leave workers at 0")
        if self.timeout is not None and not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise BadOption(f"timeout must be None or a number of seconds > 0, not {self.timeout!r}")
        if not isinstance(self.on_error, Budget):
            _one_of("on_error", self.on_error, ("raise", "skip"), also=" or a Budget")
        _one_of("on_poison", self.on_poison, ("raise", "skip"))
        _one_of("on_stuck", self.on_stuck, ("raise", "replace"))
        _one_of("randomness", self.randomness, ("keyed", "carried"))
        if self.worker_init is not None and not callable(self.worker_init):
            raise BadOption(f"worker_init must be a function of the worker's number, not {self.worker_init!r}")

    @property
    def skips(self) -> bool:
        """Whether a sample that fails is left out instead of ending the epoch."""
        return self.on_error != "raise"

    @property
    def elsewhere(self) -> bool:
        """Whether workers are other processes than this one."""
        return self.kind not in ("inline", "thread")

    @property
    def seeds_globals(self) -> bool:
        """Whether user code may find the global generators seeded: threads share them, and leave them alone."""
        return self.kind != "thread"

    @classmethod
    def of(cls, options: dict[str, Any]) -> "Policy":
        """A policy from the keywords of a loader; `kind` and `memory` may be None."""
        if options.get("kind") is None:
            options = {**options, "kind": "process" if options.get("workers") else "inline"}
        if options.get("memory") is None:
            options = {**options, "memory": MEMORY}
        return cls(**options)


def _one_of(name: str, value: object, choices: tuple[str, ...], also: str = "") -> None:
    if value not in choices:
        hint = meant(str(value), choices)
        raise BadOption(f"{name} must be one of {', '.join(map(repr, choices))}{also}, not {value!r}{hint}")
