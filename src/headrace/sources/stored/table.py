"""Offset tables: how MDS shards, LitData chunks and bags say where their samples stand."""

import numpy as np

from headrace.sources.stored.form import DamagedFile, Found, Ints, OpenFile, Spans


def spans_between(offsets: Ints, file: OpenFile) -> Found:
    """Samples that stand one behind the other, each from its offset to the next."""
    sizes = np.diff(offsets)
    if len(offsets) and (offsets[0] < 0 or offsets[-1] > file.size or bool((sizes < 0).any())):
        raise DamagedFile(f"{file.path} is damaged: its table says that samples lie outside its {file.size} bytes")
    return Found(Spans.of(offsets[:-1], sizes), file.size)


def counted_table(file: OpenFile) -> Ints:
    """The table that begins a file: the number of samples n, then n + 1 offsets, all of 4 bytes."""
    if file.size < 4:
        raise DamagedFile(f"{file.path} has {file.size} bytes: too few for a table of samples")
    count = int(np.frombuffer(file.read(0, 4), "<u4")[0])
    if 4 * (count + 2) > file.size:
        raise DamagedFile(f"{file.path} is damaged or cut off: its table of {count} samples does not fit into it")
    return np.frombuffer(file.read(4, 4 * (count + 1)), "<u4").astype(np.int64)
