"""install(): `torch.utils.data.DataLoader` is ours, for code that one cannot edit.

    headrace.install()                  from now on, in this process and in those that it starts
    with headrace.installed(): ...      inside only
    headrace.uninstall()

Code that has taken the name before (`from torch.utils.data import DataLoader`) keeps what it took: install first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.multiprocessing
import torch.utils.data
import torch.utils.data.dataloader

from headrace.doors.torch import DataLoader, TorchLoader

_MARK = "headrace"


class _Inherited:
    """Goes to a new process with what it inherits, and installs there when it arrives."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, ()


def _arrived() -> _Inherited:
    install()
    return _Inherited()


def install() -> None:
    """Put our DataLoader in the place of torch's."""
    _put(DataLoader)
    # Whatever multiprocessing starts, by whichever method, gets a copy of this.
    torch.multiprocessing.current_process()._config[_MARK] = _Inherited()  # type: ignore[attr-defined]


def uninstall() -> None:
    """Put torch's own DataLoader back."""
    _put(TorchLoader)
    torch.multiprocessing.current_process()._config.pop(_MARK, None)  # type: ignore[attr-defined]


@contextmanager
def installed() -> Iterator[None]:
    """Inside, `torch.utils.data.DataLoader` is ours."""
    before = torch.utils.data.DataLoader
    install()
    try:
        yield
    finally:
        if before is DataLoader:
            install()
        else:
            uninstall()


def _put(loader: Any) -> None:
    torch.utils.data.DataLoader = loader  # type: ignore[misc]
    torch.utils.data.dataloader.DataLoader = loader  # type: ignore[misc]
