"""Our DataPipes under our DataLoader, as torch's are under torch's.

    stream    an iterable-style dataset: each worker of each rank takes its share at the shard points, all shuffle alike
    table     a map-style dataset

torch's own constructor looks at the graph (`shuffle=` switches its shuffles on or off) and wraps it; `unwrapped` is
what our engine reads instead. Graphs of torch's own pipes stay on torch's workers.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe, get_worker_info
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

from headrace.doors.torch.seeds import base_seed
from headrace.op import place
from headrace.pipe.graph import Pipe
from headrace.plan.world import World
from headrace.ranks.agree import Agreement


class PipeStream(IterDataPipe[Any]):
    """A graph of ours, as each worker reads it."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe
        self.seed = 0
        """What all workers of all ranks shuffle by."""
        self.rank, self.ranks = 0, 1
        self._agreement: Agreement | None = None
        self._read = self._skip = 0

    def begin(self, generator: torch.Generator | None) -> None:
        """Before an epoch, in the training process: rank 0 says by which seed all of them shuffle."""
        self.seed = base_seed(generator)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self.rank, self.ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
            self._agreement = self._agreement or Agreement.of(World(self.rank, self.ranks))
            if self._agreement is not None:
                self.seed = self._agreement.broadcast(self.seed)

    def __iter__(self) -> Iterator[Any]:
        info, here = get_worker_info(), place.spot.here
        count, number = (1, 0) if info is None else (info.num_workers, info.id)
        apply_sharding(self.pipe, count * self.ranks, number * self.ranks + self.rank)
        epoch = 0 if here is None else here.epoch  # (of persistent workers, which keep this object)
        apply_random_seed(self.pipe, torch.Generator().manual_seed((self.seed + epoch) % 2**63))
        samples, self._read, self._skip = iter(self.pipe), self._skip, 0
        for _ in range(self._read):
            next(samples, None)
        for sample in samples:
            self._read += 1
            yield sample

    def state_dict(self) -> dict[str, int]:
        """By what this epoch shuffles, and how far it is read: it goes on by reading again."""
        return {"seed": self.seed, "read": self._read}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seed, self._skip = state["seed"], state["read"]

    def __len__(self) -> int:
        return len(self.pipe)

    def __getstate__(self) -> Any:
        if IterDataPipe.getstate_hook is not None:
            return IterDataPipe.getstate_hook(self.__dict__)
        return {**self.__dict__, "_agreement": None}


def unwrapped(dataset: Any) -> Any:
    """What our engine reads, out of what torch's constructor made of a dataset."""
    inner = getattr(dataset, "_datapipe", None) if isinstance(dataset, IterDataPipe | MapDataPipe) else None
    if not isinstance(inner, Pipe):
        return dataset
    return inner if isinstance(dataset, MapDataPipe) else PipeStream(inner)


def on_torchs_workers(dataset: Any) -> bool:
    """Whether a dataset is a graph of torch's own pipes."""
    return isinstance(dataset, IterDataPipe | MapDataPipe) and not isinstance(dataset, Pipe | PipeStream)


def shuffling(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a DataLoader; a graph of ours that is to be shuffled, and does not say where, is at its end."""
    dataset: Any = arguments.get("dataset")
    if not arguments.get("shuffle") or on_torchs_workers(dataset) or not isinstance(dataset, IterDataPipe):
        return arguments
    from headrace.doors.datapipes.adapter import Shuffle

    return {**arguments, "dataset": Shuffle(True)(dataset)}
