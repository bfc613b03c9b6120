"""Duplicates: notices that every worker of an iterable-style dataset reads the same samples.

That is torch's rule unless the dataset divides its data by `get_worker_info()`, and the most common mistake with it.
The first batches of two workers are compared, by a digest of their packed form.
"""

from hashlib import blake2b

from headrace.engine.wire import codec

ROUNDS = 3
"""Batches of each of two workers that are compared."""
LOOKED_AT = 1 << 16
"""Bytes of each array that are compared."""


class DuplicateCheck:
    """Compares the first batches of the first two workers that deliver any."""

    def __init__(self) -> None:
        self._seen: dict[int, list[bytes]] = {}

    def see(self, worker: int, batch: object) -> bool | None:
        """Look at a batch. Whether the workers' batches are alike, when enough were seen; None before."""
        if worker in self._seen or len(self._seen) < 2:
            digests = self._seen.setdefault(worker, [])
            if len(digests) < ROUNDS:
                digests.append(_digest(batch))
        enough = [len(digests) == ROUNDS for digests in self._seen.values()] == [True, True]
        return self.alike() if enough else None

    def alike(self) -> bool:
        """Whether what was seen so far of two workers is the same."""
        return len(self._seen) == 2 and len(set(map(tuple, self._seen.values()))) == 1


def replicas(dataset: object, workers: int) -> str:
    """What to say where all workers give the same."""
    return (
        f"the {workers} workers all read the same samples of {type(dataset).__qualname__}, so each sample "
        f"arrives {workers} times; write DataLoader(..., shard='auto') to divide them exactly, or divide them in "
        f"__iter__ by torch.utils.data.get_worker_info()"
    )


def too_long(dataset: object, promised: int, taken: int, workers: int) -> str:
    """torch's own words about a dataset that gives more than its length says: often replicas are the reason."""
    text = (
        f"Length of IterableDataset {dataset} was reported to be {promised}"
        f"(when accessing len(dataloader)), but {taken} samples have been fetched. "
    )
    if workers > 0:
        text += (
            "For multiprocessing data-loading, this could be caused by not properly configuring the "
            "IterableDataset replica at each worker. Please see "
            "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
        )
    return text


def _digest(batch: object) -> bytes:
    head, buffers = codec.pack(batch)
    digest = blake2b(head, digest_size=16)
    for raw in buffers:
        digest.update(raw[:LOOKED_AT])
    return digest.digest()
