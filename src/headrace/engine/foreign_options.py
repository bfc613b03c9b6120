"""Options that a Loader does not have, of other loaders or of earlier versions, and what to write instead."""

import inspect
from collections.abc import Mapping

from headrace.engine.autosave import EVERY
from headrace.errors import BadOption, meant

PINNED = "any worker makes any batch, and the batches are the same; headrace.DataLoader has torch's worker for each"
INSTEAD = {
    "batch_sampler": "the pipe says which samples make a batch: pipe.shuffle().batch(n); a batch sampler of torch's "
    "goes into headrace.DataLoader",
    "batch_size": "the pipe makes batches: pipe.batch({value})",
    "collate_fn": "the pipe joins samples: pipe.batch(n).collate({value})",
    "dataset": "a Loader takes a pipe first: Loader(Pipe.of(dataset))",
    "drop_last": "the pipe makes batches: pipe.batch(n, drop_last={value})",
    "every": EVERY,
    "generator": "orders and random values follow from a number: write seed=7",
    "in_order": "write ordered={value}",
    "mp_prefetch": "write workers= and prefetch=",
    "multiprocessing_context": "write start_method='server', 'fork', 'forkserver' or 'spawn'",
    "num_epochs": "each `for batch in loader` is one epoch: for epoch in range({value}): for batch in loader: ...",
    "num_workers": "write workers={value}",
    "persistent_workers": "workers live until close(); leave it out",
    "pin_memory": "headrace.device.ahead(loader, device) pins and copies ahead; or pipe.pin_memory()",
    "pinned": PINNED,
    "pool": "workers belong to one Loader; headrace.share(data) lets several loaders read the same memory",
    "prefetch_factor": "write prefetch={value}",
    "randomness": "random values belong to the batch, and those of headrace.rng() to the sample; headrace.DataLoader "
    "carries the generators of its workers on",
    "read_options": "write workers= and prefetch=",
    "sampler": "the pipe says the order: pipe.shuffle(), pipe.weighted(weights); a sampler of torch's goes into "
    "headrace.DataLoader",
    "shard_options": "write world=World.detect()",
    "shuffle": "the pipe says the order: pipe.shuffle() before pipe.batch(n)",
    "stealing": PINNED,
    "store": "write world=World(rank=..., ranks=..., store=store)",
    "stretch": "more is fetched ahead only while batches are quick to make; leave it out",
    "window": "batches under way are bounded by prefetch=, for each worker, and by memory=, in bytes",
    "worker_buffer_size": "write prefetch={value}",
    "worker_count": "write workers={value}",
    "worker_init_fn": "write worker_init={value}",
}


def refuse(given: Mapping[str, object], loader: type) -> None:
    """Raise BadOption about options that a loader does not have, if there are any."""
    for name, value in given.items():
        shown = getattr(value, "__name__", None) or repr(value)
        if name in INSTEAD:
            raise BadOption(f"Loader has no option {name!r}: {INSTEAD[name].format(value=shown)}")
        parameters = inspect.signature(loader).parameters.values()
        known = sorted(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        hint = meant(name, known, f"it has {', '.join(known)}")
        raise BadOption(f"Loader has no option {name!r}{hint}")
