"""A DataLoader in torch's form, torch's own or ours, as a pipe of the same parts: for measuring, not for training.

The pipe reads the same dataset in batches of the same size through the same collate; it does not take the same samples
at the same time, because the sampler is not asked: neither does that change where the time goes.
"""

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from headrace.doors.torch.collate import shorter
from headrace.pipe.graph import Pipe


def as_pipe(loader: "DataLoader[Any]") -> tuple[Pipe[Any], dict[str, Any]]:
    """The pipe, and the options of a Loader that runs it as the DataLoader would."""
    pipe: Pipe[Any] = Pipe.of(loader.dataset)
    if isinstance(loader.sampler, RandomSampler) and not isinstance(loader.dataset, IterableDataset):
        pipe = pipe.shuffle()
    size = _size(loader)
    if size is None:
        pipe = pipe.map(loader.collate_fn)
    else:
        pipe = pipe.batch(size, drop_last=loader.drop_last).collate(shorter(loader.collate_fn))
    options = {"workers": loader.num_workers, "worker_init": loader.worker_init_fn, "timeout": loader.timeout or None}
    return pipe, options


def _size(loader: "DataLoader[Any]") -> int | None:
    """Samples a batch: of a batch sampler that does not say, as many as its first one has."""
    if loader.batch_size is not None:
        return loader.batch_size
    if loader.batch_sampler is None:
        return None
    said = getattr(loader.batch_sampler, "batch_size", None)
    return int(said) if said is not None else len(next(iter(loader.batch_sampler)))
