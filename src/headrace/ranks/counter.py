"""Counter: what ranks share under dynamic sharding, kept in a store of torch.distributed.

    find_store   the store that the World has, or of the default process group, or one at MASTER_ADDR:MASTER_PORT
    meet         wait until all ranks begin the epoch, and check that all were given the same
    take         0, 1, 2, ...: each number goes to one rank only
    finish       write down which blocks this rank has delivered; `everyone` reads what all ranks have

What a rank has finished is stored in leaves of LEAF blocks, so that a write or a read costs the same all epoch long.
"""

import json
from datetime import timedelta
from importlib import import_module
from typing import Any

from headrace.errors import BadOption, RanksDisagree, WorkerStuck, missing
from headrace.plan.world import RankStore, World
from headrace.ranks import env
from headrace.ranks.agree import TIMEOUT, initialized

LEAF = 64
_made: dict[tuple[str, str], RankStore] = {}
"""Stores that were made here, by address: they live as long as the process."""


class StoreCounter:
    """The counter of one epoch."""

    def __init__(self, store: RankStore, key: str, world: World) -> None:
        self._store = store
        self._key = key
        self._rank = world.rank
        self._ranks = world.ranks
        self._count = 0
        """Blocks that this rank has written down."""
        self._leaves: list[list[list[int]]] = [[] for _ in range(world.ranks)]
        """By rank: the full leaves that were read and never change again."""

    def meet(self, facts: dict[str, Any], timeout: float = TIMEOUT) -> None:
        """Wait until all ranks begin this epoch; all must give the same facts."""
        store, key = self._store, self._key
        for name, fact in facts.items():
            here = json.dumps(fact, sort_keys=True, default=repr)
            there = store.compare_set(f"{key}/same/{name}", "", here).decode()
            if there != here:
                raise RanksDisagree(
                    f"rank {self._rank} was given another {name} than the rank that came first ({here[:80]} here, "
                    f"{there[:80]} there); give all ranks the same"
                )
        barrier(store, f"{key}/met", self._ranks, timeout, "have begun this epoch")

    def take(self) -> int:
        """The next number that no rank has taken."""
        return int(self._store.add(f"{self._key}/next", 1)) - 1

    def finish(self, blocks: list[int], count: int, part: tuple[int, int] | None, surely: int) -> None:
        """Write down that the first `count` of these blocks are finished, and how much of one more.

        The first `surely` of them stay finished: what follows may be taken back.
        """
        old, self._count = self._count, count
        for leaf in range(min(old, count) // LEAF, max(old, count) // LEAF + 1):
            written = [blocks[leaf * LEAF : min(count, (leaf + 1) * LEAF)], part, surely]
            self._store.set(self._leaf(self._rank, leaf), json.dumps(written))

    def everyone(self) -> list[tuple[list[int], tuple[int, int] | None]]:
        """By rank: the blocks that it has finished, and how much of one more."""
        return [self._of(rank) for rank in range(self._ranks)]

    def _of(self, rank: int) -> tuple[list[int], tuple[int, int] | None]:
        full = self._leaves[rank]
        found: list[list[int]] = []
        part, surely = None, 0
        while self._store.check([self._leaf(rank, len(full) + len(found))]):
            blocks, part, surely = json.loads(self._store.get(self._leaf(rank, len(full) + len(found))))
            found.append(blocks)
            if len(blocks) < LEAF:
                break
        finished = [block for leaf in (*full, *found) for block in leaf]
        full += found[: max(0, surely // LEAF - len(full))]
        return finished, None if part is None else tuple(part)

    def forget(self) -> None:
        """Delete what this rank has written down: no rank reads it again."""
        for leaf in range(self._count // LEAF + 1):
            self._store.delete_key(self._leaf(self._rank, leaf))

    def _leaf(self, rank: int, leaf: int) -> str:
        return f"{self._key}/done/{rank}/{leaf}"


def barrier(store: RankStore, key: str, ranks: int, timeout: float, what: str, wait: bool = True) -> None:
    """Say that this rank has come here and, with `wait`, return when all ranks have."""
    if store.add(f"{key}/count", 1) == ranks:
        store.set(f"{key}/all", "")
    elif wait:
        try:
            store.wait([f"{key}/all"], timedelta(seconds=timeout))
        except RuntimeError as error:  # what all of torch's store errors are
            came = store.add(f"{key}/count", 0)
            raise WorkerStuck(f"after {timeout:g} s only {came} of {ranks} ranks {what}: {error}") from None


def leave(store: RankStore, key: str, ranks: int, wait: bool, timeout: float = TIMEOUT) -> None:
    """This rank needs the store no more; the process that the store lives in waits until no rank does."""
    barrier(store, f"{key}/left", ranks, timeout, "have closed their loader", wait)


def find_store(world: World, timeout: float = TIMEOUT) -> tuple[RankStore, bool]:
    """A store that all ranks share, and whether it lives in this process and was made here."""
    store = default_store() if world.store is None else world.store
    if store is not None:
        return store, False
    if world.ranks == 1:
        return LocalStore(), False
    environ = env.current()
    if not (environ.get(env.MASTER_ADDR) and environ.get(env.MASTER_PORT)):
        raise BadOption(
            "sharding='dynamic' needs a place where ranks share a counter: initialise torch.distributed first, start "
            f"with a launcher that sets {env.MASTER_ADDR} and {env.MASTER_PORT}, or give World(store=...)"
        )
    hosts = world.rank == 0 and environ.get(env.AGENT_STORE) != "True"
    address = environ[env.MASTER_ADDR], environ[env.MASTER_PORT]
    if address not in _made:
        _made[address] = master_store(timeout, hosts)
    return _made[address], hosts


def default_store() -> RankStore | None:
    """The store of the default process group, if there is one."""
    if (dist := initialized()) is None:
        return None
    store: RankStore = dist.distributed_c10d._get_default_store()
    return store


def master_store(timeout: float, hosts: bool = False) -> RankStore:
    """A store at the address that the launcher has set; `hosts`: it lives in this process."""
    try:
        dist: Any = import_module("torch.distributed")
    except ModuleNotFoundError:
        raise missing("torch", "torch") from None
    environ = env.current()
    # multi_tenant: init_process_group may want the same port later.
    store: RankStore = dist.TCPStore(
        environ[env.MASTER_ADDR], int(environ[env.MASTER_PORT]), None, hosts, timedelta(seconds=timeout),
        multi_tenant=True, wait_for_workers=False,
    )  # fmt: skip
    return store


class LocalStore:
    """A store for one rank, which needs no torch."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def add(self, key: str, amount: int) -> int:
        self._values[key] = str(int(self._values.get(key, b"0")) + amount).encode()
        return int(self._values[key])

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        if self._values.get(key, b"") == expected.encode():
            self._values[key] = value.encode()
        return self._values[key]

    def set(self, key: str, value: str) -> None:
        self._values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        assert self.check(keys)

    def delete_key(self, key: str) -> None:
        self._values.pop(key, None)
