"""Iteration: the iterator of a DataLoader. It draws what torch draws, then lets the engine run the epoch.

iter(loader)   generators and samplers in torch's order; program, policy, workers; the first batches are begun
next(it)       the next batch of the engine; the batch that this makes room for is begun
end, del       the workers end (or wait for the next epoch, with persistent_workers)
"""

import sys
import warnings
import weakref
from copy import deepcopy
from typing import Any

import torch
from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from headrace.doors.torch import plan as plan
from headrace.doors.torch.auto import Stopwatch
from headrace.doors.torch.fetch import Skipped, WithState
from headrace.doors.torch.indices import Indices, again, begin, borrowed_globals, start_of
from headrace.doors.torch.processes import ShownProcess, processes
from headrace.doors.torch.seeds import base_seed
from headrace.doors.torch.standing import Standing
from headrace.doors.torch.stream import Raised, next_epoch, restored, stateful
from headrace.doors.torch.twins import Twins, too_long
from headrace.engine.epoch import Epoch
from headrace.engine.feeds.listed import Item, Listed
from headrace.engine.feeds.strands import InStrands
from headrace.engine.places import RunPlace
from headrace.engine.pool import Pool
from headrace.engine.wire.shipping import DATASET_CURE, Words
from headrace.errors import SnapshotRefused, WorkerStuck
from headrace.observe.meter import Meter
from headrace.plan.world import World

WORDS = Words(there=DATASET_CURE, back="return plain data, arrays or tensors from the dataset or collate_fn")

_profiling = torch._C._autograd._profiler_enabled


class Iteration(_BaseDataLoaderIter):
    """One epoch after the other over one set of workers."""

    def __init__(self, loader: Any, resume: dict[str, Any] | None = None) -> None:
        self._iterable = plan.is_iterable(loader)
        self._base_seed: int
        if resume is not None and resume["at"] is None and resume["num_workers"] == loader.num_workers == 0:
            # Before anything is drawn: the state may be that of a global generator.
            self._restore(loader, resume["start"].pop("kept", {}))
        start = start_of(loader, not self._iterable)
        super().__init__(loader)
        self._check(loader)
        at, kept = None, {}
        if resume is not None:
            start, at, kept = resume["start"], resume["at"], resume["start"].get("kept", {})
            again(loader, start)
            self._sampler_iter = iter(self._index_sampler)
            self._base_seed = self._seed_again(loader, resume)
        self._persistent = loader.persistent_workers and loader.num_workers > 0
        self._number = 0 if resume is None else resume["epoch"]
        self._warned = False
        self.stopwatch: Stopwatch | None = None
        self._twins: Twins | None = None
        if loader._standing is None and resume is None and plan.has_replicas(loader):
            self._twins = Twins()
        recorded = resume["num_workers"] if resume is not None and at is not None else None
        assert resume is not None or not kept
        if resume is not None and resume["num_workers"] != loader.num_workers:
            self._refuse_states(at)
            kept = {}  # the next epoch is one of other workers
        self._build(loader, recorded, kept.get("own") if at is None else at.get("own"))
        self._begin(loader, start, at, first=True, kept=kept.get("place"))

    def _check(self, loader: Any) -> None:
        """What torch finds out only here."""
        if loader.num_workers == 0:
            if self._timeout != 0:
                raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
            kind = "_SingleProcessDataLoaderIter"
        else:
            if loader.prefetch_factor <= 0:
                raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
            kind = "_MultiProcessingDataLoaderIter"
        # The name under which profilers know the loader.
        self._profile_name = f"enumerate(DataLoader)#{kind}.__next__"

    def _seed_again(self, loader: Any, resume: dict[str, Any]) -> int:
        recorded: int | None = resume["base_seed"]
        if resume["at"] is None and (recorded is None or not loader.persistent_workers):
            return self._base_seed if loader.generator is None else base_seed(loader.generator)
        assert recorded is not None
        return recorded

    def _restore(self, loader: Any, kept: dict[str, Any]) -> None:
        """Bring the dataset, which nobody else has, to where it stood at the end of the epoch before."""
        if "own" in kept and stateful(loader.dataset):
            loader.dataset.load_state_dict(kept["own"]["0"])
        if "place" in kept:
            place = RunPlace.read(kept["place"]).place
            if isinstance(place, InStrands) and (state := place.strands[0].state) is not None:
                restored(loader.dataset, state[2])

    def _refuse_states(self, at: Any) -> None:
        if at is not None and at.get("own"):
            raise SnapshotRefused(
                f"this snapshot holds the states of {len(at['own'])} copies of the dataset, one of each worker; load "
                f"it with that many workers"
            )

    def _build(self, loader: Any, recorded: int | None, own: Any = None) -> None:
        self._crew = plan.crew_of(loader, self._base_seed, recorded, own)
        self._own: dict[str, Any] = dict(own or {})
        self._meter = Meter()
        self._pool = Pool(plan.program(loader, self._crew), plan.policy(loader, self._crew))
        self._close = weakref.finalize(self, self._pool.close)

    # --- one epoch ----------------------------------------------------------------------------------------------------

    def _begin(self, loader: Any, start: dict[str, Any], at: Any, *, first: bool, kept: Any = None) -> None:
        drawn = at["drawn"] if at is not None else [int(first), 2 if first and loader.num_workers else 1]
        self._standing = loader._standing = Standing(plan.style(loader), self._crew.count, start, drawn)
        self._standing.base_seed, self._standing.epoch = self._base_seed, self._number
        self._indices: Indices | None = None
        self._done: set[int] | None = None
        passed = 0
        """Batches that are read and not delivered: the state could not be taken back to before them."""
        fresh = at is None or (self._iterable and at["place"] is None)
        self._due = max(1, self._crew.count) if fresh and plan.tells(loader, self._crew.count) else 0
        """Dataset opened, but not told yet: so many items come before the first batch."""
        self._held: Any = None
        if self._iterable:
            if at is not None and drawn[0] and loader.generator is not None:
                base_seed(loader.generator)  # an uninterrupted run has drawn it
            place = kept if at is None else at["place"]
            passed = at["batches"] if at is not None and place is None else 0
            here = None if place is None else RunPlace.read(place).fit(self._pool.program)
        else:
            self._indices = self._list(loader, start, at, first)
            here = None if at is None else RunPlace(Item(at["batches"]))
            if not loader.in_order and loader.num_workers:
                self._done = set() if at is None else set(at["done"])
                self._prefix = 0 if at is None else at["batches"]
        self._before: int = 0 if at is None else at["batches"]
        self._promised: int | None = loader._IterableDataset_len_called
        self._epoch: Epoch[Any] | None = None
        with WORDS:
            listed = None
            if self._indices is not None:
                pinned = not self._pool.policy.stealing
                listed = Listed(self._indices, self._number, self._before, pinned=pinned)
            self._epoch = Epoch(self._pool, self._meter, self._number, World(), at=here, first=listed)
        workers = self._epoch._workers
        assert workers is not None
        self._engine = workers
        self._deaths = len(self._engine.restarts)
        self._standing.live = weakref.ref(self)
        if loader.num_workers:
            self._epoch.start()
        elif self._own and not self._iterable:
            loader.dataset.load_state_dict(deepcopy(self._own["0"]))
        if not loader.num_workers or passed:
            self._open_datasets()
            self._pass(passed)

    def _pass(self, batches: int) -> None:
        """Read so many batches and deliver none of them."""
        assert self._epoch is not None
        if type(self._held) is Raised and not self._num_workers:
            raise self._held.take()
        while batches:
            batches -= type(next(self._epoch)) is not Skipped

    def _open_datasets(self) -> None:
        """Wait until every worker has told where its dataset stands before the first batch."""
        while self._due and self._epoch is not None and self._held is None:
            self._due -= 1
            data = next(self._epoch)
            if type(data) is Raised:
                self._held = data

    def _list(self, loader: Any, start: dict[str, Any], at: Any, first: bool) -> Indices:
        sampler, batched = loader._index_sampler, loader._auto_collation
        keep = 16 + 8 * max(1, loader.num_workers) * (loader.prefetch_factor or 1)
        if at is None:
            if first and loader.num_workers:
                self._sampler_iter = iter(sampler)  # torch iterates it twice, and throws the first away
            return Indices(sampler, self._sampler_iter, batched, keep)
        with borrowed_globals(start):
            self._sampler_iter = begin(loader, start, at["drawn"])
            indices = Indices(sampler, self._sampler_iter, batched, keep)
            indices.go_to(at["batches"], at["samples"], at["done"], at["iterator"])
        return indices

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """The next epoch, with the same workers."""
        self._leave()
        start = start_of(loader, not self._iterable)
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._number += 1
        if self._crew.played or not self._close.alive:
            self._close()
            self._build(loader, None)
        self._begin(loader, start, None, first=False)

    # --- batches ------------------------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        if _profiling():
            with torch.autograd.profiler.record_function(self._profile_name):
                data = self._next_data()
        else:
            data = self._next_data()
        self._num_yielded += 1
        promised = self._promised
        if promised is not None and self._iterable and self._num_yielded > promised:
            self._warn_of_length(promised)
        return data

    def _next_data(self) -> Any:
        if self._epoch is None:
            raise StopIteration
        while True:
            try:
                data, self._held = next(self._epoch) if self._held is None else self._held, None
            except StopIteration:
                if self._twins is not None and self._twins.alike():
                    self._warn_of_twins()
                self._end()
                if self._indices is not None and self._indices.failed is not None:
                    failed, self._indices.failed = self._indices.failed, None
                    raise failed from None
                raise
            except WorkerStuck as stuck:
                raise WorkerStuck(f"DataLoader timed out after {self._timeout} seconds\n{stuck}") from None
            except Exception as error:
                self._note_delivery()
                if not self._num_workers:
                    raise
                WORDS.retell(error)
                # The frames of the engine say nothing, and would keep this iterator, with its workers, alive.
                raise error.with_traceback(None)  # noqa: B904
            if self._done is not None:
                self._note_delivery()
            if len(self._engine.restarts) != self._deaths:
                self._warn_of_death()
            if self._num_workers and not self._engine.running():
                self._epoch.start()  # while this batch is being used nobody should be idle
            kind = type(data)
            if kind is Skipped:
                self._due = max(0, self._due - 1)
                continue
            if kind is WithState:
                data = self._noted(*data)
            if self.stopwatch is not None:
                self.stopwatch.batch(self._meter.waited)
            if kind is Raised:
                raise data.take()
            if self._twins is not None and self._seen_twins(data):
                self._warn_of_twins()
            if self._pin_memory:
                return _pin_memory(data, self._pin_memory_device)
            return data

    def _noted(self, batch: Any, state: Any) -> Any:
        number = self._delivered()
        assert number is not None
        self._own[str(number % self._num_workers)] = state
        return batch

    def _note_delivery(self) -> None:
        """Batches that arrive in any order are counted one by one."""
        if self._done is None or self._epoch is None:
            return
        number = self._delivered()
        if number is not None:
            self._done.add(number)
            while self._prefix in self._done:
                self._done.remove(self._prefix)
                self._prefix += 1

    def _seen_twins(self, data: Any) -> bool:
        assert self._twins is not None
        number = self._delivered()
        return number is not None and self._twins.see(number % self._crew.count, data)

    def _delivered(self) -> int | None:
        """Which item of the list, or whose turn among the streams, came last."""
        place = None if self._epoch is None else self._epoch.state().place
        if isinstance(place, Item):
            return place.number - 1
        return place.turn - 1 if isinstance(place, InStrands) else None

    # --- warnings -----------------------------------------------------------------------------------------------------

    def _warn_of_death(self) -> None:
        self._deaths = len(self._engine.restarts)
        if self._warned or self._pool.program.keyed:
            return
        self._warned = True
        warnings.warn(
            f"a worker of this DataLoader {self._engine.restarts[-1][1]} and was replaced; all batches arrive, in "
            f"order, but random values that are drawn in it from now on differ from a run without this. "
            f"DataLoader(..., reproducible=True) has the same values in any case",
            RuntimeWarning,
            stacklevel=4,
        )

    def _warn_of_twins(self) -> None:
        self._twins, workers = None, self._crew.count
        warnings.warn(
            f"the {workers} workers all read the same samples of {type(self._dataset).__qualname__}, so each sample "
            f"arrives {workers} times; write DataLoader(..., shard='auto') to divide them exactly, or divide them in "
            f"__iter__ by torch.utils.data.get_worker_info()",
            UserWarning,
            stacklevel=4,
        )

    def _warn_of_length(self, promised: int) -> None:
        text = too_long(self._dataset, promised, self._num_yielded, self._num_workers)
        warnings.warn(text, UserWarning, stacklevel=3)

    # --- ends and state -----------------------------------------------------------------------------------------------

    def _at(self) -> Any:
        """Where this epoch stands."""
        assert self._epoch is not None
        if self._iterable:
            self._open_datasets()
            return self._before + self._num_yielded, self._epoch.state()
        place = self._epoch.state()
        number = place.place.number if isinstance(place.place, Item) else 0
        done: list[int] = []
        if self._done is not None:
            number, done = self._prefix, sorted(self._done)
        assert self._indices is not None
        own = dict(self._own)
        if not self._num_workers and stateful(self._dataset):
            self._indices.peek()  # its state may be that of a generator that the sampler draws from, too
            own = self._here_own()
        samples, state = self._indices.at(number)
        return {"batches": number, "samples": samples, "done": done, "iterator": state, "own": own}

    def _here_own(self) -> dict[str, Any]:
        """The state of a map-style dataset without workers."""
        dataset: Any = self._dataset
        return {"0": deepcopy(dataset.state_dict())}

    def _kept(self) -> dict[str, Any]:
        """What datasets keep for the next epoch; those in workers that end with the epoch keep nothing."""
        if self._num_workers and not self._persistent:
            return {}
        if not self._iterable:
            own = self._own
            if not self._num_workers and stateful(self._dataset):
                own = self._here_own()
            return {"own": dict(own)} if own else {}
        place = None if self._crew.played or self._epoch is None else next_epoch(self._epoch.state())
        return {} if place is None else {"place": place.plain()}

    def _end(self) -> None:
        """Everything was delivered."""
        self._twins = None
        self._standing.ended, self._standing.kept = True, self._kept()
        self._epoch = None
        if self.stopwatch is not None:
            self.stopwatch.end(self._meter.waited)
            self.stopwatch = None
        if not self._persistent:
            self._close()

    def _leave(self) -> None:
        """Nobody asks for the rest of this epoch."""
        if self._epoch is not None:
            self._standing.at = self._at()
            self._standing.live = None
            self._epoch.close()
            self._epoch = None

    @property
    def _workers(self) -> list[ShownProcess]:
        """torch's name for them: people look at their process numbers, and wait for their ends."""
        return processes(self._engine)

    def _shutdown_workers(self) -> None:
        """torch's name for it: trainers call this to end a loader's workers now."""
        self._leave()
        self._close()

    def __del__(self, exiting: Any = sys.is_finalizing) -> None:
        if getattr(self, "_epoch", None) is not None and not exiting():
            self._leave()


_pin_memory: Any = _utils.pin_memory.pin_memory
