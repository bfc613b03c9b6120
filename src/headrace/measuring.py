"""Finds out once which documents filters leave and how long they are, so that any of them can be read by its number."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from headrace.engine.policy import Kind
from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.op import Each, Flat, Source
from headrace.ops.text.sized import Measure, Measurement
from headrace.pipe.graph import Pipe
from headrace.pipe.verbs.growing import grow
from headrace.plan.world import World
from headrace.sources import lock


def measure(documents: Pipe[Any], path: str | os.PathLike[str], *, workers: int = 0, timeout: float = 86400.0) -> str:
    """Read, filter and tokenize every document once, and keep in the file `path` which remain and how long they are.

    The file is for `documents.sized(path)`. Where it is there already, and of the same pipe, nothing is read. Every
    rank may call this: one of those that share `path` measures, the others wait for it, at most `timeout` seconds.
    """
    path = os.fspath(path)
    for node in documents.nodes():
        if not isinstance(node.op, Source | Each | Flat):
            raise BadOption(
                f"measure() is for one source with maps, filters and flatmaps, and there is {node.op.describe()}: "
                "measure what comes before it"
            )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with lock.hold(f"{path}.lock", timeout):
        if not Path(path).exists():
            _measured(documents, workers).save(path)
    Measurement.load(path, documents.fingerprint())
    return path


def _measured(documents: Pipe[Any], workers: int) -> Measurement:
    pipe = grow(documents, Measure())
    if pipe.indexed(0, 0) is None:
        raise BadOption("measure() is for documents that can be read by position (files, datasets), no stream")
    kind: Kind | None = "process" if workers else None
    with Loader(pipe, workers=workers, kind=kind, world=World()) as loader:
        found = list(loader)
    counts = [counts for counts, _ in found] or [np.zeros(0, np.int64)]
    lengths = [lengths for _, lengths in found] or [np.zeros(0, np.int64)]
    return Measurement(np.concatenate(counts), np.concatenate(lengths), " ".join(documents.fingerprint()))
