"""Feeds of a DataLoader2: a loader over a graph, or something else that can be iterated, seen in the same way."""

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

from headrace.doors.dataloader2.services import Settings
from headrace.doors.dataloader2.workers import Replicas, WorkerInit, WorkerReset, with_reset
from headrace.doors.datapipes.graph import lint
from headrace.doors.datapipes.nodes import lowered
from headrace.engine.wire.shipping import Words
from headrace.errors import BadPipe, SnapshotRefused
from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.plan.world import World

WORDS = Words(
    there="make it where it is used (for example in the function of a map), or use "
    "MultiProcessingReadingService(multiprocessing_context='fork')"
)


class Feed(Protocol):
    """Where the samples of an epoch come from."""

    def begin(self, epoch: int) -> Iterator[Any]: ...
    def resume(self, epoch: int, at: Any) -> Iterator[Any]: ...
    def state(self) -> Any: ...
    def leave(self) -> None: ...
    def close(self) -> None: ...
    def length(self) -> int: ...
    def mask(self) -> list[bool] | None: ...
    def stats(self) -> Any: ...
    def explain(self) -> str: ...
    def pids(self) -> list[int]: ...


class Loaded:
    """A graph, run by the engine."""

    def __init__(self, graph: Any, settings: Settings) -> None:
        for text in lint(graph, settings.workers) if settings.sharding == "exact" else ():
            warnings.warn(text, stacklevel=6)
        self._settings = settings
        self._epoch: Any = None
        self._loader: Loader[Any] = Loader(
            _pipe(graph, settings),
            workers=settings.workers,
            kind=settings.kind,
            start_method=settings.start_method,
            prefetch=settings.prefetch,
            window=settings.window,
            strands=settings.workers if settings.sharding == "per-worker" and settings.workers else None,
            worker_init=_init(graph, settings),
            world=settings.world or World(),
            ends=settings.ends,
        )

    def begin(self, epoch: int) -> Iterator[Any]:
        self._loader.set_epoch(epoch)
        return self._open()

    def resume(self, epoch: int, at: Any) -> Iterator[Any]:
        if at is None:
            return self.begin(epoch)
        if not isinstance(at, dict) or "loader" not in at:
            raise SnapshotRefused(
                "this state was taken with a reading service that iterates something else than a graph"
            )
        self._loader.load_state_dict(at["loader"])
        return self._open()

    def _open(self) -> Iterator[Any]:
        with WORDS:
            self._epoch = iter(self._loader)
        return self._epoch  # type: ignore[no-any-return]

    def state(self) -> Any:
        return {"loader": self._loader.state_dict()}

    def leave(self) -> None:
        if self._epoch is not None:
            self._epoch.close()
            self._epoch = None

    def close(self) -> None:
        self._loader.close()

    def length(self) -> int:
        return len(self._loader)

    def mask(self) -> list[bool] | None:
        return self._loader.mask()

    def stats(self) -> Any:
        return self._loader.stats()

    def explain(self) -> str:
        return self._loader.explain()

    def pids(self) -> list[int]:
        return self._loader.worker_pids()


class Plain:
    """Anything that can be iterated, as it is, in this process; resumes by reading again."""

    def __init__(self, iterable: Any) -> None:
        self._iterable = iterable
        self._read = 0

    def begin(self, epoch: int) -> Iterator[Any]:
        self._read = 0
        return self._counted(iter(self._iterable))

    def resume(self, epoch: int, at: Any) -> Iterator[Any]:
        samples = self.begin(epoch)
        for _ in range(at["read"] if isinstance(at, dict) else 0):
            next(samples)
        return samples

    def _counted(self, samples: Iterator[Any]) -> Iterator[Any]:
        for sample in samples:
            self._read += 1
            yield sample

    def state(self) -> Any:
        return {"read": self._read}

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass

    def length(self) -> int:
        return len(self._iterable)

    def mask(self) -> list[bool] | None:
        return None

    def stats(self) -> Any:
        raise BadPipe("what a reading service of your own does is not measured")

    def explain(self) -> str:
        return f"{type(self._iterable).__name__}, iterated in this process"

    def pids(self) -> list[int]:
        return []


def _pipe(graph: Any, settings: Settings) -> Pipe[Any]:
    if settings.sharding == "per-worker" and settings.workers:
        changes = settings.init is not None or settings.reset is not None
        return Pipe(Replicas(graph if changes else lowered(graph), settings.init, settings.reset, lowered))
    pipe = lowered(graph)
    if settings.reset is not None and settings.workers:
        return with_reset(pipe, WorkerReset(settings.reset, graph, settings.workers))
    return pipe


def _init(graph: Any, settings: Settings) -> WorkerInit | None:
    if not settings.workers or settings.kind != "process" or settings.sharding == "per-worker":
        return None
    if settings.init is None and settings.reset is None:
        return None
    return WorkerInit(settings.init, graph, settings.workers)
