"""Agree: what ranks of one job settle among themselves, on a gloo group of their own and never on the training group.

    Agreement.of(world)      None when there is nothing to agree on, or nobody to ask
    minimum(number)          the smallest number that any rank gives
    first(number)            what rank 0 gives
    same(facts)              an error that names the rank whose facts differ

A rank that fails says so at the next vote, and the others raise instead of waiting for it.
"""

import hashlib
import json
import sys
from datetime import timedelta
from typing import Any

from headrace.errors import RanksDisagree
from headrace.plan.world import World

FAILED = -1
TIMEOUT = 1800.0


class Agreement:
    """A gloo group over all ranks of a job."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        import torch.distributed as dist

        self._group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()

    @classmethod
    def of(cls, world: World, timeout: float = TIMEOUT) -> "Agreement | None":
        """The agreement of this world's ranks, if there are several and torch.distributed connects them."""
        if world.ranks == 1 or not connected(world.ranks):
            return None
        return cls(timeout)

    def minimum(self, number: int) -> int:
        import torch
        import torch.distributed as dist

        votes = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(votes, op=dist.ReduceOp.MIN, group=self._group)
        return int(votes[0])

    def first(self, number: int) -> int:
        import torch
        import torch.distributed as dist

        told = torch.tensor([number], dtype=torch.int64)
        dist.broadcast(told, src=0, group=self._group)
        return int(told[0])

    def same(self, facts: dict[str, Any]) -> None:
        """Every rank must give the same facts; the error says which rank differs, and in what."""
        import torch
        import torch.distributed as dist

        names = sorted(facts)
        mine = torch.tensor([_digest(facts[name]) for name in names], dtype=torch.int64)
        everyone = [torch.zeros_like(mine) for _ in range(self.ranks)]
        dist.all_gather(everyone, mine, group=self._group)
        for rank, theirs in enumerate(everyone):
            differing = [n for n, a, b in zip(names, everyone[0].tolist(), theirs.tolist(), strict=True) if a != b]
            if differing:
                raise RanksDisagree(
                    f"rank {rank} was given another {' and '.join(differing)} than rank 0 (here: "
                    f"{', '.join(f'{n}={facts[n]!r}' for n in differing)} on rank {self.rank}); give all ranks the same"
                )

    def close(self) -> None:
        import torch.distributed as dist

        if self._group is not None and dist.is_initialized():
            dist.destroy_process_group(self._group)
        self._group = None


def connected(ranks: int) -> bool:
    """Whether torch.distributed connects exactly this many ranks."""
    if "torch" not in sys.modules:
        return False
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_world_size() == ranks


def _digest(fact: Any) -> int:
    data = json.dumps(fact, sort_keys=True, default=repr).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)
