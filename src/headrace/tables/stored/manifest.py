"""Manifest: what the footers of many files say, kept in one file that all ranks of a job share.

Reading the footers of ten thousand files takes ten thousand opens, on every rank and at every start. With a manifest
one rank reads them; the others wait for it and open the manifest alone, and so do all ranks at the next start. A file
whose size or time of change is not what the manifest says is read again; no other file is opened.

Where ranks share no file system, the store of torch.distributed takes the place of the file: the first rank that asks
reads the footers and puts what they say into the store, the others take it from there.
"""

import base64
import json
import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol

from headrace.errors import BadOption
from headrace.observe.meter import planned
from headrace.sources import lock
from headrace.sources.atomic import atomic_write
from headrace.sources.bytes import FileState, is_remote
from headrace.sources.open import open_path
from headrace.tables.packages import pa
from headrace.tables.stored.footers import FileSummary, read_summaries

VERSION = 1
PATIENCE = 24 * 3600.0
"""Seconds that a rank waits for the rank that reads the footers."""
PIECE = 4 << 20
"""Bytes of one value in a store: torch's refuses larger ones than 8 MB."""


class ManifestStore(Protocol):
    """What is asked of a store of torch.distributed. `get` waits until there is a value."""

    def add(self, key: str, amount: int, /) -> int: ...
    def set(self, key: str, value: Any, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...


Manifest = str | os.PathLike[str] | ManifestStore


def file_summaries(
    format: str, paths: list[str], states: Sequence[FileState], manifest: Manifest | None
) -> list[FileSummary]:
    """What every file says of itself, from the manifest as far as it knows; what it did not know is added to it."""
    files = dict(zip(paths, states, strict=True))
    if manifest is None:
        found = dict(zip(files, read_summaries(format, files), strict=True))
        return [found[path] for path in paths]  # (a file may be named more than once)
    if not isinstance(manifest, str | os.PathLike):
        return _through_store(format, paths, states, manifest)
    target = os.fspath(manifest)
    if any(map(is_remote, [target, *paths])):
        raise BadOption("manifest= is kept for files of this machine or of a file system that it has mounted")
    now = {path: state[:2] for path, state in files.items()}
    known = _load(target, format)
    if _missing(now, known):
        with lock.hold(f"{target}.lock", PATIENCE):
            known = _load(target, format)  # another rank may have made it meanwhile
            if missing := _missing(now, known):
                for path, summary in zip(
                    missing, read_summaries(format, {path: files[path] for path in missing}), strict=True
                ):
                    known[path] = summary._replace(state=now[path])
                known = {path: known[path] for path in paths}
                with atomic_write(target, "wb") as stream:
                    stream.write(_packed(format, known))
    return [known[path] for path in paths]


def _missing(now: dict[str, tuple[int, int]], known: dict[str, FileSummary]) -> list[str]:
    """The files that the manifest does not know as they are now."""
    return [path for path, state in now.items() if path not in known or known[path].state != state]


def _through_store(
    format: str, paths: list[str], states: Sequence[FileState], store: ManifestStore
) -> list[FileSummary]:
    """The rank that comes first reads the footers; an error that it meets reaches all ranks."""
    if not all(callable(getattr(store, name, None)) for name in ("add", "set", "get")):
        raise BadOption(f"manifest= is the name of a file or a store of torch.distributed, not {store!r}")
    # (Not by times of change: the files may be copies, one on each machine.)
    sizes = [state.size for state in states]
    names = [os.path.basename(path) for path in paths]
    key = f"headrace/manifest/{_digest(repr((VERSION, format, names, sizes)).encode()).decode()}"
    if store.add(f"{key}/asked", 1) > 1:
        count = int(store.get(f"{key}/pieces"))
        if count < 0:
            raise BadOption(f"another rank could not look into the files: {store.get(f'{key}/error').decode()}")
        known = _unpacked(b"".join(store.get(f"{key}/{piece}") for piece in range(count)), format, "what the store has")
        return list(known.values())
    try:
        found = file_summaries(format, paths, states, None)
        data = _packed(format, {str(n): f._replace(state=(sizes[n], 0)) for n, f in enumerate(found)})
    except BaseException as error:
        store.set(f"{key}/error", f"{type(error).__name__}: {error}")
        store.set(f"{key}/pieces", "-1")
        raise
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    for number, piece in enumerate(pieces):
        store.set(f"{key}/{number}", piece)
    store.set(f"{key}/pieces", str(len(pieces)))
    return found


def _packed(format: str, known: dict[str, FileSummary]) -> bytes:
    schemas: dict[bytes, int] = {}
    rows = [
        [
            path, *summary.state,
            schemas.setdefault(summary.schema.serialize().to_pybytes(), len(schemas)),
            summary.rows, sorted(summary.masked), summary.sizes, summary.weight,
        ]
        for path, summary in known.items()
    ]  # fmt: skip
    said = {
        "version": VERSION, "format": format, "files": rows,
        "schemas": [base64.b64encode(schema).decode() for schema in schemas],
    }  # fmt: skip
    text = json.dumps(said).encode()
    return _digest(text) + b"\n" + text


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=8).hexdigest().encode()


def _load(target: str, format: str) -> dict[str, FileSummary]:
    """What a manifest says; nothing if there is none."""
    try:
        with open_path(target) as stream:
            data = stream.read()
    except FileNotFoundError:
        return {}
    planned.note()
    return _unpacked(data, format, target)


def _unpacked(data: bytes, format: str, target: str) -> dict[str, FileSummary]:
    digest, _, text = data.partition(b"\n")
    try:
        if digest != _digest(text):
            raise ValueError("its check sum differs")
        said: Any = json.loads(text)
        if (said["version"], said["format"]) != (VERSION, format):
            raise ValueError(f"it is one of version {said['version']} for {said['format']}")
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) for schema in said["schemas"]]
        return {
            path: FileSummary(schemas[schema], rows, set(masked), sizes, weight, (size, changed))
            for path, size, changed, schema, rows, masked, sizes, weight in said["files"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BadOption(
            f"{target} is not a manifest of {format} files ({error}): remove it to have it made anew"
        ) from None
