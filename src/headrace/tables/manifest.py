"""Manifest: what the footers of many files say, kept in one file that all ranks of a job share.

Looking into ten thousand files takes ten thousand opens, on every rank and at every start. With a manifest one rank
looks, the others wait for it and open the manifest alone, and so does everybody at the next start. A file whose size or
time of change is another than the manifest says is looked into again; no other is opened.
"""

import base64
import json
import os
from hashlib import blake2b
from typing import Any, NamedTuple

from headrace.errors import BadOption
from headrace.observe.meter import planned
from headrace.sources import lock
from headrace.sources.open import is_remote, local, open_path
from headrace.sources.whole import whole
from headrace.tables.footers import Look, look_at
from headrace.tables.packages import package

VERSION = 1
PATIENCE = 24 * 3600.0
"""Seconds that a rank waits for another one that looks into the files."""
State = tuple[int, int]
"""Size, and time of the last change in nanoseconds."""


class LookedAt(NamedTuple):
    """A file as it was when it was looked into."""

    state: State
    look: Look


def looks(format: str, paths: list[str], manifest: str | os.PathLike[str] | None) -> list[Look]:
    """What every file says of itself, from the manifest as far as it knows; what it did not know it knows then."""
    if manifest is None:
        return look_at(format, paths)
    target = os.fspath(manifest)
    if any(map(is_remote, [target, *paths])):
        raise BadOption("manifest= is kept for files of this machine or of a file system that it has mounted")
    states = [_state(path) for path in paths]
    known = _load(target, format)
    if not _missing(paths, states, known):
        return [known[path].look for path in paths]
    with lock.hold(f"{target}.lock", PATIENCE):
        known = _load(target, format)  # another rank may have made it meanwhile
        missing = _missing(paths, states, known)
        if missing:
            found = look_at(format, missing)
            now = dict(zip(paths, states, strict=True))
            made = {path: LookedAt(now[path], look) for path, look in zip(missing, found, strict=True)}
            known = {path: made.get(path) or known[path] for path in paths}
            _write(target, format, known)
    return [known[path].look for path in paths]


def _state(path: str) -> State:
    about = os.stat(local(path))
    return about.st_size, about.st_mtime_ns


def _missing(paths: list[str], states: list[State], known: dict[str, LookedAt]) -> list[str]:
    return [
        path
        for path, state in zip(paths, states, strict=True)
        if (seen := known.get(path)) is None or seen.state != state
    ]


def _write(target: str, format: str, known: dict[str, LookedAt]) -> None:
    schemas: dict[bytes, int] = {}
    rows = [
        [
            path, *seen.state,
            schemas.setdefault(seen.look.schema.serialize().to_pybytes(), len(schemas)),
            seen.look.rows, sorted(seen.look.masked), seen.look.sizes, seen.look.weight,
        ]
        for path, seen in known.items()
    ]  # fmt: skip
    said = {
        "version": VERSION, "format": format, "files": rows,
        "schemas": [base64.b64encode(schema).decode() for schema in schemas],
    }  # fmt: skip
    text = json.dumps(said).encode()
    with whole(target, "wb") as stream:
        stream.write(_digest(text) + b"\n" + text)


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=8).hexdigest().encode()


def _load(target: str, format: str) -> dict[str, LookedAt]:
    """What a manifest says; nothing if there is none."""
    try:
        with open_path(target) as stream:
            digest, _, text = stream.read().partition(b"\n")
    except FileNotFoundError:
        return {}
    planned.note()
    pa = package("pyarrow")
    try:
        if digest != _digest(text):
            raise ValueError("its check sum differs")
        said: Any = json.loads(text)
        if (said["version"], said["format"]) != (VERSION, format):
            raise ValueError(f"it is one of version {said['version']} for {said['format']}")
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) for schema in said["schemas"]]
        return {
            path: LookedAt((size, changed), Look(schemas[schema], rows, set(masked), sizes, weight))
            for path, size, changed, schema, rows, masked, sizes, weight in said["files"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BadOption(
            f"{target} is not a manifest of {format} files ({error}): remove it to have it made anew"
        ) from None
