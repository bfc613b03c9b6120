"""Read from HTTP (extra `remote`), from Google Drive (extra `gdrive`), or from either of them by the URL's host."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from headrace.op import Each, Flat, as_input
from headrace.ops.files.per_file import EachFile, Keywords
from headrace.sources.extra import require
from headrace.sources.gdrive import download
from headrace.sources.http import open_http
from headrace.sources.stream import StreamWrapper, reopenable

GDRIVE = ("drive.google.com", "docs.google.com", "drive.usercontent.google.com")


@dataclass(frozen=True, slots=True)
class ReadFromHttp(EachFile[tuple[str, StreamWrapper]]):
    """Each URL as `(url, stream)`; `kwargs` are those of `requests.get`. A broken read goes on at the byte reached."""

    timeout: float | None = None
    kwargs: Keywords = ()

    def __post_init__(self) -> None:
        require("remote", "requests")

    def apply(self, sample: str) -> tuple[str, StreamWrapper]:
        return sample, reopenable(partial(open_http, sample, self.timeout, **dict(self.kwargs)), sample)


@dataclass(frozen=True, slots=True)
class ReadFromGdrive(EachFile[tuple[str, StreamWrapper]]):
    """Each link of Google Drive as `(file name, stream)`; `kwargs` are those of `gdown.download`."""

    timeout: float | None = None
    kwargs: Keywords = ()

    def apply(self, sample: str) -> tuple[str, StreamWrapper]:
        name, file = download(sample, self.timeout, dict(self.kwargs))
        return name, StreamWrapper(file, name=name)


@dataclass(frozen=True, slots=True)
class ReadFromRemote(ReadFromHttp):
    """Each URL by its host: Google Drive, or plain HTTP, which takes the `kwargs`."""

    def apply(self, sample: str) -> tuple[str, StreamWrapper]:
        if urlsplit(sample).hostname in GDRIVE:
            return ReadFromGdrive(self.timeout).apply(sample)
        return ReadFromHttp.apply(self, sample)


@dataclass(frozen=True, slots=True)
class Forgiving(Flat[Any, Any]):
    """The output of `op` for each sample; samples on which it fails are left out, with a warning."""

    op: Each[Any, Any]
    chooses = True
    length = as_input

    def spread(self, sample: object) -> Iterator[Any]:
        try:
            made = self.op.apply(sample)
        except Exception as error:
            warnings.warn(f"{error}, skipping...", stacklevel=2)
            return
        yield made

    def describe(self) -> str:
        return f"{self.op.describe()[:-1]}, skip_on_error=True)"

    def identity(self) -> tuple[Any, ...]:
        return ("forgiving", *self.op.identity())
