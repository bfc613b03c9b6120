"""A SwiftLoader between start() and close(): its workers, its stream of batches, its logs and figures.

    Loader over positions ──> received ──> decoded (in threads, if asked for) ──> moved to the device ──> next()

The stream has no end; whoever reads it counts `length` batches to an epoch. A call that fails costs the batch it was
for, no more: the next call gives the next batch.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from headrace.device import AheadIterator, transfer_to
from headrace.doors.swift import figures
from headrace.doors.swift.figures import Figures
from headrace.doors.swift.log import Log
from headrace.doors.swift.options import Options
from headrace.doors.swift.work import WORDS, Packet, Prepare, Workshop, decode
from headrace.engine.epoch import Epoch
from headrace.errors import RanksDisagree
from headrace.loader import Loader
from headrace.pipe.graph import Pipe
from headrace.plan.seed import key
from headrace.plan.world import World

ENDLESS = 1 << 62
MEMORY = 256 * 1024 * 1024
"""Bytes for every ten slots of `data_queue_size`."""
RESTARTS = 10_000
"""Dead workers replaced in the life of a loader; a batch that kills its worker twice is an error long before."""

ToDevice = Callable[[Any, Any], Any]


class Running:
    """What exists between start() and close()."""

    def __init__(self, options: Options, consumer: int, epoch: int, device: object, to_device: ToDevice | None) -> None:
        self.consumer = consumer
        self._closing = ExitStack()
        try:
            if options.logger is not None:
                options = replace(options, logger=self._closing.enter_context(options.logger.claimed()))
            self.options = options
            self.log = self._log(f"Dataloader-{consumer}")
            self.figures = self._figures()
            self.loader = self._loader()
            self._closing.callback(self.loader.close)
            self._threads = self._decode_threads()
            self._device, self._to_device = device, to_device
            self._transfer = None if device is None or to_device is not None else transfer_to(device)
            self._stream: Epoch[Packet] | None = None
            self.begin(epoch)
        except BaseException:
            self.close()
            raise

    # --- putting it together ------------------------------------------------------------------------------------------

    def _log(self, name: str, file: str | None = None) -> Log:
        log = Log(self.options.logger, name, file)
        self._closing.callback(log.close)
        return log

    def _figures(self) -> Figures:
        write: Callable[[dict[str, Any]], None] | None = None
        if self.options.benchmark_file is not None:
            file = self._closing.enter_context(figures.figure_file(self.options.benchmark_file))
            write = partial(figures.write_line, file)
        elif self.options.logger is not None:
            write = self._log_figure
        return Figures(self.options.data_queue_size if self.options.benchmark else None, self.consumer, write)

    def _log_figure(self, line: dict[str, Any]) -> None:
        worker = line.get("worker")
        log = self.log if worker is None else self._parents[worker % self.options.worker_per_consumer]
        log.info("benchmark", **line)

    def _loader(self) -> Loader[Packet]:
        options, workers = self.options, self.options.worker_per_consumer
        self._manager = self._log(f"WorkerManager-{self.consumer}")
        numbers = range(self.consumer * workers, (self.consumer + 1) * workers)
        self._parents = [self._log(f"Worker-{k}", f"Worker-{k}-parent") for k in numbers]
        workshop = Workshop(replace(options, batch_decoder=None), self.consumer)
        return Loader(
            Pipe.of(range(ENDLESS)).batch(1).then(Prepare(workshop)),
            workers=workers,
            kind="process",
            world=World(),  # which consumer this is has been said already
            seed=key(options.seed, "swift", self.consumer),
            prefetch=options.message_queue_size,
            window=workers * options.window,
            # Long queues are meant: the memory that batches may take grows with them.
            memory=MEMORY * -(-options.data_queue_size // 10),
            worker_init=workshop.enter,
            restarts=RESTARTS,
            # A worker reads its own arc and nothing else, so that neighbours in a file are read by one process.
            stealing=False,
            # The workers seed the global generators themselves, by epoch and batch.
            randomness="carried",
        )

    def _decode_threads(self) -> ThreadPoolExecutor | None:
        if not self.options.decode_threads:
            return None
        threads = ThreadPoolExecutor(self.options.decode_threads, f"swift-decode-{self.consumer}")
        self._closing.callback(threads.shutdown, wait=False, cancel_futures=True)
        return threads

    def _stages(self) -> Iterator[Any]:
        """The batches all the way to the training loop; nothing is on its way yet."""
        batches: Iterator[Any] = Received(self)
        if self.options.batch_decoder is not None:
            decoding = BatchStep(self._begin_decoding, lambda result, _: self._counted(figures.DECODE, *result()))
            batches = AheadIterator(batches, decoding, self.options.decode_threads, eager=True)
        if self._device is not None:
            batches = AheadIterator(batches, self._moving(), self.options.max_nb_batch_on_device, eager=True)
        return batches

    def _begin_decoding(self, packed: object) -> tuple[Callable[[], tuple[float, Any]], None]:
        if self._threads is not None:
            return self._threads.submit(_timed, decode, packed, self.options.batch_decoder).result, None
        decoded = _timed(decode, packed, self.options.batch_decoder)
        return lambda: decoded, None

    def _moving(self) -> "BatchStep":
        transfer, to_device = self._transfer, self._to_device
        if transfer is not None:
            return BatchStep(
                lambda batch: self._counted(figures.TRANSFER, *_timed(transfer.begin, batch)), transfer.finish
            )
        assert to_device is not None
        return BatchStep(
            lambda batch: (self._counted(figures.TRANSFER, *_timed(to_device, batch, self._device)), None),
            lambda batch, _: batch,
        )

    # --- the stream ---------------------------------------------------------------------------------------------------

    def begin(self, epoch: int) -> None:
        """Let the stream begin with this epoch, whatever is on its way: ask every worker how long its dataset is."""
        if self._stream is not None:
            self._stream.close()
        self.loader.go_to(epoch, None)
        with WORDS:
            self._stream = iter(self.loader)
            answers = [next(self._stream) for _ in range(self.options.worker_per_consumer)]
        for answer in answers:
            self._manager.info("worker", worker=answer.worker, length=answer.length)
        self.samples = answers[0].length
        for answer in answers:
            self._check(answer)
        self.length = self.options.plan.batches(self.samples, self.consumer)
        self._batches = self._stages()

    def next(self) -> Any:
        self.figures.ask()
        batch = next(self._batches)
        self.figures.give()
        return batch

    def receive(self) -> Any:
        assert self._stream is not None
        with WORDS:
            packet = next(self._stream)
        self._check(packet)
        log = self._parents[packet.worker % self.options.worker_per_consumer]
        if log.detailed:
            log.debug("received", seconds=packet.seconds)
        if packet.seconds is not None:
            collect, collate, serialize = packet.seconds
            self.figures.add(figures.COLLECT, collect, packet.worker)
            self.figures.add(figures.COLLATE, collate, packet.worker)
            if self.options.batch_encoder is not None:
                self.figures.add(figures.SERIALIZE, serialize, packet.worker)
        return packet.batch

    def _counted(self, task: str, seconds: float, result: object) -> Any:
        self.figures.add(task, seconds)
        return result

    def _check(self, packet: Packet) -> None:
        if packet.length != self.samples:
            raise RanksDisagree(
                f"the dataset has {self.samples} samples in one worker and {packet.length} in worker {packet.worker}; "
                "every worker builds it from the same arguments and must get the same one"
            )

    def close(self) -> None:
        self._closing.close()


def _timed(work: Callable[..., Any], *arguments: object) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work(*arguments)
    return time.perf_counter() - started, result


class Received(Iterator[Any]):
    """Batches as the workers sent them, without an end; one that failed costs itself, no more."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def __next__(self) -> Any:
        return self._running.receive()


class BatchStep(NamedTuple):
    """A step on a batch's way that is begun before its result is asked for: a transfer of `AheadIterator`."""

    begin: Callable[[Any], tuple[Any, Any]]
    finish: Callable[[Any, Any], Any]
