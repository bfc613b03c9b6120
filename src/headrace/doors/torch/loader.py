"""DataLoader: torch's, argument for argument, on our engine.

It extends `torch.utils.data.DataLoader`: torch's own constructor checks and keeps the arguments, whatever version of
torch is installed, so trainers that look at a loader, or build another one like it, find what they expect. Samples,
their order, random values and errors are torch's to the bit. What is added are keywords with defaults, and a state:

    reproducible    random values in workers depend on the batch, not on the worker: the same for any number of workers
    shard="auto"    an iterable-style dataset is divided exactly among workers and ranks
    num_workers     may be "auto": another number each epoch, until the best one is found
    shuffle_window  an iterable-style dataset is shuffled inside windows of so many samples
    world           among which ranks `shard="auto"` divides; found out from the launcher when not given
    autosave        a file that says every so many batches where the loader stands; one that finds it goes on there
    state_dict, load_state_dict, stats, explain
"""

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from headrace.engine.autosave import EVERY, OF_EACH, Autosave, Given, check_alone
from headrace.engine.saver import Saver
from headrace.errors import BadOption, SnapshotRefused, meant, missing, warn_once
from headrace.loader import Loader, Stats

try:
    import torch
except ModuleNotFoundError as gone:
    if gone.name != "torch":
        raise
    raise missing("torch", "torch") from None

import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, IterDataPipe, Sampler

from headrace.doors.torch import plan as plan
from headrace.doors.torch.accelerate import FINISHED, TAKEN, dispatches, go_back
from headrace.doors.torch.auto import without_auto
from headrace.doors.torch.indices import IndexLists, begin, set_back, start_of
from headrace.doors.torch.iteration import Iteration
from headrace.doors.torch.pipes import PipeStream, on_torchs_workers, shuffling, unwrapped
from headrace.doors.torch.progress import LoaderProgress
from headrace.doors.torch.seeds import generator_state, set_generator_state
from headrace.doors.torch.state import LoaderState, MapPlace, StreamPlace, check, restore
from headrace.doors.torch.stream import behind_samples
from headrace.pipe.graph import Pipe
from headrace.plan.world import World
from headrace.tracebacks import short_errors, shorten

T = TypeVar("T", covariant=True)
TorchLoader = torch.utils.data.DataLoader
TORCHS = inspect.signature(TorchLoader.__init__).parameters.keys() - {"self"}
"""What the installed torch's constructor takes."""
COUNTING = ("lightning.", "pytorch_lightning.")
"""Trainers that end an epoch by counting batches: they never ask for the one after the last."""


class InstallMeta(type):
    """While our class is installed in torch's place (`install`), loaders of torch's class are instances of it too."""

    installed = False

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is DataLoader and InstallMeta.installed and isinstance(instance, TorchLoader):
            return True
        return super().__instancecheck__(instance)


class DataLoader(TorchLoader[T], metaclass=InstallMeta):
    """Loads batches of a dataset."""

    _saves_next_order = False
    """A state between epochs holds the global generator that the next order is drawn from."""

    @short_errors
    def __init__(
        self,
        dataset: Dataset[T] | Iterable[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        reproducible: bool = False,
        shard: str | None = None,
        shuffle_window: int | None = None,
        world: World | None = None,
        autosave: Given | None = None,
        **newer: Any,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name in TORCHS}
        for name in newer.keys() - TORCHS:
            hint = f"; {EVERY.format(value=newer[name])}" if name == "every" else meant(name, _PARAMETERS)
            raise TypeError(f"DataLoader.__init__() got an unexpected keyword argument {name!r}{hint}")
        self._resume: LoaderState | None = None
        """Where the next iterator goes on."""
        self._loaded: dict[str, Any] = {}
        """The state that was loaded, as it came."""
        self._once: bool | None = None
        """The `_seeds_once` of the loader that the state comes from."""
        self._progress: LoaderProgress | None = None
        self._engine: Loader[Any] | None = None
        self._earlier: Stats | None = None
        self._saver: Saver | None = None
        self.autosave = autosave
        self.reproducible = reproducible
        self.shard, self.shuffle_window, self.world = shard, shuffle_window, world
        _check_ours(self, dataset)
        arguments, self._tuner = without_auto(arguments | newer)
        if shard is not None or shuffle_window is not None:
            arguments = _with_iterable(arguments)
        try:
            super().__init__(**shuffling(arguments))
        except ValueError as refused:
            if "expected unspecified shuffle option" in str(refused):
                refused.add_note(
                    "headrace: an iterable is shuffled inside windows by DataLoader(..., shuffle_window=1000)"
                )
            raise
        self.__dict__["dataset"] = unwrapped(self.dataset)  # (torch does not let an attribute be set again)
        if prefetch_factor is None and self.prefetch_factor is not None:
            self.prefetch_factor = plan.DefaultPrefetch(self.prefetch_factor)
        self.in_order = in_order  # (torch before 2.6 does not know it)
        if autosave is not None:
            self._go_on_from(autosave)
        if self.num_workers:
            import headrace.engine.workers.process.workers  # noqa: F401 - `iter()` does not wait for it then

    def _go_on_from(self, autosave: Given) -> None:
        check_alone(World.detect(), OF_EACH)
        self._saver = Saver(Autosave.of(autosave))
        if (saved := self._saver.load()) is not None:
            self.load_state_dict(saved)

    @short_errors
    def __iter__(self) -> Any:
        return super().__iter__()

    def _get_iterator(self) -> Any:
        if on_torchs_workers(self.dataset):
            return super()._get_iterator()
        resume, self._resume = self._resume, None
        if resume is None and self._once and self._seeds_once and self._progress is not None:
            resume = self._between(self._progress.engine.seed, self._progress.epoch)
        if resume is not None and resume.at is None and self.num_workers and "torch" in resume.start:
            set_generator_state(resume.start["torch"])
        if isinstance(self.dataset, PipeStream):
            self.dataset.begin(self.generator)
        if self.num_workers and self._tuner is None:
            self.check_worker_number_rationality()
        return Iteration(self, resume)

    def _set_back(self, between: LoaderState) -> None:
        """Generators, samplers and datasets are as they were when a state between epochs was taken.

        At once: what the program does with them after it has loaded the state (`set_epoch()`, a seed of its own) is
        meant for the next epoch. Only the global generators wait for it.
        """
        if not self.num_workers and between.num_workers == 0:
            between.start["kept"] = restore(self.dataset, between.start.get("kept", {}))
        set_back(self, {name: value for name, value in between.start.items() if name != "torch"})

    @property
    def _seeds_once(self) -> bool:
        """A base seed is drawn for the first epoch only, as persistent workers have it; else for each.

        What follows in the generator depends on it, so a loader that goes on from a state does as the one before.
        """
        return self.persistent_workers if self._once is None or self.generator is None else self._once

    # --- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the last iterator stands, or between which epochs: plain data, for any number of workers."""
        if on_torchs_workers(self.dataset):
            raise SnapshotRefused("a graph of torch's own pipes has no state; use headrace.DataLoader2")
        if self._resume is not None:
            return dict(self._loaded)
        progress = self._progress
        if progress is not None and not progress.ended:
            state = progress.state()
            return {**state, TAKEN: progress.at().batches} if dispatches(sys._getframe(1)) else state
        seed, epoch = (None, 0) if progress is None else (progress.engine.seed, progress.epoch)
        between = self._between(seed, epoch)
        if progress is not None and progress.kept:
            between.start["kept"] = progress.kept
        return between.packed(plan.style(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter()` goes on where the state was taken; an empty one means: from the start."""
        try:
            self._resume = resume = check(state, plan.style(self)) if state else None
        except SnapshotRefused as refused:
            shorten(refused)
            raise
        self._loaded = dict(state)
        self._once = None if resume is None else resume.start.get("once")
        self._progress = self._iterator = None
        if resume is None:
            return
        if resume.at is not None:
            counts = sys._getframe(1).f_globals.get("__name__", "").startswith(COUNTING)
            if state.get(FINISHED) is True or (counts and self._is_over(resume.at.batches)):
                self._resume = self._after(resume)
            elif TAKEN in state:
                resume.at = go_back(resume.at, state[TAKEN], getattr(self.batch_sampler, "batch_size", 1))
        else:
            self._set_back(resume)
        at = resume.at if self._resume is resume else None
        if isinstance(at, StreamPlace) and self.shard is None and resume.num_workers != self.num_workers:
            self._resume = None
            raise SnapshotRefused(
                f"this state stands inside an epoch that is read with num_workers={resume.num_workers}, by each worker "
                f"for itself: go on with that number, not {self.num_workers}, or take the state between epochs"
            )
        inside = behind_samples(at.place) if isinstance(at, StreamPlace) else at is not None and at.batches > 0
        if inside and not self.reproducible and (self.num_workers or resume.num_workers):
            warn_once(
                "random values drawn in workers are not part of a DataLoader's snapshot: after a resume they differ "
                "from those of a run without a break; DataLoader(..., reproducible=True) makes them the same"
            )

    def _is_over(self, batches: int) -> bool:
        """Whether so many batches are a whole epoch, though the trainer has not asked for one more."""
        try:
            return batches >= len(self)
        except TypeError:
            return False

    def _after(self, state: LoaderState) -> LoaderState:
        """The state between that epoch, of which everything was delivered, and the next: all stands there now."""
        at = state.at
        begin(self, state.start, replace(at, iterator=None, among=None) if isinstance(at, MapPlace) else at)
        between = self._between(state.base_seed, state.epoch)
        between.start.pop("torch", None)
        return between

    def _between(self, base_seed: int | None, epoch: int) -> LoaderState:
        """The state before the epoch after this one."""
        start = start_of(self, not plan.is_iterable(self))
        for name in ("torch", "others"):
            start.pop(name, None)  # nothing is drawn yet: the global generators are the program's own business
        if self._saves_next_order and self.num_workers and not plan.is_iterable(self):
            start["torch"] = generator_state()
        seed, number = (base_seed, epoch + 1) if self._seeds_once and base_seed is not None else (None, 0)
        return LoaderState(self.num_workers, seed, number, start, None)

    # --- looking ------------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """What has happened so far, over all iterators: see `Loader.stats`."""
        now = self._now().stats()
        if self._tuner is not None:
            now = replace(now, tried=dict(self._tuner.rates))
        if self._saver is not None:
            now = replace(now, autosave=self._saver.trouble)
        return now if self._earlier is None else now.after(self._earlier)

    def explain(self) -> str:
        """What the arguments mean, where the dataset is read and batches are made, and what workers have shown to be
        worth since."""
        return f"{plan.in_words(self)}\n{self._now().explain()}"

    def _now(self) -> Loader[Any]:
        """The engine's loader of the last iterator, or one like that of the next."""
        if on_torchs_workers(self.dataset):
            raise BadOption("a graph of torch's own pipes runs on torch's workers; use headrace.DataLoader2")
        return self._engine or plan.build(self, plan.context_of(self, 0), IndexLists(self._index_sampler), 0)

    def _took_over(self, engine: Loader[Any]) -> None:
        """This engine's loader is that of the last iterator now."""
        if self._engine is not None:
            last = self._engine.stats()
            self._earlier = last if self._earlier is None else last.after(self._earlier)
        self._engine = engine

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(("_progress", "_engine", "_earlier", "_saver"))}


def _check_ours(loader: DataLoader[Any], dataset: object) -> None:
    if type(dataset) is Pipe:
        raise BadOption(
            "a Pipe is no dataset: it is run by headrace.Loader(pipe, workers=4), and its batches are made by "
            "pipe.batch(32).collate()"
        )
    if not isinstance(loader.reproducible, bool):
        raise BadOption(f"reproducible must be True or False, not {loader.reproducible!r}")
    if loader.shard not in (None, "auto"):
        raise BadOption(f"shard must be None or 'auto', not {loader.shard!r}")
    window = loader.shuffle_window
    if window is not None and (not isinstance(window, int) or isinstance(window, bool) or window < 1):
        raise BadOption(f"shuffle_window must be None or a whole number >= 1, not {window!r}")
    if loader.world is not None:
        if not isinstance(loader.world, World):
            raise BadOption(f"world must be a headrace.World, not {type(loader.world).__name__}")
        if loader.shard is None:
            raise BadOption("world= says among whom shard='auto' divides; give both, or a DistributedSampler instead")


class Wrapped(IterableDataset[Any]):
    """Anything that can be iterated, as an iterable-style dataset."""

    def __init__(self, samples: Iterable[Any]) -> None:
        self.samples = samples

    def __iter__(self) -> Any:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]


def _with_iterable(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with an iterable-style dataset among them."""
    dataset = arguments.get("dataset")
    if isinstance(dataset, IterDataPipe):
        raise BadOption(
            "shard= and shuffle_window= are for plain iterables; torch's pipes have sharding_filter() and shuffle()"
        )
    if isinstance(dataset, IterableDataset) or dataset is None:
        return arguments
    if hasattr(dataset, "__getitem__") or not hasattr(dataset, "__iter__"):
        raise BadOption(
            f"shard= and shuffle_window= are for datasets that are iterated; {type(dataset).__name__} is read by "
            f"index, and its sampler divides and shuffles it (shuffle=True, DistributedSampler)"
        )
    return {**arguments, "dataset": Wrapped(dataset)}


def _signature() -> inspect.Signature:
    """The signature of the installed torch, with our keywords behind its own."""
    ours = inspect.signature(DataLoader.__init__).parameters.values()
    own = [p for p in ours if p.kind is p.KEYWORD_ONLY and p.name not in TORCHS]
    theirs = inspect.signature(TorchLoader.__init__)
    return theirs.replace(parameters=[*theirs.parameters.values(), *own])


_PARAMETERS = list(_signature().parameters)[1:]
DataLoader.__init__.__signature__ = _signature()  # type: ignore[attr-defined]
