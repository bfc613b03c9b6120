"""Stores: objects of S3, Google Cloud Storage and Azure, by the package obstore (extra `stores`).

Credentials, regions and endpoints are those that the environment has, as the store's own tools name them
(AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME ...), and
the roles of machines and containers. Where boto3 is installed it finds those of S3: profiles and single sign-on too.

obstore has threads that do not come along when a process is forked: a forked child of a process that has made a request
would wait for ever. Such a child reads through fsspec, or raises where that has no package for the store.
"""

import importlib
import importlib.util
import os
import re
from datetime import timedelta
from functools import lru_cache
from typing import Any

from headrace.errors import BadPipe
from headrace.secrets import cleaned, shown
from headrace.sources.bytes import FileState
from headrace.sources.extra import import_extra
from headrace.sources.remote import Part
from headrace.sources.retry import FileChanged

KINDS = {
    **dict.fromkeys(("s3", "s3a"), ("S3Store", "s3", "s3fs")),
    **dict.fromkeys(("gs", "gcs"), ("GCSStore", "gcs", "gcsfs")),
    "az": ("AzureStore", "azure", "adlfs"),
}
"""Protocol -> the class of obstore, and the extra and the package by which fsspec reads the same."""
CONNECT, REQUEST = timedelta(seconds=10), timedelta(seconds=60)
"""How long a connection and a whole request may take before they count as failed."""
STATUS = re.compile(r"\b([1-5]\d\d) (?=[A-Z])")
CODE = re.compile(r"<Code>(\w+)</Code>")
METADATA = re.compile(r"169\.254\.(169\.254|170\.\d+)|metadata\.google\.internal")
"""Where machines in a cloud ask for credentials when nothing else has any."""
WORDS = 200
"""Letters of a client's message that are passed on."""

_used = _lost = False


def _forked() -> None:
    global _lost
    _lost = _lost or _used


if hasattr(os, "register_at_fork"):  # (a system that forks)
    os.register_at_fork(after_in_child=_forked)


class StoreError(OSError):
    """A store has answered with an error, or not at all. `status` is that of HTTP, if there was an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def protocol_of(url: str) -> str:
    return url.partition("://")[0]


def knows(url: str) -> bool:
    """Whether obstore reads this URL here."""
    found = KINDS.get(protocol_of(url)) if "::" not in url else None
    if found is None or importlib.util.find_spec("obstore") is None:
        return False
    _, extra, package = found
    if _lost and importlib.util.find_spec(package) is None:
        raise BadPipe(
            f"a forked worker cannot read {shown(url)} through obstore, which was used before the fork and lost its "
            f"threads in it; use start_method='server' or 'spawn', or kind='thread', or pip install 'headrace[{extra}]'"
        )
    return not _lost


@lru_cache(maxsize=64)
def store_of(protocol: str, bucket: str) -> Any:
    """The client of a bucket. It does not retry: one layer does, and counts (`retry`)."""
    kinds = import_extra("stores", "obstore.store")
    options: dict[str, Any] = {
        "client_options": {"timeout": REQUEST, "connect_timeout": CONNECT, "allow_http": True},
        "retry_config": {"max_retries": 0, "retry_timeout": REQUEST},
    }
    name = KINDS[protocol][0]
    if name == "S3Store" and (found := _boto3_credentials()) is not None:
        options["credential_provider"] = found
    return getattr(kinds, name)(bucket, **options)


def _boto3_credentials() -> Any:
    """What boto3 has found, if it is installed and has found anything."""
    if importlib.util.find_spec("boto3") is None:
        return None
    boto3 = importlib.import_module("boto3")
    session = boto3.Session()
    if session.get_credentials() is None:
        return None
    return import_extra("stores", "obstore.auth.boto3").Boto3CredentialProvider(session)


def place_of(url: str) -> tuple[str, str, str]:
    """Protocol, bucket and key."""
    protocol, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return protocol, bucket, key


class StoreOrigin:
    """The object behind a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._protocol, self._bucket, self._key = place_of(url)
        self._process = os.getpid()

    @property
    def _store(self) -> Any:
        return store_of(self._protocol, self._bucket)

    def fetch(self, start: int, stop: int) -> Part:
        global _used
        if _lost and os.getpid() != self._process:
            raise BadPipe(f"{shown(self._url)} was opened before this process was forked: open it in the worker")
        _used = True
        obstore = import_extra("stores", "obstore")
        try:
            found = obstore.get(self._store, self._key, options={"range": (start, stop)})
            meta = found.meta
            state = FileState(meta["size"], 0, 0, tag=meta["e_tag"] or str(meta["last_modified"]))
            if found.range[0] != start:
                raise ConnectionError(f"{shown(self._url)}: asked for byte {start}, got bytes {found.range}")
            return Part(memoryview(found.bytes()), state)
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            if start == 0 and (state_of_empty := self._empty(error)) is not None:
                return Part(b"", state_of_empty)
            raise self._named(error) from None

    def _empty(self, error: Exception) -> FileState | None:
        """The state of an object without bytes: no range of it can be asked for."""
        if "416" not in str(error) and "Range" not in str(error):
            return None
        obstore = import_extra("stores", "obstore")
        try:
            meta = obstore.head(self._store, self._key)
        except (obstore.exceptions.BaseError, FileNotFoundError) as failed:
            raise self._named(failed) from None
        return FileState(0, 0, 0, tag=meta["e_tag"] or str(meta["last_modified"])) if meta["size"] == 0 else None

    def _named(self, error: Exception) -> Exception:
        return named(error, self._url)


def named(error: Exception, url: str) -> Exception:
    """An error of obstore as one of Python's, with the object's name and without what its text may hold else."""
    text, kind, name = str(error), type(error).__name__, shown(url)
    if kind in ("NotFoundError", "FileNotFoundError"):
        return FileNotFoundError(f"{name} does not exist")
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(
            f"{name}: the store refuses access{_code(text)}; `headrace doctor {name}` says which credentials are found"
        )
    if METADATA.search(text):
        return PermissionError(
            f"{name}: no credentials were found (neither in the environment nor as a role of this machine); set those "
            "of the store, or AWS_SKIP_SIGNATURE=true, GOOGLE_SKIP_SIGNATURE=true for a public bucket"
        )
    if kind == "PreconditionError":
        return FileChanged(f"{name} changed while it was read")
    status = STATUS.search(text)
    # (A body in XML may hold the names of keys, and is long.)
    words = cleaned(text.partition("<?xml")[0].partition("\n\nDebug")[0].strip())[:WORDS]
    return StoreError(f"{name}: {words}{_code(text)}", int(status[1]) if status else None)


def _code(text: str) -> str:
    found = CODE.search(text)
    return f" ({found[1]})" if found else ""


def names(url: str) -> list[str]:
    """The URLs of all objects whose own begins like this."""
    global _used
    _used = True
    obstore = import_extra("stores", "obstore")
    protocol, bucket, key = place_of(url)
    folder, _, begin = key.rpartition("/")
    try:
        pages = obstore.list(store_of(protocol, bucket), folder or None)
        found = [item["path"] for page in pages for item in page]
    except (obstore.exceptions.BaseError, FileNotFoundError) as error:
        raise named(error, url) from None
    return sorted(f"{protocol}://{bucket}/{name}" for name in found if name.startswith(key) or not begin)
