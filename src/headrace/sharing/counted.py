"""Ranks take blocks from a counter that they share (sharding="dynamic"): a fast one takes more than a slow one."""

from collections import Counter
from typing import Any

from headrace.engine.dynamic import Dynamic, check_program
from headrace.engine.epoch import Start
from headrace.engine.feeds.counter import Finished
from headrace.engine.feeds.positions import Position
from headrace.engine.places import EpochPlace, RunPlace
from headrace.engine.program import Program
from headrace.errors import BadOption, NoLength, SnapshotRefused
from headrace.pipe.graph import Pipe
from headrace.plan.seed import key
from headrace.plan.world import World
from headrace.ranks.agree import patience
from headrace.ranks.counter import RankStore, StoreCounter, find_store, leave
from headrace.ranks.env import job
from headrace.sharing.arithmetic import Sharing

_dynamic: Counter[int] = Counter()


class Counted(Sharing):
    """Ranks take blocks from a counter."""

    each_its_own = False  # beside the counter each tells the others what it has finished

    def __init__(
        self, program: Program, pipe: Pipe[Any], world: World, ends: str, timeout: float, store: RankStore | None = None
    ) -> None:
        super().__init__(program, pipe, world, ends, timeout)
        check_program(program)
        self._given = store
        self._store: RankStore | None = None
        self._hosts = False
        digest = key("dynamic", program.seed, *pipe.fingerprint())
        # Ranks that make several loaders of the same thing make them in the same order.
        self._key = f"headrace/dynamic/{job()}/{digest}/{_dynamic[digest]}"
        _dynamic[digest] += 1
        self._begun = 0
        self._counter: StoreCounter | None = None
        self._dynamic: Dynamic | None = None

    def check(self, at: EpochPlace | None) -> EpochPlace | None:
        if at is None or (isinstance(at, RunPlace) and at.place is None):
            return None
        place = at.place if isinstance(at, RunPlace) else None
        if isinstance(at, RunPlace) and isinstance(place, Position) and not at.gone and not at.ahead:
            # Taken with static sharding, which had come to one position everywhere.
            return RunPlace(Finished(((0, place.position),) if place.position else ()), 0, at.skipped)
        if not isinstance(place, Finished):
            raise SnapshotRefused(
                "this snapshot was not taken with sharding='dynamic': make the loader with sharding='static'"
            )
        return at

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        if self._store is None:
            self._store, self._hosts = find_store(self._world, self._given, self._timeout)
            self._timeout = patience(self._timeout)
        counter = StoreCounter(self._store, f"{self._key}/{self._begun}", self._world)
        self._begun += 1
        counter.meet(self._facts(epoch, at), self._timeout)
        if self._counter is not None:
            self._counter.forget()
        self._counter = counter
        done, skipped = Finished(), 0
        if isinstance(at, RunPlace):
            assert isinstance(at.place, Finished)
            done, skipped = at.place, at.skipped
        dynamic = self._dynamic = Dynamic(self.program, epoch, counter, done, skipped)
        return Start(None, dynamic.feed(), dynamic.watch, dynamic.place)

    def retraced(self, at: EpochPlace | None) -> RunPlace | None:
        raise BadOption("with sharding='dynamic' which rank takes which batch is left to chance, so none can be traced")

    def turn_away(self) -> None:
        self._dynamic = None

    def last(self, epoch: int) -> tuple[int, EpochPlace | None] | None:
        if self._dynamic is None:
            return None
        place = self._dynamic.place()
        return (epoch + 1, None) if place is None else (epoch, place)

    def length(self, epoch: int) -> int:
        raise NoLength(
            "with sharding='dynamic' each rank takes as many batches as it can, so nobody knows how many in advance"
        )

    def close(self, wait: bool = True) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            leave(store, self._key, self._world.ranks, wait and self._hosts, self._timeout)
