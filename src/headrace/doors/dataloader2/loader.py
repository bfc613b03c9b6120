"""DataLoader2: a graph of pipes, and a reading service that says where it runs.

    rs = MultiProcessingReadingService(num_workers=4)
    dl = DataLoader2(datapipe, reading_service=rs)
    for epoch in range(10):
        dl.seed(epoch)
        for batch in dl: ...
    dl.shutdown()

The graph is copied when the loader is made; what the user does to it later changes nothing. Each epoch has a new order,
drawn from torch's generator where torch is loaded; `seed(n)` makes the next epochs a function of n. The stream is the
same for any number of workers. An error of the user's code leaves the loader as usable as before. `state_dict()`
between any two batches is plain data, and resumes there; with `autosave=` a file holds it, every so many batches, and a
loader that finds the file goes on from it.
"""

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

from headrace.doors.dataloader2.build import WORDS, IterableLoader, build, copied
from headrace.doors.dataloader2.seeds import SeedGenerator, check_seed, epoch_number
from headrace.doors.dataloader2.services import (
    CheckpointableReadingServiceInterface,
    ReadSettings,
    check_service,
    keeps_state,
)
from headrace.doors.dataloader2.states import VERSION, check_state
from headrace.doors.dataloader2.workers import GraphChanged
from headrace.doors.datapipes.nodes import is_pipe
from headrace.doors.torch.datapipes import drawn_seed
from headrace.engine.autosave import OF_EACH, Given, check_alone
from headrace.engine.epoch import Epoch
from headrace.errors import BadOption, BadPipe
from headrace.loader import Loader, Stats
from headrace.plan.seed import key
from headrace.plan.world import World
from headrace.tracebacks import short_errors, shorten, users_line

T = TypeVar("T", covariant=True)
IN_WORKER = re.compile(r"in worker (\d+)")


class PauseIteration(StopIteration):
    """The loader is paused."""


class DataLoader2(Generic[T]):
    """Iterates a graph of pipes, epoch by epoch."""

    @short_errors
    def __init__(
        self,
        datapipe: object,
        datapipe_adapter_fn: Iterable[Callable[[Any], Any]] | Callable[[Any], Any] | None = None,
        reading_service: object = None,
        *,
        autosave: Given | None = None,
    ) -> None:
        if autosave is not None:
            check_alone(World.detect(), OF_EACH)
        check_service(datapipe_adapter_fn, reading_service)
        self.datapipe = None if datapipe is None else copied(datapipe)
        adapters = datapipe_adapter_fn or []
        for adapter in adapters if isinstance(adapters, Iterable) else [adapters]:
            self.datapipe = None if datapipe is None else adapter(self.datapipe)
        self.reading_service: Any = copy.copy(reading_service)
        self._next_epoch: int | None = None
        """The number of the next epoch, if it is not the one that the loader counts to."""
        self._seeded = False
        self._running: Any = None
        """The graph that runs: what the reading service made of `datapipe`."""
        self._loader: Loader[Any] | IterableLoader | None = None
        self._settings = ReadSettings(autosave=autosave)
        self._begun = False
        """An epoch has begun."""
        self._resumed = False
        """The epoch at hand began in the middle."""
        self._samples: Any = None
        """The iterator of the epoch at hand."""
        self._fresh = False
        """An iterator was made and nothing was read from it yet."""
        self._iterator_id = 0
        self._paused = self._closed = False
        self._loaded_state: dict[str, Any] | None = None
        """The state that the next epoch goes on from."""

    # --- iterating ----------------------------------------------------------------------------------------------------

    @short_errors
    def __iter__(self) -> "DataLoader2Iterator[T]":
        if self._closed:
            raise RuntimeError("Cannot iterate over the DataLoader as it has already been shut down")
        if not self._fresh:
            self._start_epoch()
        self._iterator_id += 1
        return DataLoader2Iterator(self, self._iterator_id)

    def _start_epoch(self) -> None:
        """Start an epoch."""
        self._end_epoch()
        self._paused = False
        loader = self._get_loader()
        loaded = self._loaded_state
        resumed = loaded["running"] if loaded is not None else not self._begun and loader.resumed is not None
        number = loader.epoch if resumed else self._choose_epoch(loader)
        change = self._notify("initialize_iteration", SeedGenerator(key(number, "services")))
        if change is not None and (changed := change(self._running)) is not self._running:
            self._running = changed
            loader.close()
            loader = self._loader = self._build_loader()
        if not resumed:
            loader.set_epoch(number)
        with WORDS:
            samples = iter(loader)
        # (No call between these: an interrupt leaves the loader before the epoch or in it.)
        self._samples, self._loaded_state = samples, None
        self._fresh = self._begun = True
        self._resumed = resumed

    def _choose_epoch(self, loader: Loader[Any] | IterableLoader) -> int:
        """The number of the next epoch: what seed() said, what torch's generator gives, or the one after the last."""
        number, self._next_epoch = self._next_epoch, None
        if number is None and not self._seeded and (drawn := drawn_seed()) is not None:
            number = epoch_number(drawn)
        number = loader.epoch if number is None else number
        if self._settings.agree is None:
            return number
        # Ranks that exchange counts settle this there too: a rank that is still inside an epoch gets an error.
        if isinstance(loader, Loader) and loader.world.ranks > 1:
            return loader.agree(number)
        return self._settings.agree(number)

    def _get_loader(self) -> Loader[Any] | IterableLoader:
        """The loader of the graph that the services prepared; made when it is first asked for."""
        if self.datapipe is None:
            raise RuntimeError("Please provide datapipe or use load_state_dict to load datapipe from state")
        if self._loader is None:
            service = self.reading_service
            saved = None if self._loaded_state is None else self._loaded_state["service"]
            if service is None:
                self._running = self.datapipe
            elif saved is not None:
                if not isinstance(service, CheckpointableReadingServiceInterface):
                    raise TypeError("Cannot restore from non-checkpointable reading service")
                self._running = service.restore(self.datapipe, bytes.fromhex(saved))
            else:
                self._running = service.initialize(self.datapipe)
            self._loader = self._build_loader()
        return self._loader

    def _build_loader(self) -> Loader[Any] | IterableLoader:
        service, loaded, settings = self.reading_service, self._loaded_state, self._settings
        runs_graphs = service is None or hasattr(service, "settings")
        if hasattr(service, "settings"):
            self._settings = service.settings(ReadSettings(autosave=settings.autosave))
        loader: Loader[Any] | IterableLoader
        if not runs_graphs or not is_pipe(self._running):
            loader = IterableLoader(self._running)
        else:
            if loaded is not None:
                self._settings = replace(self._settings, strands=loaded["strands"], sharding=loaded["sharding"])
            loader = build(self._running, self._settings)
        if loaded is not None and loaded["loader"] is not None:
            loader.load_state_dict(loaded["loader"])
        return loader

    def _next(self, first: bool) -> T:
        """The next sample; `first` if none of this epoch was delivered."""
        try:
            return self._take()
        except GraphChanged:
            if not first:
                raise
            # A function of the user's changes the graph in each worker, so each worker runs a graph of its own.
            loader = self._get_loader()
            number = loader.epoch - 1
            loader.close()
            self._settings = replace(self._settings, sharding="per-worker")
            self._loader = build(self._running, self._settings)
            self._loader.set_epoch(number)
            self._samples = iter(self._loader)
            return self._take()
        except StopIteration:
            self._end_epoch()
            raise
        except Exception as error:
            if (worker := IN_WORKER.search("\n".join(getattr(error, "__notes__", ())))) is not None:
                error.add_note(f"Caught {type(error).__name__} in worker process {worker[1]}.")
            raise

    def _take(self) -> T:
        """The next batch, which counts as delivered only when it is handed over."""
        samples: Any = self._samples
        return samples.take() if isinstance(samples, Epoch) else next(samples)  # type: ignore[no-any-return]

    def _end_epoch(self) -> None:
        """Leave the epoch at hand, read to its end or not."""
        if self._samples is not None:
            samples, self._samples = self._samples, None
            if isinstance(self._loader, Loader):
                samples.close()
            self._notify("finalize_iteration")

    def __len__(self) -> int:
        """Batches (or samples, if nothing is batched) of one epoch on this rank."""
        return len(self._get_loader())

    def mask(self) -> list[bool] | None:
        """Of the batch delivered last: which samples are real, where some only fill it (policy="pad" or "repeat")."""
        return None if self._loader is None else self._loader.mask()

    # --- seeds, limits ------------------------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """The next epoch, and those after it, are a function of this number."""
        self._next_epoch, self._seeded = epoch_number(check_seed(seed)), True

    def _pause(self) -> None:
        self._paused = True
        self._notify("_pause")

    def _resume(self) -> None:
        if not self._paused:
            text = "Resume is called when `DataLoader2` is not paused. No operation is performed."
            warnings.warn(text, stacklevel=users_line())
            return
        self._paused = False
        self._notify("_resume")

    def _notify(self, method: str, *args: object) -> Any:
        """Call a method of the reading service, if it has it."""
        return getattr(self.reading_service, method)(*args) if hasattr(self.reading_service, method) else None

    # --- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, as plain data."""
        if self._loaded_state is not None:
            return dict(self._loaded_state)
        service = self.reading_service
        checkpointed = keeps_state(service) and self._begun
        return {
            "version": VERSION,
            "seeded": self._seeded,
            "next": self._next_epoch,
            "running": self._samples is not None and not (isinstance(self._samples, Epoch) and self._samples.ended),
            "loader": None if self._loader is None or not self._begun else self._loader.state_dict(),
            "strands": self._settings.strands,
            "sharding": self._settings.sharding,
            "service": service.checkpoint().hex() if checkpointed else None,
        }

    @short_errors
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The first epoch goes on where the state was taken: with any reading service, of any number of workers."""
        if self._begun:
            raise RuntimeError(
                "DataLoaderV2 iterator has already been created, `load_state_dict()` can't be called. "
                "Please create a new dataloader in order to use load state dict."
            )
        self._loaded_state = check_state(state)
        self._seeded, self._next_epoch = state["seeded"], state["next"]
        if self._loader is not None:  # its length was asked for
            self._loader.close()
            self._loader = None

    @classmethod
    def from_state(
        cls,
        state: dict[str, Any],
        reading_service: Any = None,
        datapipe: Any = None,
        datapipe_adapter_fn: Any = None,
    ) -> "DataLoader2[Any]":
        """A loader that goes on where the state was taken. The graph is not part of a state, which is plain data."""
        if datapipe is None:
            raise BadOption(
                "DataLoader2.from_state() needs datapipe=: a state is plain data and holds no program; "
                "build the graph as it was built before"
            )
        made: DataLoader2[Any] = cls(datapipe, datapipe_adapter_fn, reading_service)
        made.load_state_dict(state)
        return made

    # --- ending and looking -------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Stop the workers. Iterating again is an error; calling this again is not."""
        if self._closed:
            return
        self._closed = True
        self._end_epoch()
        if self._loader is not None:
            self._loader.close()
        if self._running is not None:
            self._notify("finalize")

    def __enter__(self) -> "DataLoader2[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        if not self.__dict__.get("_closed", True):
            self.shutdown()

    @property
    def loader(self) -> Loader[Any]:
        """The loader that runs: for `headrace.observe.profile` and whatever else takes a Loader."""
        loader = self._get_loader()
        if isinstance(loader, IterableLoader):
            raise BadPipe(
                "what a reading service of your own returns is iterated as it is: there is no Loader to look at"
            )
        return loader

    def stats(self) -> Stats:
        """What has happened so far."""
        return self.loader.stats()

    def worker_pids(self) -> list[int]:
        """The process numbers of the workers that are alive now."""
        return self.loader.worker_pids()

    def explain(self) -> str:
        """Where each op runs and why."""
        return self.loader.explain()

    def __getattr__(self, name: str) -> Any:
        """Anything else is asked of the graph."""
        pipe = self.__dict__.get("datapipe")
        if pipe is None or name.startswith("__"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(pipe, name)


class DataLoader2Iterator(Iterator[T]):
    """One epoch of a DataLoader2."""

    def __init__(self, dataloader: DataLoader2[T], iterator_id: int) -> None:
        self.dataloader = dataloader
        self.iterator_id = iterator_id
        self.limit_counter: int | None = None
        self.limit_threshold: int | None = None

    def __next__(self) -> T:
        loader = self.dataloader
        if self.iterator_id != loader._iterator_id:
            raise RuntimeError(
                "This iterator has been invalidated because another iterator has been created from the same "
                "DataLoader2.\nThis may be caused multiple references to the same DataLoader2: use one iterator, or "
                "make a DataLoader2 for each."
            )
        if loader._paused:
            raise PauseIteration
        first = loader._fresh and not loader._resumed
        loader._fresh = False
        if loader._samples is None:
            raise StopIteration
        try:
            sample = loader._next(first)
        except StopIteration:
            raise
        except BaseException as error:
            WORDS.retell(error)
            shorten(error)
            raise
        epoch = loader._samples if isinstance(loader._samples, Epoch) else None
        if self.limit_threshold is not None:
            self.limit_counter = (self.limit_counter or 0) + 1
            if self.limit_counter >= self.limit_threshold:
                self.limit_counter = 0
                loader._pause()
        if epoch is not None:
            epoch.received = epoch.handed  # the last thing: an interrupt before it leaves this batch undelivered
        return sample

    def limit(self, num_batches: int | None) -> None:
        """Stop after every `num_batches` batches, until `resume()`; None takes the limit away."""
        if num_batches is not None and (not isinstance(num_batches, int) or num_batches < 1):
            raise BadOption(f"limit(num_batches) needs a whole number > 0 or None, not {num_batches!r}")
        self.limit_counter, self.limit_threshold = 0, num_batches
        self.dataloader._notify("_limit", num_batches)

    def resume(self) -> None:
        """Go on after a limit."""
        self.dataloader._resume()

    def __getattr__(self, name: str) -> Any:
        samples = self.__dict__["dataloader"].__dict__.get("_samples") if "dataloader" in self.__dict__ else None
        if samples is None or name.startswith("__"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(samples, name)
