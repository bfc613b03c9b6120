"""Optional packages of this folder: imported when something of them is first used.

from headrace.tables.packages import pa

pa.array([1, 2])  # imports pyarrow; where it is not installed, the error names the extra that brings it
"""

import os
import sys
from typing import Any

from headrace.errors import BadPipe
from headrace.sources.extra import import_extra

EXTRAS = {"pyarrow": "arrow", "pandas": "frames", "polars": "frames", "torch": "torch", "jax": "jax"}


class LazyPackage:
    """Has what the package has."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, attribute: str) -> Any:
        name: str = self.__dict__["_name"]
        found = getattr(import_extra(EXTRAS[name.partition(".")[0]], name), attribute)
        self.__dict__[attribute] = found  # from now on it costs no more than with an import
        return found


pa: Any = LazyPackage("pyarrow")
pc: Any = LazyPackage("pyarrow.compute")
ds: Any = LazyPackage("pyarrow.dataset")
fs: Any = LazyPackage("pyarrow.fs")
pq: Any = LazyPackage("pyarrow.parquet")
pandas: Any = LazyPackage("pandas")
polars: Any = LazyPackage("polars")
torch: Any = LazyPackage("torch")
jax: Any = LazyPackage("jax")

THREADED = ("polars", "lance", "array_record")
"""Packages with threads of their own, which do not come along when a process is forked: the next call waits forever."""
_lost: set[str] = set()


def _forked() -> None:
    _lost.update(name for name in THREADED if name in sys.modules)


if hasattr(os, "register_at_fork"):  # (a system that forks)
    os.register_at_fork(after_in_child=_forked)


def check_threads(name: str) -> None:
    """Raise if this process was forked from one that had the package loaded."""
    if name in _lost:
        raise BadPipe(
            f"a forked worker cannot make {name} frames: {name} was loaded before the fork and lost its threads in it; "
            f"use start_method='server' or 'spawn', kind='thread', or batch(as_='arrow') and make the frame yourself"
            if name == "polars"
            else f"a forked worker cannot read through {name}: it was loaded before the fork and lost its threads in "
            "it; use start_method='server' or 'spawn', or kind='thread'"
        )
