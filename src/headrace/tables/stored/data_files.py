"""Data files: which files of a folder hold rows, and what the names of their folders say about them.

In a folder, names that begin with `_` or `.` are left out, and all that is below them: `_SUCCESS`, `_metadata`, `.crc`
and the like are notes of the programs that wrote the folder. A file that is named itself is taken as it is.

A folder called `day=7` is a column `day` that is 7 in every row below it (as Hive, Spark and pyarrow write them). That
holds below a folder that was given; below patterns and for single files only with `hive=True`. Whole numbers are
int64, all else is text; `__HIVE_DEFAULT_PARTITION__` is a missing value.
"""

import os
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

from headrace.errors import BadOption
from headrace.sources.bytes import is_remote, local
from headrace.sources.listing import expand, warn_of_repeats

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Value = int | str | None
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
"""Numbers that are written in one way only, so that nothing of the name is lost."""
MISSING = "__HIVE_DEFAULT_PARTITION__"


class DataFile(NamedTuple):
    path: str
    folders: dict[str, str | None]
    """What the folders' names say."""


def data_files(paths: Paths, hive: bool | None = None) -> list[DataFile]:
    """The files that these names, patterns and folders mean."""
    if hive not in (None, True, False):
        raise BadOption(f"hive= is True, False or None, not {hive!r}")
    found: list[DataFile] = []
    meant: list[tuple[str, list[str]]] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else list(paths):
        text = os.fspath(path)
        folder = None if is_remote(text) or not os.path.isdir(local(text)) else local(text)
        meant.append((text, list(expand(path))))
        for name in meant[-1][1]:
            inside = os.path.relpath(name, folder) if folder is not None else name
            if folder is None or not any(map(_is_note, inside.split(os.sep))):
                found.append(DataFile(name, _folders(inside) if hive or (hive is None and folder) else {}))
    warn_of_repeats(meant)
    return found


def _is_note(part: str) -> bool:
    return part.startswith(("_", ".")) and "=" not in part


def _folders(path: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in re.split(r"[/\\]", path)[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found[unquote(key)] = None if value == MISSING else unquote(value)
    return found


def folder_columns(files: Iterable[DataFile]) -> tuple[list[dict[str, Value]], dict[str, str]]:
    """The values of the columns that stand in folders' names, for each file, and the Arrow types of these columns."""
    files = list(files)
    names = list(dict.fromkeys(name for file in files for name in file.folders))
    texts = {name: [f.folders[name] for f in files if f.folders.get(name) is not None] for name in names}
    whole = {name for name, values in texts.items() if values and all(WHOLE.fullmatch(v or "") for v in values)}
    found: list[dict[str, Value]] = [
        {n: v if v is None or n not in whole else int(v) for n, v in file.folders.items()} for file in files
    ]
    return found, {name: "int64" if name in whole else "string" for name in names}
