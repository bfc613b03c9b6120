"""Iteration: the iterator of a DataLoader. It draws what torch draws, then lets a `Loader` run the epoch.

iter(loader)   asks generators and samplers in torch's order, makes a Loader and begins the first batches
next(it)       takes the next batch of the Loader and begins the batch that this makes room for
end, del       closes the Loader (with persistent_workers it waits for the next epoch)

A batch counts as delivered at the very last moment before it is handed over (see `engine.epoch`): whatever exception
comes out of `next()`, the state is that after the last batch that the caller has.
"""

import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter

from headrace.device import LastDelivered
from headrace.doors.torch import plan as plan
from headrace.doors.torch.auto import EpochTimer
from headrace.doors.torch.duplicates import DuplicateCheck, replicas, too_long
from headrace.doors.torch.indices import IndexLists, Indices, begin, set_back, start_of
from headrace.doors.torch.processes import ProcessView
from headrace.doors.torch.progress import LoaderProgress
from headrace.doors.torch.seeds import base_seed
from headrace.doors.torch.state import LoaderPlace, LoaderState, MapPlace, StreamPlace
from headrace.doors.torch.stream import next_epoch, stateful
from headrace.doors.torch.words import WORDS
from headrace.engine.epoch import Epoch
from headrace.engine.feeds.listed import Item
from headrace.engine.places import DeliveredAhead, RunPlace
from headrace.engine.wire.codec import pack_state, unpack_state
from headrace.errors import SnapshotRefused, WorkerStuck
from headrace.tracebacks import shorten, users_line

if TYPE_CHECKING:
    from headrace.doors.torch.loader import DataLoader

_profiling = torch._C._autograd._profiler_enabled


class Iteration(_BaseDataLoaderIter):
    """One epoch after the other over one set of workers."""

    def __init__(self, loader: "DataLoader[Any]", resume: LoaderState | None = None) -> None:
        self._iterable = plan.is_iterable(loader)
        first = loader._progress is None and resume is None
        self._duplicates = DuplicateCheck() if first and plan.has_replicas(loader) else None
        resume = resume or LoaderState(loader.num_workers, None, 0, {}, None)
        at, kept = resume.at, resume.start.get("kept", {})
        start = start_of(loader, not self._iterable) if at is None else resume.start
        super().__init__(loader)
        self._base_seed: int
        self._check(loader)
        drawn = (1, 1) if at is None else at.drawn
        if at is not None:
            self._base_seed = resume.base_seed  # type: ignore[assignment]  # (`state.check` has seen it)
        elif resume.base_seed is not None and loader._seeds_once:
            # Workers that stay keep the seed of their first epoch: all is as before another one was drawn.
            self._base_seed, drawn = resume.base_seed, (0, 1)
            set_back(loader, start)
            self._sampler_iter = iter(self._index_sampler)
        elif loader.num_workers:
            drawn = (1, 2)
            self._sampler_iter = iter(self._index_sampler)  # torch iterates it twice, and throws the first away
        self._persistent = loader.persistent_workers and loader.num_workers > 0
        self._warned = False
        states = kept.get("own") if at is None else getattr(at, "own", None)
        if resume.num_workers != loader.num_workers:
            if at is not None and states:
                raise SnapshotRefused(
                    f"this snapshot holds the states of {len(states)} copies of the dataset, one of each worker; load "
                    f"it with that many workers"
                )
            states, kept = None, {}  # the next epoch is one of other workers
        self._build(loader, resume.epoch, states)
        tuning = loader._tuner is not None and not loader._tuner.settled
        self.timer = EpochTimer(loader, self._engine) if tuning else None
        self._begin(loader, start, drawn, at, RunPlace.read(kept["place"]) if "place" in kept else None)

    def _check(self, loader: "DataLoader[Any]") -> None:
        """Check what torch checks only when an iterator is made."""
        if loader.num_workers == 0 and self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        if loader.num_workers and (loader.prefetch_factor or 0) <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        kind = "MultiProcessing" if loader.num_workers else "SingleProcess"
        # The name under which profilers know the loader.
        self._profile_name = f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"

    def _build(self, loader: "DataLoader[Any]", epoch: int, dataset_states: Mapping[str, Any] | None = None) -> None:
        self._context = plan.context_of(loader, self._base_seed, dataset_states)
        self._keeps_state = plan.keeps_state(loader)
        self._dataset_states = {number: pack_state(state) for number, state in (dataset_states or {}).items()}
        self._lists = IndexLists(loader._index_sampler)
        self._engine = plan.build(loader, self._context, self._lists, epoch)
        loader._took_over(self._engine)
        self._shut = False
        weakref.finalize(self, self._engine.close)

    # --- one epoch ----------------------------------------------------------------------------------------------------

    def _begin(
        self,
        loader: "DataLoader[Any]",
        start: dict[str, Any],
        drawn: tuple[int, int],
        at: LoaderPlace | None = None,
        place: RunPlace | None = None,
    ) -> None:
        """Begin an epoch, or go on `at` a place in it; `place` holds what datasets keep from the epoch before."""
        self._epoch: Epoch[Any] | None = None
        self.handed_over: LastDelivered | None = None  # (see `device.TakenAhead`)
        place = at.place if isinstance(at, StreamPlace) else place
        self._lists.now = self._indices(loader, start, at)
        if isinstance(at, MapPlace):
            done = tuple(number - at.batches for number in at.done)
            place = RunPlace(Item(at.batches), ahead=DeliveredAhead(0, done) if done else None)
        if place is not None:
            self._engine.go_to(self._engine.epoch, place)
        whole = not self._iterable and not loader.num_workers and stateful(loader.dataset)
        progress = LoaderProgress(
            plan.style(loader), self._context.count, start, drawn, self._engine, self._engine.epoch,
            delivered=0 if at is None else at.batches, indices=self._lists.now,
            dataset=loader.dataset if whole else None,
            dataset_states=self._dataset_states, next_dataset_states=self._dataset_states,
        )  # fmt: skip
        self._promised: int | None = loader._IterableDataset_len_called if self._iterable else None
        self._progress = progress
        with WORDS:
            epoch = self._engine.__iter__()
        self._save: Callable[[bool], None] | None = None
        if loader._saver is not None:
            # (The engine's loader does not save: what a state holds is known only when the batch has been looked at.)
            self._save = loader._saver.counter(lambda: (progress.saved(), 0))
        watched = (self._duplicates, self._promised, self.timer, self._save)
        self._needs_finish = self._keeps_state or self._pin_memory or any(one is not None for one in watched)
        """There is something to do with each batch (`_finish`)."""
        workers = epoch.workers
        assert workers is not None
        self._engine_workers = workers
        self._deaths = len(workers.restarts)
        self._epoch, loader._progress = epoch, progress
        if loader.num_workers:
            epoch.start(alone=self._persistent)  # (so that the sampler is asked now, as torch asks it)
        elif self._dataset_states and not self._iterable:
            progress.dataset.load_state_dict(unpack_state(self._dataset_states["0"]))
        if not loader.num_workers:
            epoch.open()
        if isinstance(at, StreamPlace) and at.place is None:
            for _ in range(at.batches):  # they are read once more, and not delivered
                next(epoch)

    def _indices(self, loader: "DataLoader[Any]", start: dict[str, Any], at: LoaderPlace | None) -> Indices | None:
        """The indices of an epoch over a map-style dataset, from this place on."""
        keep = 16 + 8 * max(1, loader.num_workers) * (loader.prefetch_factor or 1)
        if at is not None:
            return begin(loader, start, at, keep)
        if self._iterable:
            return None
        return Indices(self._index_sampler, self._sampler_iter, self._auto_collation, keep)

    def _reset(self, loader: "DataLoader[Any]", first_iter: bool = False) -> None:
        """The next epoch, with the same workers."""
        self._leave()
        start = start_of(loader, not self._iterable)
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        seed = self._base_seed if loader._seeds_once else base_seed(loader.generator)
        seeded = loader.reproducible or loader.shuffle_window is not None  # (else workers keep their generators)
        anew = seeded and seed != self._base_seed
        if anew:
            self._base_seed = seed
        self._dataset_states = dict(self._progress.dataset_states)  # (workers that stay keep their datasets)
        if self._shut or anew:
            self._engine.close()
            self._build(loader, 0 if anew else self._engine.epoch)
        self._begin(loader, start, (int(not loader._seeds_once), 1))

    @property
    def handed(self) -> int:
        return int(self._num_yielded)

    # --- batches ------------------------------------------------------------------------------------------------------

    def __next__(self) -> Any:
        try:
            if _profiling():
                with torch.autograd.profiler.record_function(self._profile_name):
                    data = self._take()
            else:
                data = self._take()
        except StopIteration:
            raise
        except BaseException as error:
            # The frames of the engine say nothing, and would keep this iterator, with its workers, alive.
            shorten(error)
            raise
        progress, epoch = self._progress, self._epoch
        assert epoch is not None
        # (An interrupt is heard at calls only: these happen together or not at all.)
        progress.dataset_states = progress.next_dataset_states
        progress.delivered += 1
        self._num_yielded += 1
        epoch.received = epoch.handed
        return data

    def _take(self) -> Any:
        """The next batch, which is not delivered yet."""
        epoch = self._epoch
        if epoch is None:
            raise StopIteration
        try:
            data = epoch.take()
        except StopIteration:
            self._end()
            raise
        except WorkerStuck as stuck:
            WORDS.retell(stuck)
            raise WorkerStuck(f"DataLoader timed out after {self._timeout} seconds\n{stuck}") from None
        except Exception as error:
            WORDS.retell(error)
            raise
        if len(self._engine_workers.restarts) != self._deaths:
            self._warn_of_death()
        if self._num_workers and epoch.idle:
            epoch.start()  # no worker should be idle while this batch is being used
        return self._finish(epoch, data) if self._needs_finish else data

    def _finish(self, epoch: Epoch[Any], data: Any) -> Any:
        """The batch as the caller gets it, after what the state, a warning or the timer has to know of it is noted."""
        progress, duplicates, promised = self._progress, self._duplicates, self._promised
        if (noted := epoch.noted) is not None:
            worker, state = noted
            progress.next_dataset_states = {**progress.dataset_states, str(worker): unpack_state(state)}
        if duplicates is not None:
            alike = duplicates.see(self._num_yielded % self._context.count, data)
            if alike is not None:
                self._duplicates = None
                if alike:
                    self._warn_of_duplicates()
        if promised is not None and self._num_yielded >= promised:
            words = too_long(self._dataset, promised, self._num_yielded + 1, self._num_workers)
            warnings.warn(words, UserWarning, stacklevel=users_line())
        if self.timer is not None and not self.timer.started:
            self.timer.start()
        if self._save is not None:
            progress.handed_over = self.handed_over
            self._save(False)
        return _pin_memory(data, self._pin_memory_device) if self._pin_memory else data

    # --- warnings -----------------------------------------------------------------------------------------------------

    def _warn_of_death(self) -> None:
        self._deaths = len(self._engine_workers.restarts)
        if self._warned or self._engine.program.keyed:
            return
        self._warned = True
        how = self._engine_workers.restarts[-1][1]
        lost = f", and what its copy of {type(self._dataset).__qualname__} had in its state is lost"
        warnings.warn(
            f"a worker of this DataLoader {how} and was replaced; all batches arrive, in order, but random values that "
            f"are drawn in it from now on differ from a run without this{lost if self._keeps_state else ''}. "
            f"DataLoader(..., reproducible=True) has the same values in any case",
            RuntimeWarning,
            stacklevel=users_line(),
        )

    def _warn_of_duplicates(self) -> None:
        warnings.warn(replicas(self._dataset, self._context.count), UserWarning, stacklevel=users_line())

    # --- ends and state -----------------------------------------------------------------------------------------------

    def _kept(self) -> dict[str, Any]:
        """The states that datasets carry into the next epoch; those in workers that end with the epoch have none."""
        if self._num_workers and not self._persistent:
            return {}
        if not self._iterable:
            own = self._progress.states()
            return {"own": own} if own else {}
        streams = None if self._epoch is None else self._epoch.streams()
        place = None if streams is None else next_epoch(streams)
        return {} if place is None else {"place": place.plain()}

    def _end(self) -> None:
        """Everything was delivered."""
        duplicates, self._duplicates = self._duplicates, None
        if duplicates is not None and duplicates.alike():
            self._warn_of_duplicates()
        self._progress.kept = self._kept()
        self._epoch = None
        if self.timer is not None:
            self.timer.end()
            self.timer = None
        if not self._persistent:
            self._engine.close()

    def wait(self) -> None:
        """Wait until the first batch is there; an error at the start of a worker is raised."""
        if self._epoch is not None:
            self._epoch.wait()

    def _leave(self) -> None:
        """Leave the rest of this epoch."""
        if self._epoch is not None:
            self._progress.leave()
            epoch, self._epoch = self._epoch, None
            epoch.close()
            if self._lists.now is not None:
                self._lists.now.close()

    @property
    def _workers(self) -> list[ProcessView]:
        """torch's name for them: people look at their process numbers, and wait for their ends."""
        workers = self._engine_workers
        return [ProcessView(workers, number, pid) for number, pid in enumerate(workers.pids())]

    def _shutdown_workers(self) -> None:
        """torch's name for it: trainers call this to end a loader's workers now."""
        self._leave()
        self._shut = True
        self._engine.close()

    def __del__(self, exiting: Any = sys.is_finalizing) -> None:
        if getattr(self, "_epoch", None) is not None and not exiting():
            self._leave()


_pin_memory: Any = _utils.pin_memory.pin_memory
