"""Known formats: which one a path means, and the files that it stands for. A new format is one line here."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from headrace.errors import BadOption, meant
from headrace.sources.listing import expand
from headrace.sources.open import is_remote
from headrace.sources.stored import litdata, mds
from headrace.sources.stored.bag import Bag
from headrace.sources.stored.form import StoredFormat
from headrace.sources.stored.jsonl import JsonLines
from headrace.sources.stored.mds import Mds
from headrace.sources.stored.megatron import Megatron
from headrace.sources.stored.packed import ENDINGS
from headrace.sources.stored.source import StoredFiles
from headrace.sources.stored.tar import TarShards
from headrace.sources.stored.tfrecord import TfRecords

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Known(NamedTuple):
    make: Callable[[bool, tuple[str, ...]], StoredFormat]
    """Given whether the files are trusted, and the files."""
    endings: tuple[str, ...]


FORMATS: dict[str, Known] = {
    "bag": Known(lambda trust, files: Bag(), (".bag",)),
    "jsonl": Known(lambda trust, files: JsonLines(), (".jsonl", ".ndjson")),
    "litdata": Known(litdata.litdata, ()),
    "mds": Known(lambda trust, files: Mds(trust), (".mds",)),
    "megatron": Known(lambda trust, files: Megatron(), (".bin",)),
    "tar": Known(lambda trust, files: TarShards(), (".tar",)),
    "tfrecord": Known(lambda trust, files: TfRecords(), (".tfrecord", ".tfrecords")),
}


def stored(paths: Paths, format: str | None, index: str | os.PathLike[str] | None, trust: bool) -> StoredFiles:
    """A source of all samples of these files."""
    if format is not None and format not in FORMATS:
        raise BadOption(f"format={format!r}: choose one of {', '.join(FORMATS)}{meant(format, FORMATS)}")
    files = _files(paths)
    name = format if format is not None else _by_ending(files)
    folder = None if index is None else os.fspath(index)
    return StoredFiles(files, FORMATS[name].make(trust, files), folder)


def _files(paths: Paths) -> tuple[str, ...]:
    """The files that are meant; a folder with an index of MDS shards or LitData chunks stands for those."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[str] = []
    for path in (os.fspath(one) for one in given):
        if is_remote(path):
            raise BadOption(f"{path} is not a local file: samples are read by their place in it; fetch it first")
        if os.path.isfile(Path(path) / "index.json"):
            found += litdata.chunks(path) if litdata.is_litdata(path) else mds.shards(path)
        else:
            found += [name for name in expand(path) if not name.endswith((".index", ".index.lock", ".idx"))]
    if not found:
        raise BadOption(f"no file is found at {paths!r}")
    return tuple(found)


def _without(name: str) -> str:
    """A name without what it says of its compression."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def _by_ending(files: tuple[str, ...]) -> str:
    if all(Path(file).name.startswith("chunk-") and litdata.is_litdata(os.path.dirname(file)) for file in files):
        return "litdata"
    plain = {_without(file.lower()) for file in files}
    found = {name for file in plain for name, known in FORMATS.items() if file.endswith(known.endings)}
    if len(found) != 1:
        raise BadOption(f"the ending of {files[0]} does not say its format: give format= one of {', '.join(FORMATS)}")
    return found.pop()
