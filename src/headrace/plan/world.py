"""World: where this process stands among all processes of one job.

A World is a value: it is passed in, never looked up. What depends on the job's shape depends on this object only.

    ranks      all processes of the job; `rank` is this one
    local      the ranks on this machine
    node       this machine, among all `nodes` machines
    replicas   size of a model-parallel group: `replicas` consecutive ranks work on one copy of the model, so they
               receive the same samples; data is shared among `share_ranks` groups, of which this is `share_rank`
    share      (share_rank, share_ranks) where groups are not made of consecutive ranks (a device mesh)
    store      where the ranks share a counter, for sharding="dynamic"; None: that of the process group, or of the job.
               It is no part of the value: two worlds that differ in it alone are equal
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Protocol

from headrace.errors import BadOption


class RankStore(Protocol):
    """What is used of a store of torch.distributed."""

    def add(self, key: str, amount: int, /) -> int: ...
    def compare_set(self, key: str, expected: str, value: str, /) -> bytes: ...
    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def check(self, keys: list[str], /) -> bool: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...
    def delete_key(self, key: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class World:
    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    node: int = 0
    nodes: int = 1
    replicas: int = 1
    source: str = "none"
    share: tuple[int, int] | None = None
    store: RankStore | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in (one.name for one in fields(self) if one.name not in ("source", "share", "store")):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise BadOption(f"World({name}={value!r}): give an int, not {type(value).__name__}")
        for one, many in (("rank", "ranks"), ("local_rank", "local_ranks"), ("node", "nodes")):
            index, count = getattr(self, one), getattr(self, many)
            if count < 1:
                raise BadOption(f"World({many}={count}): give a count of at least 1")
            if not 0 <= index < count:
                raise BadOption(f"World({one}={index}, {many}={count}): {one} must be one of 0..{count - 1}")
            if count > self.ranks:
                raise BadOption(f"World({many}={count}, ranks={self.ranks}): give at most as many {many} as ranks")
        if self.replicas < 1 or self.ranks % self.replicas:
            raise BadOption(
                f"World(ranks={self.ranks}, replicas={self.replicas}): replicas must divide ranks; "
                "choose a group size that fills the job with whole groups"
            )
        if self.share is not None:
            index, count = self.share
            if self.replicas * count != self.ranks or not 0 <= index < count:
                raise BadOption(
                    f"World(share={self.share}, replicas={self.replicas}, ranks={self.ranks}): give (index, count) "
                    "of this rank's group, with count x replicas = ranks"
                )

    @property
    def share_rank(self) -> int:
        """Which share of the data this process receives."""
        return self.rank // self.replicas if self.share is None else self.share[0]

    @property
    def share_ranks(self) -> int:
        """Among how many receivers the data is shared."""
        return self.ranks // self.replicas

    @classmethod
    def detect(cls) -> "World":
        """The world that the launcher of this process describes.

        The one import from a higher layer in this folder: the name belongs here for users, the environment does not.
        """
        from headrace.ranks.detect import detect

        return detect()

    def first(self, per: str = "host", timeout: float = 1800.0) -> AbstractContextManager[bool]:
        """`with world.first():` one process of each host (or of the job) goes ahead, the others wait until it is done.

        Yields whether this process was the one. When it dies, another takes over.
        """
        from headrace.ranks.first import first

        return first(self, per, timeout=timeout)
