"""Known formats: which one a path means, and the files that it stands for. A new format is one line here."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from headrace.errors import BadOption, meant
from headrace.sources.listing import expand
from headrace.sources.open import is_remote
from headrace.sources.stored import mds
from headrace.sources.stored.bag import Bag
from headrace.sources.stored.form import StoredFormat
from headrace.sources.stored.jsonl import JsonLines
from headrace.sources.stored.mds import Mds
from headrace.sources.stored.megatron import Megatron
from headrace.sources.stored.source import StoredFiles
from headrace.sources.stored.tar import TarShards
from headrace.sources.stored.tfrecord import TfRecords

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Known(NamedTuple):
    make: Callable[[bool], StoredFormat]
    """Given whether the files are trusted."""
    endings: tuple[str, ...]


FORMATS: dict[str, Known] = {
    "bag": Known(lambda trust: Bag(), (".bag",)),
    "jsonl": Known(lambda trust: JsonLines(), (".jsonl", ".ndjson")),
    "mds": Known(lambda trust: Mds(trust), (".mds",)),
    "megatron": Known(lambda trust: Megatron(), (".bin",)),
    "tar": Known(lambda trust: TarShards(), (".tar",)),
    "tfrecord": Known(lambda trust: TfRecords(), (".tfrecord", ".tfrecords")),
}


def stored(paths: Paths, format: str | None, index: str | os.PathLike[str] | None, trust: bool) -> StoredFiles:
    """A source of all samples of these files."""
    if format is not None and format not in FORMATS:
        raise BadOption(f"format={format!r}: choose one of {', '.join(FORMATS)}{meant(format, FORMATS)}")
    files = _files(paths)
    name = format if format is not None else _by_ending(files)
    folder = None if index is None else os.fspath(index)
    return StoredFiles(files, FORMATS[name].make(trust), folder)


def _files(paths: Paths) -> tuple[str, ...]:
    """The files that are meant; a folder with an index of MDS shards stands for those."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for path in (os.fspath(one) for one in given):
        if is_remote(path):
            raise BadOption(f"{path} is not a local file: samples are read by their place in it; fetch it first")
        if os.path.isfile(Path(path) / "index.json"):
            found += mds.shards(path)
        else:
            found += [name for name in expand(path) if not name.endswith((".index", ".index.lock", ".idx"))]
    if not found:
        raise BadOption(f"no file is found at {paths!r}")
    return tuple(found)


def _by_ending(files: tuple[str, ...]) -> str:
    found = {name for file in files for name, known in FORMATS.items() if file.lower().endswith(known.endings)}
    if len(found) != 1:
        raise BadOption(f"the ending of {files[0]} does not say its format: give format= one of {', '.join(FORMATS)}")
    return found.pop()
