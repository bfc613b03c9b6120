"""All formats, which of them a path means, and the files that a path stands for. A new format is one name here."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, meant
from headrace.op import Source
from headrace.secrets import shown
from headrace.sources.bytes import is_remote
from headrace.sources.listing import Paths, as_texts, expand
from headrace.sources.stored import mds
from headrace.sources.stored.array_record import ArrayRecords
from headrace.sources.stored.compressed import check_name
from headrace.sources.stored.format import StoredFormat
from headrace.sources.stored.jsonl import JsonLines
from headrace.sources.stored.mds import Mds
from headrace.sources.stored.megatron import Megatron
from headrace.sources.stored.source import StoredFiles
from headrace.sources.stored.tar import TarShards
from headrace.sources.stored.tfrecord import TfRecords
from headrace.tables.stored.lance import from_lance, is_lance

FORMATS: dict[str, type[StoredFormat]] = {
    format.name: format for format in (ArrayRecords, JsonLines, Mds, Megatron, TarShards, TfRecords)
}
LANCE = "lance"
"""Whose samples are rows of tables, and whose data sets are one folder each."""
ELSEWHERE = {
    "bag": "Pipe.of(bagz.Reader(path))",
    "datasets": "Pipe.of(datasets.load_from_disk(folder))",
    "litdata": "data = litdata.StreamingDataset(folder), and Pipe.of(range(len(data))).map(data.__getitem__)",
}
"""Formats that their own library reads, and how its reader goes into a pipe."""


def stored(paths: Paths, format: str | None, index: str | os.PathLike[str] | None, trust: bool) -> Source[Any]:
    """A source of all samples of these files."""
    names = [*FORMATS, LANCE]
    texts = as_texts(paths)
    for path in texts:
        if (other := _elsewhere(path, format)) is not None:
            raise BadOption(f"{path}: the format {other!r} is read by its own library; write {ELSEWHERE[other]}")
    if format is not None and format not in names:
        raise BadOption(f"format={format!r}: choose one of {', '.join(names)}{meant(format, names)}")
    if (folder := next(filter(is_lance, texts), None)) is not None and format in (None, LANCE):
        if len(texts) > 1:
            raise BadOption(f"{folder} is a whole data set: make a pipe of each, and put them together with concat()")
        return from_lance(folder)
    files = tuple(expand(texts, _data_files))
    if not files or format == LANCE:
        raise BadOption(f"no {'file' if format != LANCE else 'Lance data set'} is found at {paths!r}")
    for file in files:
        check_name(file)
    name = format if format is not None else _by_ending(files)
    if name == ArrayRecords.name and (remote := next(filter(is_remote, files), None)) is not None:
        raise BadOption(
            f"{shown(remote)} is not a local file, and the reader of ArrayRecord opens no other: fetch it first"
        )
    return StoredFiles(files, FORMATS[name].of(files, trust), None if index is None else os.fspath(index))


def _elsewhere(path: str, format: str | None) -> str | None:
    """The format of a path that is read by its own library, if it is one."""
    if format is not None:
        return format if format in ELSEWHERE else None
    if path.endswith((".bag", ".bagz")):
        return "bag"
    if any((Path(path) / name).is_file() for name in ("state.json", "dataset_dict.json")):
        return "datasets"
    try:
        return "litdata" if "chunks" in json.loads((Path(path) / "index.json").read_bytes()) else None
    except (OSError, ValueError, TypeError):  # (its own format says what is wrong with it)
        return None


def _data_files(path: str) -> Sequence[str]:
    """The files that a path stands for: of a folder of MDS shards, those that its index lists."""
    # (In a store, a folder is what ends with a slash: anything else is not asked for.)
    if (not is_remote(path) or path.endswith("/")) and (listed := mds.shards(path)) is not None:
        return listed
    return [name for name in expand(path) if not name.endswith((".index", ".index.lock", ".idx"))]


def _by_ending(files: tuple[str, ...]) -> str:
    plain = {shown(file).partition("?")[0].lower() for file in files}
    found = {name for file in plain for name, format in FORMATS.items() if file.endswith(format.endings)}
    if len(found) != 1:
        raise BadOption(
            f"the ending of {shown(files[0])} does not say its format: give format= one of {', '.join(FORMATS)}"
        )
    return found.pop()
