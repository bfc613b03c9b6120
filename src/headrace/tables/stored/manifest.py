"""Manifest: what the footers of many files say, kept in one file that all ranks of a job share.

Looking into ten thousand files takes ten thousand opens, on every rank and at every start. With a manifest one rank
looks, the others wait for it and open the manifest alone, and so does everybody at the next start. A file whose size or
time of change is another than the manifest says is looked into again; no other is opened.

Where ranks share no file system, the store of torch.distributed takes the place of the file: the first rank that asks
looks into the files and puts what they say into the store, the others take it from there.
"""

import base64
import json
import os
from hashlib import blake2b
from typing import Any, Protocol

from headrace.errors import BadOption
from headrace.observe.meter import planned
from headrace.sources import lock
from headrace.sources.atomic import atomic_write
from headrace.sources.open import is_remote, local, open_path
from headrace.tables.packages import pa
from headrace.tables.stored.footers import Look, State, look_at

VERSION = 1
PATIENCE = 24 * 3600.0
"""Seconds that a rank waits for another one that looks into the files."""
PIECE = 4 << 20
"""Bytes of one value in a store: torch's refuses larger ones than 8 MB."""


class ManifestStore(Protocol):
    """What is asked of a store of torch.distributed. `get` waits until there is a value."""

    def add(self, key: str, amount: int, /) -> int: ...
    def set(self, key: str, value: Any, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...


Manifest = str | os.PathLike[str] | ManifestStore


def looks(format: str, paths: list[str], manifest: Manifest | None) -> list[Look]:
    """What every file says of itself, from the manifest as far as it knows; what it did not know it knows then."""
    if manifest is None:
        return look_at(format, paths)
    if not isinstance(manifest, str | os.PathLike):
        return _through_store(format, paths, manifest)
    target = os.fspath(manifest)
    if any(map(is_remote, [target, *paths])):
        raise BadOption("manifest= is kept for files of this machine or of a file system that it has mounted")
    states = [_state(path) for path in paths]
    known = _load(target, format)
    if not _missing(paths, states, known):
        return [known[path] for path in paths]
    with lock.hold(f"{target}.lock", PATIENCE):
        known = _load(target, format)  # another rank may have made it meanwhile
        missing = _missing(paths, states, known)
        if missing:
            now = dict(zip(paths, states, strict=True))
            for path, look in zip(missing, look_at(format, missing), strict=True):
                known[path] = look._replace(state=now[path])
            known = {path: known[path] for path in paths}
            with atomic_write(target, "wb") as stream:
                stream.write(_packed(format, known))
    return [known[path] for path in paths]


def _through_store(format: str, paths: list[str], store: ManifestStore) -> list[Look]:
    """One rank looks, whichever comes first; an error of its reaches all."""
    if not all(callable(getattr(store, name, None)) for name in ("add", "set", "get")):
        raise BadOption(f"manifest= is the name of a file or a store of torch.distributed, not {store!r}")
    # (Not by times of change: the files may be copies, one on each machine.)
    sizes = [0 if is_remote(path) else _state(path)[0] for path in paths]
    names = [os.path.basename(path) for path in paths]
    key = f"headrace/manifest/{_digest(repr((VERSION, format, names, sizes)).encode()).decode()}"
    if store.add(f"{key}/asked", 1) > 1:
        count = int(store.get(f"{key}/pieces"))
        if count < 0:
            raise BadOption(f"another rank could not look into the files: {store.get(f'{key}/error').decode()}")
        known = _unpacked(b"".join(store.get(f"{key}/{piece}") for piece in range(count)), format, "what the store has")
        return list(known.values())
    try:
        found = look_at(format, paths)
        known = {str(n): look._replace(state=(sizes[n], 0)) for n, look in enumerate(found)}
        data = _packed(format, known)
    except BaseException as error:
        store.set(f"{key}/error", f"{type(error).__name__}: {error}")
        store.set(f"{key}/pieces", "-1")
        raise
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    for number, piece in enumerate(pieces):
        store.set(f"{key}/{number}", piece)
    store.set(f"{key}/pieces", str(len(pieces)))
    return found


def _state(path: str) -> State:
    about = os.stat(local(path))
    return about.st_size, about.st_mtime_ns


def _missing(paths: list[str], states: list[State], known: dict[str, Look]) -> list[str]:
    return [p for p, state in zip(paths, states, strict=True) if p not in known or known[p].state != state]


def _packed(format: str, known: dict[str, Look]) -> bytes:
    schemas: dict[bytes, int] = {}
    rows = [
        [
            path, *look.state,
            schemas.setdefault(look.schema.serialize().to_pybytes(), len(schemas)),
            look.rows, sorted(look.masked), look.sizes, look.weight,
        ]
        for path, look in known.items()
    ]  # fmt: skip
    said = {
        "version": VERSION, "format": format, "files": rows,
        "schemas": [base64.b64encode(schema).decode() for schema in schemas],
    }  # fmt: skip
    text = json.dumps(said).encode()
    return _digest(text) + b"\n" + text


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=8).hexdigest().encode()


def _load(target: str, format: str) -> dict[str, Look]:
    """What a manifest says; nothing if there is none."""
    try:
        with open_path(target) as stream:
            data = stream.read()
    except FileNotFoundError:
        return {}
    planned.note()
    return _unpacked(data, format, target)


def _unpacked(data: bytes, format: str, target: str) -> dict[str, Look]:
    digest, _, text = data.partition(b"\n")
    try:
        if digest != _digest(text):
            raise ValueError("its check sum differs")
        said: Any = json.loads(text)
        if (said["version"], said["format"]) != (VERSION, format):
            raise ValueError(f"it is one of version {said['version']} for {said['format']}")
        schemas = [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) for schema in said["schemas"]]
        return {
            path: Look(schemas[schema], rows, set(masked), sizes, weight, (size, changed))
            for path, size, changed, schema, rows, masked, sizes, weight in said["files"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BadOption(
            f"{target} is not a manifest of {format} files ({error}): remove it to have it made anew"
        ) from None
