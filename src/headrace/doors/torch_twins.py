"""Twins: notices that every worker of an iterable-style dataset reads the same samples.

That is torch's rule unless the dataset divides its data by `get_worker_info()`, and the most common mistake with it. The
first batches of two workers are compared, by what they look like when packed; equal ones are worth one warning.
"""

import warnings
from hashlib import blake2b
from typing import Any

from headrace.engine import codec

ROUNDS = 3
"""Batches of each of two workers that are compared."""
LOOKED_AT = 1 << 16
"""Bytes of each array that are compared."""


class Twins:
    """Looks at the first batches of the first two workers that deliver any."""

    def __init__(self, workers: int, dataset: Any) -> None:
        self._workers = workers
        self._dataset = type(dataset).__qualname__
        self._seen: dict[int, list[bytes]] = {}

    def see(self, worker: int, batch: Any) -> bool:
        """Look at a batch; False when there is nothing more to find out."""
        if worker not in self._seen and len(self._seen) == 2:
            return True
        batches = self._seen.setdefault(worker, [])
        if len(batches) < ROUNDS:
            batches.append(_digest(batch))
        if len(self._seen) == 2 and all(len(b) == ROUNDS for b in self._seen.values()):
            self.decide()
            return False
        return True

    def decide(self) -> None:
        first, *rest = self._seen.values() or [[]]
        if rest and first and rest[0] == first:
            warnings.warn(
                f"the {self._workers} workers all read the same samples of {self._dataset}, so each sample arrives "
                f"{self._workers} times; write DataLoader(..., shard='auto') to divide them exactly, or divide them in "
                f"__iter__ by torch.utils.data.get_worker_info()",
                UserWarning,
                stacklevel=5,
            )
        self._seen.clear()


def _digest(batch: Any) -> bytes:
    head, buffers = codec.pack(batch)
    digest = blake2b(head, digest_size=16)
    for raw in buffers:
        digest.update(raw[:LOOKED_AT])
    return digest.digest()
