"""The dry run: build the dataset and make one batch in the consumer, so that a mistake shows before any worker starts.

The error keeps its type; a note names the stage: construct, getitem, collate, encode or decode. The dataset is thrown
away afterwards, and the caller's random generators are left as they were.
"""

from headrace.doors.swift.options import Options
from headrace.doors.swift.work import WORDS, NamedStep, assemble, collect, construct, decode, encode, sample_key
from headrace.engine.wire import codec
from headrace.op import Here, place
from headrace.plan.seed import BorrowedGlobals, key, seed_globals


def validate(options: Options) -> None:
    """Make the first batch here, all the way to what the training loop would get."""
    spot = place.spot
    try:
        with BorrowedGlobals():
            seed_globals(key(options.seed, "swift", "construct"))
            dataset, length = construct(options.dataset_class, options.dataset_kwargs)
            here = Here(sample_key(options.seed, 0), 0, 0)
            samples = collect(dataset, range(min(options.batch_size, length)), here)
            if samples:
                _travel(assemble(samples, options.collate_fn), options)
    finally:
        place.spot = spot


def _travel(batch: object, options: Options) -> None:
    if options.batch_encoder is not None and options.batch_decoder is not None:
        decode(encode(batch, options.batch_encoder), options.batch_decoder)
        return
    with NamedStep("encode"), WORDS:
        head, buffers = codec.pack(batch)
    with NamedStep("decode"):
        codec.load(head, buffers)
