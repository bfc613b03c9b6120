"""Names of other libraries (Grain, tf.data, TorchData, WebDataset, pandas), and what one writes here instead."""

VERBS = {
    "apply": "map(fn)",
    "as_numpy_iterator": "Loader(pipe): its batches are numpy already",
    "cache": "in_memory_cache(), or on_disk_cache() of files",
    "compose": "map(), one after the other",
    "decode_fn": "decode() or map(fn)",
    "from_tensor_slices": "Pipe.of({'x': x, 'y': y}), of arrays of one length",
    "interleave": "mix(), or round_robin_demux() and mux()",
    "map_with_index": "enumerate().map(fn)",
    "mp_prefetch": "Loader(pipe, workers=4, prefetch=2)",
    "mp_prefetch_to_iter_dataset": "Loader(pipe, workers=4, prefetch=2)",
    "padded_batch": "batch(n).collate(pad=0)",
    "random_map": "map(fn), with headrace.rng() inside fn",
    "random_map_with_index": "enumerate().map(fn), with headrace.rng() inside fn",
    "shard": "Loader(pipe, world=World.detect()): ranks share the samples by themselves",
    "skip": "a slice of the data: Pipe.of(data[n:])",
    "source": "Pipe.of(source)",
    "take": "header(n)",
    "to_iter_dataset": "Loader(pipe, workers=4)",
    "with_options": "options of the Loader",
}
OPTIONS = {
    "left_on": "on={'name here': 'name in the frame'}",
    "reshuffle_each_iteration": "nothing: every epoch has an order of its own",
    "right_on": "on={'name here': 'name in the frame'}",
    "seed": "Loader(pipe, seed=7): all random choices of a pipe follow from one number",
}


def instead(word: str, table: dict[str, str]) -> str:
    """What to write in the place of a word of another library's; nothing if it is not known."""
    found = table.get(word)
    return "" if found is None else f"; here one writes {found}"
