"""What to do about an error of the engine, in the names of torch's options."""

from headrace.engine.wire.words import DATASET_CURE, WITHOUT_SKIPS, Words

WORDS = Words(
    there=DATASET_CURE,
    back="return plain data, arrays or tensors from the dataset or collate_fn",
    others=(*WITHOUT_SKIPS, ("look at it with workers=0", "look at it with num_workers=0")),
)
