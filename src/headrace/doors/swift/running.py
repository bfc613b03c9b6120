"""A SwiftLoader between start() and close(): its workers, its stream of batches, its logs and figures.

    Loader over positions ──> received ──> decoded (in threads, if asked for) ──> moved to the device ──> next()

The stream has no end; the SwiftLoader counts `length` batches to an epoch. A call of `next` that fails loses its own
batch only: the call after it gives the batch after it.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from headrace.device import AheadIterator, Transfer, transfer_to
from headrace.doors.swift import figures
from headrace.doors.swift.figures import Figures
from headrace.doors.swift.log import Log
from headrace.doors.swift.options import Options
from headrace.doors.swift.worker import WORDS, BatchMaker, MakeBatch, Packet, decode
from headrace.engine.epoch import Epoch
from headrace.engine.policy import Policy
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
            self._steps = self._batch_steps(device, to_device)
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
        write: figures.Write | None = None
        if self.options.benchmark_file is not None:
            write = self._closing.enter_context(figures.figure_file(self.options.benchmark_file))
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
        maker = BatchMaker(replace(options, batch_decoder=None), self.consumer)
        policy = Policy(
            workers=workers,
            kind="process",
            prefetch=options.message_queue_size,
            window=workers * options.window,
            # Long queues are meant: the memory that batches may take grows with them.
            memory=MEMORY * -(-options.data_queue_size // 10),
            worker_init=maker.enter,
            restarts=RESTARTS,
            # A worker reads its own arc and nothing else, so that neighbours in a file are read by one process.
            pinned=True,
            stretch=False,
            # The workers seed the global generators themselves, by epoch and batch.
            randomness="carried",
        )
        return Loader.of(
            Pipe.of(range(ENDLESS)).batch(1).then(MakeBatch(maker)),
            policy,
            world=World(),  # the data is shared among consumers by the plan, not by ranks
            seed=key(options.seed, "swift", self.consumer),
        )

    def _batch_steps(self, device: object, to_device: ToDevice | None) -> "list[tuple[BatchStep, int]]":
        """What is done to a batch after it was received, and for how many batches ahead of the training loop."""
        steps, options = [], self.options
        if options.batch_decoder is not None:
            steps.append((self._decoding(options.batch_decoder), options.decode_threads))
        if device is not None:
            steps.append((self._moving(device, to_device), options.max_nb_batch_on_device))
        return steps

    def _decoding(self, decoder: Callable[[Any], Any]) -> "BatchStep":
        if not self.options.decode_threads:
            return BatchStep(
                lambda packed: (self._counted(figures.DECODE, *_timed(decode, packed, decoder)), None), _unchanged
            )
        threads = ThreadPoolExecutor(self.options.decode_threads, f"swift-decode-{self.consumer}")
        self._closing.callback(threads.shutdown, wait=False, cancel_futures=True)
        return BatchStep(
            lambda packed: (threads.submit(_timed, decode, packed, decoder), None),
            lambda decoded, _: self._counted(figures.DECODE, *decoded.result()),
        )

    def _moving(self, device: object, to_device: ToDevice | None) -> "BatchStep":
        transfer: BatchStep | Transfer
        if to_device is None:
            transfer = transfer_to(device)
        else:
            transfer = BatchStep(lambda batch: (to_device(batch, device), None), _unchanged)
        return BatchStep(lambda batch: self._counted(figures.TRANSFER, *_timed(transfer.begin, batch)), transfer.finish)

    # --- the stream ---------------------------------------------------------------------------------------------------

    def begin(self, epoch: int) -> None:
        """Drop batches that are on their way and begin the stream with this epoch.

        Every worker is asked how long its dataset is.
        """
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
        batches: Iterator[Any] = Received(self)
        for step, ahead in self._steps:
            batches = AheadIterator(batches, step, ahead, eager=True)
        self._batches = batches

    def next(self) -> Any:
        self.figures.batch_requested()
        batch = next(self._batches)
        self.figures.batch_delivered()
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


def _unchanged(batch: object, _: object) -> Any:
    return batch


@dataclass
class Received(Iterator[Any]):
    """Batches as the workers sent them, without an end. (A generator would end with the first error.)"""

    running: Running

    def __next__(self) -> Any:
        return self.running.receive()


class BatchStep(NamedTuple):
    """Something done to a batch that is begun before its result is asked for: a transfer of `AheadIterator`."""

    begin: Callable[[Any], tuple[Any, Any]]
    finish: Callable[[Any, Any], Any]
