"""Listing: which files there are, in an order that does not depend on the file system.

`walk` finds the files of one folder while it is iterated; `expand` turns names, patterns and folders into a list.
"""

import glob
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import lru_cache
from typing import Any

from headrace.secrets import shown
from headrace.sources import stores
from headrace.sources.by_fsspec import filesystem
from headrace.sources.bytes import is_remote, local

Masks = str | Sequence[str]
RANGE = re.compile(r"\{\d+\.\.\d+\}")
ANY_DEPTH = re.compile(r"(?<![^/])\*\*(?:/+|$)")
"""`**` as a whole part of a path."""
MAGIC = re.compile(r"[*?\[]")
log = logging.getLogger("headrace")


def matches(name: str, masks: Masks) -> bool:
    """Whether a name fits one of the patterns; no pattern fits every name."""
    if not masks:
        return True
    return any(fnmatch(name, mask) for mask in ((masks,) if isinstance(masks, str) else masks))


def walk(
    root: str,
    masks: Masks = "",
    recursive: bool = False,
    abspath: bool = False,
    non_deterministic: bool = False,
) -> Iterator[str]:
    """The files in a folder, sorted folder by folder; a root that is a file is its own only file.

    Links to folders are not followed, because they may lead to files that are listed already, or back: the log says so.
    """
    if os.path.isfile(root):
        if matches(os.path.basename(root), masks):
            yield os.path.abspath(root) if abspath else root
        return
    for folder, folders, files in os.walk(root, onerror=_refuse):
        if not non_deterministic:
            files.sort()
            folders.sort()
        shown = os.path.abspath(folder) if abspath else folder
        for name in files:
            if matches(name, masks):
                yield os.path.join(shown, name)
        if not recursive:
            return
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                _tell_of_link(os.path.abspath(os.path.join(folder, name)))


@lru_cache(maxsize=1024)
def _tell_of_link(folder: str) -> None:
    """Say, once, that the files of a folder are left out."""
    log.warning("%s is a link to a folder, which is not followed: to read its files too, name it as well", folder)


def _refuse(error: OSError) -> None:
    warnings.warn(f"{error.filename} : {error.strerror}", stacklevel=2)
    raise error


Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def as_texts(paths: Paths) -> list[str]:
    """One path or many, as a list of texts."""
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def matching_files(text: str) -> Sequence[str]:
    """Every file that a name, a pattern (`*`, `?`, `[]`, `**`, `{000..009}`) or a folder means, patterns sorted."""
    found: list[str] = []
    for name in expand_ranges(text) if RANGE.search(text) and not os.path.exists(text) else [text]:
        found += _remote_names(name) if is_remote(name) else _local_names(local(name))
    return found


def expand(paths: Paths, files: Callable[[str], Sequence[str]] = matching_files) -> list[str]:
    """Every file that these names, patterns and folders mean; `files(text)` are those of one of them."""
    found = [(text, files(text)) for text in as_texts(paths)]
    warn_of_repeats(found)
    return [name for _, names in found for name in names]


def warn_of_repeats(meant: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Log a warning if two different texts mean the same file: it is read twice, and nothing else would show it.

    No warning for the same text given twice: that is a way to ask for the file twice.
    """
    by: dict[str, str] = {}
    repeated: dict[str, tuple[str, str]] = {}
    for text, names in meant if len(meant) > 1 else ():
        for name in names:
            file = name if is_remote(name) else os.path.abspath(name)
            if (other := by.setdefault(file, text)) != text:
                repeated.setdefault(file, (other, text))
    if repeated:
        (file, texts), more = next(iter(repeated.items())), len(repeated) - 1
        who = f"{file} is" if not more else f"{file} and {more} other file{'s'[: more > 1]} are"
        log.warning("%s meant more than once, by %r and by %r: read each time, so samples come twice", who, *texts)


def _local_names(name: str) -> list[str]:
    if os.path.isdir(name):
        return list(walk(name, recursive=True))
    if os.path.exists(name):
        return [name]
    names = sorted(_fitting(name)) if glob.has_magic(name) else []
    if not names:
        where = "" if os.path.isabs(name) else f" in {os.getcwd()!r}"
        what = "no file matches the pattern" if glob.has_magic(name) else "there is no file or folder"
        raise FileNotFoundError(f"{what} {name!r}{where}")
    return names


def _fitting(pattern: str) -> set[str]:
    """What fits a pattern and is no folder. (A link to nothing is an error of whoever opens it, not left out.)"""
    wild = ANY_DEPTH.search(pattern)
    if wild is None:
        return {name for name in glob.glob(pattern) if not os.path.isdir(name)}
    before, behind = pattern[: wild.start()], pattern[wild.end() :]
    if wild[0] == "**":  # the end of the pattern
        behind = "*"
    begins = glob.glob(before) if glob.has_magic(before) else [before]
    folders = (folder for begin in begins for folder in _below(begin, ()))
    return {name for folder in folders for name in _fitting(glob.escape(folder) + behind)}


def _below(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    """A folder and all below it but hidden ones. Links are followed, except to where they come from: Python's own `**`
    goes round such links, and finds the same files many times."""
    real = os.path.realpath(folder)
    if real in above or not os.path.isdir(real):
        return
    yield folder
    with suppress(PermissionError), os.scandir(real) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
                yield from _below(f"{folder}{entry.name}/", (*above, real))


def _remote_names(name: str) -> list[str]:
    web = name.startswith("http")
    if not glob.has_magic(name.partition("?")[0] if web else name) and (web or not name.endswith("/")):
        return [name]
    if stores.knows(name):
        fits = re.compile(_expression(name if not name.endswith("/") else f"{glob.escape(name)}**"), re.DOTALL)
        begin = name[: found.start()] if (found := MAGIC.search(name)) else name
        names = [found for found in stores.names(begin) if fits.fullmatch(found)]
    else:
        files, path = filesystem(name)
        names = sorted(with_protocol(files, found) for found in files.glob(f"{path}/**" if name[-1] == "/" else path))
    if not names:
        raise FileNotFoundError(f"no file fits {shown(name)!r}")
    return names


def _expression(pattern: str) -> str:
    """A pattern of names as a regular expression: `*` and `?` do not go over a `/`, `**` does."""
    found = []
    for part in re.split(r"(\*\*/?|\*|\?|\[[^]]*\])", pattern):
        plain = {"*": "[^/]*", "?": "[^/]", "**": ".*", "**/": "(?:.*/)?"}.get(part)
        choice = f"[^{part[2:]}" if part.startswith("[!") else part
        found.append(plain if plain is not None else choice if part.startswith("[") else re.escape(part))
    return "".join(found)


def with_protocol(files: Any, path: str) -> str:
    """A path of an fsspec file system with its protocol, unless it carries one already."""
    return path if "://" in path else str(files.unstrip_protocol(path))


def expand_ranges(spec: str) -> list[str]:
    """`x-{000..002}.tar` as three names; of several ranges, all combinations."""
    found = re.search(r"\{([^{}]*)\}", spec)
    if found is None:
        return [spec]
    front, inner, back = spec[: found.start()], found.group(1), spec[found.end() :]
    low, dots, high = inner.partition("..")
    if not dots or not low.isdecimal() or not high.isdecimal():
        raise ValueError(f"shard_expand: bad range in in shard spec {spec}.")
    if len(low) > len(high):
        raise ValueError(f"shard_expand: in {spec!r}, low bound must be shorter than high bound")
    if len(low) < len(high) and low.startswith("0") and low != "0":
        raise ValueError(f"shard_expand: in {spec!r}, low bound must not start with 0 if low bound is shorter")
    if int(low) > int(high):
        raise ValueError(f"shard_expand: bad range in in shard spec {spec}.")
    width = len(low) if len(low) == len(high) else 0
    return [name for i in range(int(low), int(high) + 1) for name in expand_ranges(f"{front}{i:0{width}d}{back}")]


def list_fsspec(root: str, masks: Masks = "", **options: object) -> Iterator[str]:
    """The files directly in a folder of any file system, sorted; a root that is a file is its own only file."""
    files, path = filesystem(root, **options)
    if files.isfile(path):
        yield root
        return
    for found in sorted(files.ls(path, detail=False)):
        if matches(found, masks):
            yield with_protocol(files, found) if is_remote(root) or "://" in root else found
