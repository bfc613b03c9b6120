"""A SwiftLoader between start() and close(): its workers, its stream of batches, its logs and figures.

    Loader over positions ──> received ──> decoded (in threads, if asked for) ──> moved to the device ──> next()

The stream has no end; whoever reads it counts `length` batches to an epoch. A call that fails costs the batch it was
for, no more: the next call gives the next batch.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.device import lane_to
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
In = TypeVar("In")
Out = TypeVar("Out")


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
            self._lane = None if device is None or to_device is not None else lane_to(device)
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

    def _stages(self) -> Callable[[], Any]:
        """What a call of the stream does after a packet has been received; nothing is on its way yet."""
        stage: Callable[[], Any] = self._receive
        if self.options.batch_decoder is not None:
            stage = Prefetcher(stage, self._begin_decoding, self.options.decode_threads)
        if self._device is not None:
            stage = Prefetcher(stage, self._begin_moving, self.options.max_nb_batch_on_device)
        return stage

    def _begin_decoding(self, packed: object) -> Callable[[], Any]:
        if self._threads is not None:
            result = self._threads.submit(_timed, decode, packed, self.options.batch_decoder).result
            return lambda: self._counted(figures.DECODE, *result())
        decoded = self._counted(figures.DECODE, *_timed(decode, packed, self.options.batch_decoder))
        return lambda: decoded

    def _begin_moving(self, batch: object) -> Callable[[], Any]:
        if self._lane is not None:
            copy = self._counted(figures.TRANSFER, *_timed(self._lane.begin, batch))
            return partial(self._lane.finish, *copy)
        assert self._to_device is not None
        moved = self._counted(figures.TRANSFER, *_timed(self._to_device, batch, self._device))
        return lambda: moved

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
        self._next = self._stages()

    def next(self) -> Any:
        self.figures.ask()
        batch = self._next()
        self.figures.give()
        return batch

    def _receive(self) -> Any:
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


class Prefetcher(Generic[In, Out]):
    """Begins work on `depth` items of an endless stream before they are asked for.

    `pull()` gives the next item, `begin(item)` a function that gives its result, and a call of this object the next
    result. An error waits for the turn of the item it belongs to; nothing is pulled beyond it before. An interrupt of
    the user's costs no item: the next call goes on where this one was.
    """

    def __init__(self, pull: Callable[[], In], begin: Callable[[In], Callable[[], Out]], depth: int) -> None:
        self._pull = pull
        self._begin = begin
        self._depth = depth
        self._pulled: list[In] = []
        self._line: deque[Callable[[], Out] | Exception] = deque()

    def __call__(self) -> Out:
        line = self._line
        while len(line) <= self._depth and not (line and isinstance(line[-1], Exception)):
            line.append(self._next())
        try:
            begun = line[0]
            if isinstance(begun, Exception):
                raise begun
            result = begun()
        except Exception:
            line.popleft()
            raise
        line.popleft()
        return result

    def _next(self) -> Callable[[], Out] | Exception:
        begun: Callable[[], Out] | Exception
        try:
            if not self._pulled:
                self._pulled.append(self._pull())
            begun = self._begin(self._pulled[0])
        except Exception as error:
            begun = error
        self._pulled.clear()
        return begun
