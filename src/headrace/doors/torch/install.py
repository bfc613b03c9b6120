"""install(): `torch.utils.data.DataLoader` is ours, for code that one cannot edit.

    headrace.install()                  from now on, in this process and in those that it starts
    with headrace.installed(): ...      inside only
    headrace.uninstall()

Modules that have taken the name already (`from torch.utils.data import DataLoader`) are given ours too. torchdata's
`StatefulDataLoader`, where it is installed, is replaced as well: trainers ask for it when they want a loader with a
state, and ours has one.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headrace.doors.torch.loader import DataLoader, InstallMeta, T, TorchLoader

import torch.multiprocessing  # isort: skip  (after the door, which says what is missing when torch is)

_INHERITED = "headrace"
_taken: list[tuple[Any, str, Any]] = []
"""What was replaced: (module, name, what it was)."""


class StatefulDataLoader(DataLoader[T]):
    """In the place of torchdata's, and as that one.

    How often the state of an iterable-style dataset is taken can be said, a state between epochs says which order comes
    next, and `iter()` raises what `worker_init_fn` does.
    """

    _saves_next_order = True

    def __init__(self, *args: Any, snapshot_every_n_steps: int | None = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.snapshot_every_n_steps = snapshot_every_n_steps

    def _get_iterator(self) -> Any:
        iterator = super()._get_iterator()
        if self.num_workers and self.worker_init_fn is not None:
            iterator.wait()
        return iterator


class _Inherited:
    """Goes to a new process with what it inherits, and installs there when it arrives."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, ()


def _arrived() -> _Inherited:
    install()
    return _Inherited()


def install() -> None:
    """Put our DataLoader in the place of torch's."""
    InstallMeta.installed = True
    for module in list(sys.modules.values()):
        # Not by getattr: modules that make their names on demand would start importing things.
        if getattr(module, "__dict__", {}).get("DataLoader") is TorchLoader:
            _replace(module, "DataLoader", DataLoader)
    if find_spec("torchdata") is not None:
        theirs = import_module("torchdata.stateful_dataloader")
        if theirs.StatefulDataLoader is not StatefulDataLoader:
            _replace(theirs, "StatefulDataLoader", StatefulDataLoader)
    # Whatever multiprocessing starts, by whichever method, gets a copy of this.
    torch.multiprocessing.current_process()._config[_INHERITED] = _Inherited()  # type: ignore[attr-defined]


def uninstall() -> None:
    """Put everything back."""
    InstallMeta.installed = False
    while _taken:
        module, name, was = _taken.pop()
        setattr(module, name, was)
    torch.multiprocessing.current_process()._config.pop(_INHERITED, None)  # type: ignore[attr-defined]


@contextmanager
def installed() -> Iterator[None]:
    """Inside, `torch.utils.data.DataLoader` is ours."""
    before = InstallMeta.installed
    install()
    try:
        yield
    finally:
        if not before:
            uninstall()


def _replace(module: Any, name: str, ours: Any) -> None:
    _taken.append((module, name, getattr(module, name)))
    setattr(module, name, ours)
