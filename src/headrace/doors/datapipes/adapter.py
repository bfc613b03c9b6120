"""Adapters: changes that `DataLoader2(datapipe_adapter_fn=)` makes to a graph before it runs."""

import warnings
from dataclasses import replace
from typing import Any

from headrace.doors.datapipes.graph import find_dps, is_shuffle, list_dps, traverse_dps
from headrace.doors.datapipes.iter import EndOnDiskCacheHolder, Shuffler
from headrace.tracebacks import users_line


class Adapter:
    """A callable that gets a graph and returns it, or another one."""

    def __call__(self, datapipe: object) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __call__(datapipe)")


class Shuffle(Adapter):
    """Switch every shuffle of the graph on (adding one at the end if there is none), or off; None changes nothing."""

    def __init__(self, enable: bool | None = True) -> None:
        self.enable = enable

    def __call__(self, datapipe: object) -> Any:
        if self.enable is None:
            return datapipe
        shuffles = [node for node in list_dps(traverse_dps(datapipe)) if is_shuffle(node)]
        if self.enable and not shuffles:
            warnings.warn(
                "`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one at the end. "
                "Be aware that the default buffer size might not be sufficient for your task: "
                "put .shuffle() where it belongs.",
                stacklevel=users_line(),
            )
            return Shuffler(datapipe)
        for node in shuffles:
            node.set_shuffle(self.enable)
        return datapipe


class CacheTimeout(Adapter):
    """How many seconds every `end_caching()` of the graph waits for a file that another process makes."""

    def __init__(self, timeout: int | None = None) -> None:
        if timeout is None:
            raise ValueError("timeout should be integer")
        self.timeout = timeout

    def __call__(self, datapipe: object) -> Any:
        for node in find_dps(traverse_dps(datapipe), EndOnDiskCacheHolder):
            node._built = replace(node._built, timeout=self.timeout)
        return datapipe
