"""What a worker of a SwiftLoader does: build the dataset once, then make batch after batch.

    position < workers    each worker builds its dataset and answers with the length of it
    later positions       the batches of the epochs, one after the other without a gap

So the consumer learns the length from its workers and never builds the dataset. It sends a worker positions only: the
worker computes by itself which samples make up a batch. The epoch of the Loader is the first epoch of the stream.

A batch travels as a `Packet`. What a `batch_encoder` returns travels with the name of its type, so that the decoder
gets an object of the type that the encoder returned.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.doors.swift.log import Log
from headrace.doors.swift.options import Options
from headrace.engine.wire import codec
from headrace.engine.wire.words import COLLATE_WORDS, WITHOUT_SKIPS, Words
from headrace.op import Each, Here, place
from headrace.ops.shape.collate import collate
from headrace.plan.seed import BorrowedGlobals, key, seed_globals


class Packet(NamedTuple):
    """What a worker sends."""

    length: int
    """Of its dataset."""
    worker: int
    seconds: tuple[float, float, float] | None
    """What collecting, collating and serializing took."""
    batch: Any


@dataclass(slots=True)
class NamedStep:
    """A step of making a batch: `with NamedStep("collate"):` adds the name of the step to an error raised in it."""

    name: str
    index: int | None = None

    def __enter__(self) -> "NamedStep":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        sample = "" if self.index is None else f", sample {self.index}"
        note = f"headrace: SwiftLoader failed at stage '{self.name}'{sample}"
        if isinstance(error, StopIteration):
            # Left as it is, it would end the epoch of the training loop.
            named = RuntimeError(f"StopIteration was raised at stage '{self.name}'{sample}")
            named.add_note(note)
            raise named from error
        error.add_note(note)


WORDS = Words(
    there="build it inside the dataset, which is made in the worker",
    back="return plain data, arrays or tensors from the dataset or collate_fn, or give batch_encoder and batch_decoder",
    others=(
        *COLLATE_WORDS,
        *WITHOUT_SKIPS,
        (
            "look at it with workers=0",
            "build the dataset without a SwiftLoader, from dataset_class, and look at it there",
        ),
    ),
)


class BatchMaker:
    """Builds the dataset of one worker and makes its batches; created by the consumer, which never builds a dataset.

    `options` come without the decoder, which stays in the consumer.
    """

    def __init__(self, options: Options, consumer: int) -> None:
        self.options = options
        self.consumer = consumer
        self.plan = options.plan
        self.number = -1
        """Of this worker, among the workers of all consumers."""
        self._log: Log | None = None
        self._dataset: Any = None
        self._length: int | None = None
        self._here: Here | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the dataset: a profile builds one in the consumer, which may start workers after that.
        return BatchMaker, (self.options, self.consumer)

    def enter(self, worker: int) -> None:
        """The first call in a worker process."""
        self.number = self.consumer * self.plan.workers + worker
        self._log = Log(self.options.logger, f"Worker-{self.number}", f"Worker-{self.number}-child")

    def make(self, position: int, here: Here) -> Packet:
        """The batch at a position of the stream; at the first positions, the length of the dataset without a batch."""
        length = self.length()
        batches = self.plan.batches(length, self.consumer)
        if position < self.plan.workers or not batches:
            return Packet(length, self.number, None, None)
        epochs, batch = divmod(position - self.plan.workers, batches)
        return self._make(length, here.epoch + epochs, batch, here)

    def length(self) -> int:
        """The length of the dataset, which is built now if it is not there yet."""
        if self._length is None:
            started = time.perf_counter()
            # The same in every worker: a dataset that draws random values when it is made is the same everywhere.
            seed_globals(key(self.plan.seed, "swift", "construct"))
            with NamedStep("construct"):
                self._dataset = self.options.dataset_class(**self.options.dataset_kwargs)
                self._length = len(self._dataset)
            self._log = self._log or Log(None, "Worker")  # no worker called enter(): a profile, or a dry run
            self._log.info("dataset", length=self._length, seconds=round(time.perf_counter() - started, 6))
        return self._length

    def _make(self, length: int, epoch: int, batch: int, here: Here) -> Packet:
        indices = self.plan.indices(length, epoch, self.consumer, batch)
        log = self._log
        assert log is not None
        if log.detailed:
            log.debug("batch", epoch=epoch, batch=batch, indices=indices)
        seed_globals(key(self.plan.seed, "swift", "batch", epoch, self.consumer, batch))
        if self._here is None or self._here.epoch != epoch:
            # The place of an epoch's samples is the same for every consumer, worker and batch size.
            self._here = Here(sample_key(self.plan.seed, epoch), epoch, here.ordinal, spot=here.spot)
        try:
            made, seconds = self.assemble(indices, self._here, here, batch)
        except Exception as error:
            log.error("failed", epoch=epoch, batch=batch, error=repr(error), notes=error.__notes__)
            raise
        return Packet(length, self.number, seconds if self.options.benchmark else None, made)

    def assemble(
        self, indices: Sequence[int], of_sample: Here, of_batch: Here, batch: int
    ) -> tuple[Any, tuple[float, float, float]]:
        """The batch of these samples as it travels, and what each step took.

        `headrace.rng()` is keyed by epoch and sample: a sample draws the same values in any worker and any batch.
        """
        options, dataset, samples, at = self.options, self._dataset, [], place.at
        begun = time.perf_counter()
        with NamedStep("getitem") as step:
            for index in indices:
                step.index = index
                at(of_sample, index)
                samples.append(dataset[index])
        at(of_batch, batch)
        collected = time.perf_counter()
        with NamedStep("collate"):
            made = collate(samples) if options.collate_fn is None else options.collate_fn(samples)
        collated = time.perf_counter()
        if options.batch_encoder is not None:
            made = encode(made, options.batch_encoder)
        return made, (collected - begun, collated - collected, time.perf_counter() - collated)


@dataclass(frozen=True, slots=True, eq=False)
class MakeBatch(Each[list[int], Packet]):
    """Positions in the stream of batches to the batches themselves."""

    maker: BatchMaker
    user = True

    def apply(self, sample: list[int]) -> Packet:
        here = place.spot.here
        assert here is not None
        return self.maker.make(sample[0], here)

    def describe(self) -> str:
        return f"SwiftLoader({self.maker.options.dataset_class.__qualname__})"


def sample_key(seed: int, epoch: int) -> int:
    return key(seed, "swift", "samples", epoch)


def encode(batch: object, encoder: Callable[[Any], Any]) -> tuple[str, Any]:
    """The encoder's bytes as an array, which is not copied into a message, and the name of their type."""
    import numpy as np

    with NamedStep("encode"):
        raw = encoder(batch)
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise TypeError(f"batch_encoder must return bytes, bytearray or a memoryview, not {type(raw).__name__}")
        view = memoryview(raw).cast("B") if memoryview(raw).c_contiguous else memoryview(bytes(raw))
        return type(raw).__name__, np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def decode(packed: tuple[str, Any], decoder: Callable[[Any], Any]) -> Any:
    """The batch again; the decoder gets bytes, a bytearray or a memoryview, as the encoder returned it."""
    kind, array = packed
    raw = memoryview(array)
    with NamedStep("decode"):
        return decoder(raw if kind == "memoryview" else bytes(raw) if kind == "bytes" else bytearray(raw))


def validate(options: Options) -> None:
    """Make the first batch here, all the way to what the training loop would get: a mistake shows before any worker
    starts.

    The error keeps its type; a note names the step. The dataset is thrown away afterwards, and the caller's random
    generators are left as they were.
    """
    spot = place.spot
    try:
        with BorrowedGlobals(), WORDS:
            maker = BatchMaker(options, 0)
            if size := min(options.batch_size, maker.length()):
                here = Here(sample_key(options.seed, 0), 0, 0)
                batch, _ = maker.assemble(range(size), here, here, 0)
                _travel(batch, options.batch_decoder)
    finally:
        place.spot = spot


def _travel(batch: Any, decoder: Callable[[Any], Any] | None) -> None:
    if decoder is not None:
        decode(batch, decoder)
        return
    with NamedStep("encode"), WORDS:
        head, buffers = codec.pack(batch)
    with NamedStep("decode"):
        codec.load(head, buffers)
