"""Headrace's Loader with threads: for work that waits, or that leaves the interpreter's lock."""

from contextlib import AbstractContextManager
from typing import Any

from benchmarks.case import Epochs, Start
from benchmarks.subjects.headrace_loader import HeadraceLoader
from headrace import Loader


class HeadraceThreads(HeadraceLoader):
    def _loader(self, pipe: Any, workers: int, start: Start) -> AbstractContextManager[Epochs]:
        return Loader(pipe, workers=workers, kind="thread") if workers else Loader(pipe)


SUBJECT = HeadraceThreads()
