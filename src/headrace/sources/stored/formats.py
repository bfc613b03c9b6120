"""All formats, which of them a path means, and the files that a path stands for. A new format is one name here."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import BadOption, meant
from headrace.op import Source
from headrace.sources.listing import Paths, as_texts, expand
from headrace.sources.open import is_remote
from headrace.sources.stored import litdata, mds
from headrace.sources.stored.array_record import ArrayRecords
from headrace.sources.stored.bag import Bag
from headrace.sources.stored.format import StoredFormat
from headrace.sources.stored.jsonl import JsonLines
from headrace.sources.stored.litdata import LitData
from headrace.sources.stored.mds import Mds
from headrace.sources.stored.megatron import Megatron
from headrace.sources.stored.packed import ENDINGS
from headrace.sources.stored.source import StoredFiles
from headrace.sources.stored.tar import TarShards
from headrace.sources.stored.tfrecord import TfRecords
from headrace.tables.stored.hf_folder import from_hf_folder, is_hf_folder
from headrace.tables.stored.lance import from_lance, is_lance

FORMATS: dict[str, type[StoredFormat]] = {
    format.name: format for format in (ArrayRecords, Bag, JsonLines, LitData, Mds, Megatron, TarShards, TfRecords)
}


class KnownFolder(NamedTuple):
    """A format whose samples are rows of tables, and whose data sets are one folder each."""

    is_one: Callable[[str], bool]
    make: Callable[[str], Source[Any]]


FOLDERS: dict[str, KnownFolder] = {
    "datasets": KnownFolder(is_hf_folder, from_hf_folder),
    "lance": KnownFolder(is_lance, from_lance),
}


def stored(paths: Paths, format: str | None, index: str | os.PathLike[str] | None, trust: bool) -> Source[Any]:
    """A source of all samples of these files."""
    names = [*FORMATS, *FOLDERS]
    if format is not None and format not in names:
        raise BadOption(f"format={format!r}: choose one of {', '.join(names)}{meant(format, names)}")
    if (folder := _folder(paths, format)) is not None:
        return folder
    files = tuple(expand(paths, _data_files))
    if not files:
        raise BadOption(f"no file is found at {paths!r}")
    name = format if format is not None else _by_ending(files)
    return StoredFiles(files, FORMATS[name].of(files, trust), None if index is None else os.fspath(index))


def _folder(paths: Paths, format: str | None) -> Source[Any] | None:
    """The data set of a single path that is a folder of tables; None if no path is one."""
    texts = as_texts(paths)
    for path in texts:
        name = format if format in FOLDERS else next((n for n, known in FOLDERS.items() if known.is_one(path)), None)
        if name is None or format not in (None, name):
            continue
        if len(texts) > 1:
            raise BadOption(f"{path} is a whole data set: make a pipe of each, and put them together with concat()")
        if not FOLDERS[name].is_one(path):
            raise BadOption(f"{path} is not a folder of the format {name!r}")
        return FOLDERS[name].make(path)
    return None


def _data_files(path: str) -> Sequence[str]:
    """The files that a path stands for: of a folder of MDS shards or LitData chunks, those that its index lists."""
    if is_remote(path):
        raise BadOption(f"{path} is not a local file: samples are read by their place in it; fetch it first")
    if os.path.isfile(Path(path) / "index.json"):
        return litdata.chunks(path) if litdata.is_litdata(path) else mds.shards(path)
    return [name for name in expand(path) if not name.endswith((".index", ".index.lock", ".idx"))]


def _without(name: str) -> str:
    """A name without the ending of its compression."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def _by_ending(files: tuple[str, ...]) -> str:
    if all(Path(file).name.startswith("chunk-") and litdata.is_litdata(os.path.dirname(file)) for file in files):
        return "litdata"
    plain = {_without(file.lower()) for file in files}
    found = {name for file in plain for name, format in FORMATS.items() if file.endswith(format.endings)}
    if len(found) != 1:
        raise BadOption(f"the ending of {files[0]} does not say its format: give format= one of {', '.join(FORMATS)}")
    return found.pop()
