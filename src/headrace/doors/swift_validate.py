"""The dry run: build the dataset and make one batch in the consumer, so that a mistake shows before any worker starts.

The error keeps its type; a note names the stage: construct, getitem, collate, encode or decode. The dataset is thrown
away afterwards, and the caller's random generators are left as they were.
"""

from headrace.doors.swift_options import Options
from headrace.doors.swift_work import Stage, assemble, construct, decode, encode
from headrace.engine import codec
from headrace.plan.seed import BorrowedGlobals, key, seed_globals


def validate(options: Options) -> None:
    """Make the first batch here, all the way to what the training loop would get."""
    with BorrowedGlobals():
        seed_globals(key(options.seed, "swift", "construct"))
        dataset, length = construct(options.dataset_class, options.dataset_kwargs)
        with Stage("getitem") as stage:
            samples = []
            for stage.index in range(min(options.batch_size, length)):
                samples.append(dataset[stage.index])
        if not samples:
            return
        batch = assemble(samples, options.collate_fn)
        if options.batch_encoder is not None and options.batch_decoder is not None:
            decode(encode(batch, options.batch_encoder), options.batch_decoder)
            return
        with Stage("encode"):
            head, buffers = codec.pack(batch)
        with Stage("decode"):
            codec.load(head, buffers)
