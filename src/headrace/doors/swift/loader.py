"""SwiftLoader: one dataset, shared among several consumers, each with workers of its own.

    loader = SwiftLoader(Dataset, {"path": "..."}, batch_size=32, nb_consumer=4, worker_per_consumer=4)
    loader.start(consumer_index, device)          # in each consumer's process
    for epoch in range(10):
        for batch in loader: ...

The dataset is built only in the workers, from its class and keyword arguments. For a seed the batches are the same,
whatever `multithread` and the sizes of queues are, and in each epoch all consumers together get every sample once. The
workers go on over the end of an epoch, so that the next one begins without a wait. The loader is its own iterator: an
epoch that was left in the middle goes on at the next loop, and `set_epoch()` starts one from its beginning.
"""

import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.doors.swift.figures import Figure
from headrace.doors.swift.options import Options, names_checked
from headrace.doors.swift.running import Running
from headrace.doors.swift.worker import validate as dry_run
from headrace.engine.tuning import available
from headrace.errors import BadOption, Closed, HeadraceError, check_whole
from headrace.loader import Loader, Stats
from headrace.plan.world import World
from headrace.tracebacks import short_errors, shorten, users_line


@dataclass(frozen=True, slots=True)
class SwiftStats:
    """What a SwiftLoader does, and has done so far."""

    arguments: dict[str, Any]
    """Every argument with the value that is in force."""
    consumer_index: int | None
    epoch: int
    batches: int
    """Delivered since the start."""
    in_flight: int
    """Batches that each worker may be asked for before it has answered: message_queue_size."""
    window: int
    """Batches of all workers that may exist before they are delivered: for each of them at most `data_queue_size`, and
    at most `max_buffer_size` more than of the slowest."""
    decode_threads: int
    figures: dict[str, Figure]
    """What `benchmark` has measured, by step, in batches per second."""
    engine: Stats | None


class SwiftLoader(Iterator[Any]):
    """Loads, batches and delivers one consumer's share of a dataset."""

    @names_checked
    def __init__(
        self,
        dataset_class: Callable[..., Any],
        dataset_kwargs: Mapping[str, Any],
        batch_size: int,
        nb_consumer: int,
        worker_per_consumer: int | None = None,
        shuffle: bool = True,
        *,
        seed: int | None = None,
        data_queue_size: int = 10,
        message_queue_size: int = 10,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        logger: str | Mapping[str, Any] | None = None,
        batch_encoder: Callable[[Any], Any] | None = None,
        batch_decoder: Callable[[Any], Any] | None = None,
        nearby_shuffle: int | None = None,
        benchmark: bool = True,
        benchmark_file: str | Path | None = None,
        validate: bool = True,
        multithread: bool = True,
        max_nb_batch_on_device: int = 1,
        max_buffer_size: int | None = None,
        **more: object,
    ) -> None:
        named = {name: value for name, value in locals().items() if name not in ("self", "more")}
        self._options = Options.of(named, more)
        self._running: Running | None = None
        self._closing: Callable[[], Any] = lambda: None
        self._closed = False
        self._epoch = 0
        self._at = 0
        self._batches = 0
        if validate:
            dry_run(self._options)

    # --- starting and ending ------------------------------------------------------------------------------------------

    @short_errors
    def start(
        self,
        consumer_index: int | None = None,
        device: object = None,
        to_device: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Start the workers of this consumer, and wait until each of them has built its dataset.

        Without an index it is the rank that the launcher gave this process. With a `device` every batch is moved there,
        by `to_device(batch, device)` if that is given.
        """
        self._check_open()
        if self._running is not None:
            raise RuntimeError("start() has been called already; a loader serves one consumer")
        if to_device is not None and device is None:
            raise BadOption("to_device is given but no device: give start(device=...) as well")
        options = self._options
        consumer = _detected(options.nb_consumer) if consumer_index is None else consumer_index
        if not isinstance(consumer, int) or isinstance(consumer, bool) or not 0 <= consumer < options.nb_consumer:
            raise BadOption(f"consumer_index must be one of 0..{options.nb_consumer - 1}, not {consumer!r}")
        running = self._running = Running(options, consumer, self._epoch, device, to_device)
        self._closing = weakref.finalize(self, running.close)
        running.log.info("started", consumer=consumer, samples=running.samples, batches=running.length)
        if consumer == 0:  # once for all consumers, not once for each
            _warn(options, running.samples)

    def close(self) -> None:
        """Stop the workers and leave nothing behind. A closed loader cannot be used again."""
        if self._running is not None and not self._closed:
            self._running.log.info("closed", epoch=self._epoch, batches=self._batches)
        self._closed = True
        self._closing()

    def __enter__(self) -> "SwiftLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- iterating ----------------------------------------------------------------------------------------------------

    @short_errors
    def __iter__(self) -> "SwiftLoader":
        self._running_for("iterated")
        return self

    def __next__(self) -> Any:
        try:
            return self._next()
        except StopIteration:
            raise
        except BaseException as error:
            shorten(error)
            raise

    def _next(self) -> Any:
        running = self._running_for("iterated")
        if self._at >= running.length:
            running.log.info("epoch", epoch=self._epoch, batches=self._at)
            running.figures.pause()
            self._epoch += 1
            self._at = 0
            raise StopIteration
        try:
            batch = running.next()
        except Exception as error:
            running.log.error("failed", epoch=self._epoch, batch=self._at, error=repr(error))
            self._at += 1  # the batch is gone: the next call is for the next one
            if isinstance(error, StopIteration):
                raise RuntimeError(
                    "StopIteration was raised while a batch was decoded or moved to the device"
                ) from error
            if isinstance(error, HeadraceError):
                error.add_note(
                    f"headrace: positions count the batches of consumer {running.consumer}: {running.length} an epoch, "
                    f"after {self._options.worker_per_consumer} for the start"
                )
                self.close()
            raise
        if running.log.detailed:
            running.log.debug("delivered", epoch=self._epoch, batch=self._at)
        self._at += 1
        self._batches += 1
        return batch

    def __len__(self) -> int:
        """Batches of one epoch of this consumer."""
        return self._running_for("measured").length

    @property
    def epoch(self) -> int:
        """The number of the present epoch, from 0."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next batch is the first of this epoch."""
        self._check_open()
        check_whole("epoch", epoch)
        if self._running is not None and (epoch, 0) != (self._epoch, self._at):
            self._running.begin(epoch)
        self._epoch, self._at = epoch, 0

    # --- looking ------------------------------------------------------------------------------------------------------

    def stats(self) -> SwiftStats:
        options, running = self._options, self._running
        return SwiftStats(
            arguments=options.arguments(),
            consumer_index=None if running is None else running.consumer,
            epoch=self._epoch,
            batches=self._batches,
            in_flight=options.message_queue_size,
            window=options.window * options.worker_per_consumer,
            decode_threads=options.decode_threads,
            figures={} if running is None else dict(running.figures.total),
            engine=None if running is None else running.loader.stats(),
        )

    @property
    def loader(self) -> Loader[Any]:
        """The loader that runs since start(): for `headrace.observe.profile` and whatever else takes a Loader."""
        return self._running_for("looked into").loader

    def explain(self) -> str:
        """The plan: what runs where, and what has shown since about the use of workers."""
        return self.loader.explain()

    def __repr__(self) -> str:
        options = self._options
        return (
            f"SwiftLoader({options.dataset_class.__qualname__}, batch_size={options.batch_size}, "
            f"nb_consumer={options.nb_consumer}, worker_per_consumer={options.worker_per_consumer})"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this SwiftLoader is closed; make a new one")

    def _running_for(self, what: str) -> Running:
        self._check_open()
        if self._running is None:
            raise RuntimeError(f"a SwiftLoader cannot be {what} before start(consumer_index) has been called")
        return self._running


def _detected(consumers: int) -> int:
    """The index of this process among the consumers, from its launcher."""
    if consumers == 1:
        return 0
    world = World.detect()
    if world.local_ranks == consumers:
        return world.local_rank
    if world.ranks == consumers:
        return world.rank
    reason = (
        "no launcher says which rank this is" if world.source == "none" else f"the launcher runs {world.ranks} ranks"
    )
    raise BadOption(f"start() needs consumer_index: there are {consumers} consumers, but {reason}")


def _warn(options: Options, samples: int) -> None:
    processes = options.nb_consumer * options.worker_per_consumer
    cores = available()
    if processes > cores:
        warnings.warn(
            f"{options.nb_consumer} consumers x {options.worker_per_consumer} workers are {processes} processes, "
            f"more than the {cores} cores: lower worker_per_consumer",
            RuntimeWarning,
            stacklevel=users_line(),
        )
    most = options.plan.batches(samples, 0)
    least = options.plan.batches(samples, options.nb_consumer - 1)
    if most != least:
        warnings.warn(
            f"consumer 0 gets {most} batches an epoch and the last one {least}: {samples} samples cannot be shared "
            f"equally in batches of {options.batch_size}; consumers that wait for each other must stop at {least}",
            RuntimeWarning,
            stacklevel=users_line(),
        )
