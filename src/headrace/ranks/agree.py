"""Agree: what ranks of one job settle among themselves, on a gloo group of their own and never on the training group.

    Agreement.of(world)      None for a single rank, or where torch.distributed does not connect the ranks
    rows(numbers)            the numbers that every rank gives, by rank
    broadcast(number)        what rank 0 gives, of up to 64 bits
    same(facts)              an error that names the rank whose facts differ

A rank that fails says so in its next round, and the others raise instead of waiting for it.
"""

import hashlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from headrace.errors import RanksDisagree
from headrace.plan.world import World

TIMEOUT = 1800.0
"""What torch waits by default."""
HALF = 2**32


class Agreement:
    """A gloo group over all ranks of a job."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        from datetime import timedelta

        import torch.distributed as dist

        self._group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=group_timeout(timeout)))
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()
        self._owner = os.getpid()

    @classmethod
    def of(cls, world: World, timeout: float = TIMEOUT) -> "Agreement | None":
        """The agreement of this world's ranks, if there are several and torch.distributed connects them."""
        dist = initialized()
        return cls(timeout) if world.ranks > 1 and dist is not None and dist.get_world_size() == world.ranks else None

    def rows(self, row: list[int]) -> list[list[int]]:
        """The numbers that every rank gives, by rank; all give equally many."""
        import torch
        import torch.distributed as dist

        mine = torch.tensor(row, dtype=torch.int64)
        everyone = [torch.zeros_like(mine) for _ in range(self.ranks)]
        dist.all_gather(everyone, mine, group=self._group)
        return [tensor.tolist() for tensor in everyone]

    def broadcast(self, number: int) -> int:
        high, low = self.rows([*divmod(number, HALF)])[0]
        return high * HALF + low

    def same(self, facts: dict[str, Any]) -> None:
        """Every rank must give the same facts; the error says which rank differs, and in what."""
        names = sorted(facts)
        everyone = self.rows([_digest(facts[name]) for name in names])
        differing = [name for i, name in enumerate(names) if any(row[i] != everyone[0][i] for row in everyone)]
        if differing:
            others = ", ".join(str(rank) for rank, row in enumerate(everyone) if row != everyone[0])
            hint = " (a snapshot is what one rank saw: load that of the slowest on all)" * ("snapshot" in differing)
            here = ", ".join(f"{name}={facts[name]!r}" for name in differing)
            raise RanksDisagree(
                f"rank {others} was given another {' and '.join(differing)} than rank 0 (here: {here} on rank "
                f"{self.rank}); give all ranks the same{hint}"
            )

    def close(self) -> None:
        if self._group is None or self._owner != os.getpid():
            return  # in a forked copy the group's threads do not exist: ending it would wait for them forever
        group, self._group = self._group, None
        if (dist := initialized()) is not None:
            try:
                dist.destroy_process_group(group)
            except ValueError:
                pass  # the job was ended meanwhile, with all its groups, and another one begun


def initialized(modules: Mapping[str, Any] = sys.modules) -> Any:
    """torch.distributed if this process has a default process group, else None.

    Nothing is imported for this: a group may be closed while the interpreter ends, when no import works any more.
    """
    dist = modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def group_timeout(timeout: float) -> float:
    """Seconds to wait for another rank: what was asked for, or, where nothing was, what the job's process group waits.

    So a rank that is stopped is noticed after what the user gave to `init_process_group(timeout=...)`.
    """
    dist = initialized()
    if timeout != TIMEOUT or dist is None:
        return timeout
    group = dist.group.WORLD
    try:
        waits = [group._get_backend(device).options._timeout.total_seconds() for device in group._device_types]
    except (AttributeError, RuntimeError):  # backends of others need not tell
        return timeout
    return float(min(waits, default=timeout))


def _digest(fact: object) -> int:
    import json

    data = json.dumps(fact, sort_keys=True, default=repr).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)
