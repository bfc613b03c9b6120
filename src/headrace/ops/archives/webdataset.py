"""WebDataset: files that share a name up to its first dot are one sample.

`a/0001.jpg, a/0001.cls` become `{"__key__": "a/0001", ".jpg": ..., ".cls": ...}`. Only neighbours in an archive are
grouped. `LoadShards` does this for each archive by itself, so that any worker can read any archive. It treats names as
the webdataset package does: endings in small letters, names that begin with a dot and `__meta__` left out
(`key_and_ending`, which `Pipe.stored` uses too). Unlike that package it leaves out hidden names inside folders as well:
macOS's `d/._1.jpg` would separate `d/1.jpg` from `d/1.cls`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from headrace.context import skipper
from headrace.errors import check_whole
from headrace.op import Here, Op
from headrace.ops.archives.load_from_tar import entries
from headrace.ops.archives.tar_bytes import Passing, PlainFile, open_archive
from headrace.ops.files.per_file import PerFile
from headrace.sources.limit import LARGEST, check_limit
from headrace.sources.stream import StreamWrapper

Grouped = dict[str, Any]
_KEY = re.compile(r"^((?:.*/|)[^./]+)(\.[^/]*)$", re.DOTALL)
"""The name of a member of a shard: its key, up to the first dot of its last part, and its ending."""
_META = re.compile(r"__[^/]*__($|/)")
"""Names of members that describe the shard and belong to no sample."""
_NAME = re.compile(r"^(.*?)(\.[^/]*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WebDataset(Op[tuple[str, Any], Grouped]):
    """Neighbouring `(path, data)` samples with the same prefix, as one dict."""

    def flow(self, samples: Iterator[tuple[str, Any]], here: Here) -> Iterator[Grouped]:
        # Resumed inside a group, `key` is the key of it: the rest of the group is emitted as one sample, and dropped.
        key = here.note
        group: Grouped = {}
        while True:
            if key is not None:
                here.rest(key)
            try:
                sample = next(samples)
            except StopIteration:
                break
            found = split_name(sample[0])
            if found is None:
                continue
            prefix, suffix = found
            if prefix != key:
                if key is not None:
                    yield {"__key__": key, **group}
                key, group = prefix, {}
            add_file(group, prefix, suffix, sample[1])
        if key is not None:
            yield {"__key__": key, **group}


@dataclass(frozen=True, slots=True)
class LoadShards(PerFile[Grouped]):
    """The samples of each tar archive, with the content of their files as bytes."""

    max_bytes: int = LARGEST

    def __post_init__(self) -> None:
        check_whole("max_bytes", self.max_bytes, 1)

    def read(self, path: str, stream: StreamWrapper) -> Iterator[Grouped]:
        skip = skipper()
        archive = open_archive(stream, path, "r:*", self.max_bytes)
        for key, files in groupby(_files(archive, stream), itemgetter(0)):
            group: Grouped = {"__key__": key}
            size = 0
            for _, ending, content in files:
                size += len(content)
                check_limit(size, archive.limit, f"the sample {key!r} of {path}")
                if ending in group:
                    skip(two_files(key, ending))
                    break
                group[ending] = content
            else:
                yield group


def _files(archive: PlainFile | Passing, stream: StreamWrapper) -> Iterator[tuple[str, str, bytes]]:
    """Key, ending and content of each file that belongs to a sample."""
    for name, inner in entries(archive, stream):
        with inner:
            if (found := key_and_ending(name)) is not None:
                yield *found, inner.read()


def key_and_ending(name: str) -> tuple[str, str] | None:
    """The key and the ending of a member's name; None if it belongs to no sample."""
    found = _KEY.match(name)
    return None if found is None or _META.match(name) else (found.group(1), found.group(2).lower())


def split_name(path: str) -> tuple[str, str] | None:
    """A path cut at the first dot of its last part; None without a dot."""
    found = _NAME.match(path.replace("\\", "/"))
    return None if found is None else (found.group(1), found.group(2))


def add_file(group: Grouped, prefix: str, suffix: str, data: object) -> None:
    if suffix in group:
        raise two_files(prefix, suffix)
    group[suffix] = data


def two_files(key: str, ending: str) -> ValueError:
    """The error for a sample that has two files with the same ending."""
    return ValueError(f"the sample {key!r} has two files that end in {ending!r}")
