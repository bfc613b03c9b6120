"""PerFile: what ops that read files have in common.

Such an op takes `(path, stream)` samples, as `open_files` makes them. Every file is read by itself, so any worker can
read any file, and a resumed run reads only the file that was under way again. The stream is closed exactly once: at its
end, at an error, or when the reader stops before the end.
"""

import io
import os
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.errors import name_file
from headrace.op import Each, Flat
from headrace.sources.open import open_stream
from headrace.sources.stream import StreamWrapper

Out = TypeVar("Out")
Keywords = tuple[tuple[str, Any], ...]
"""Keyword arguments for another library, in a form that can be hashed."""


class PerFile(Flat[Any, Out]):
    """Any number of samples out of one file; write `read(path, stream)`."""

    __slots__ = ()
    coarse = True
    known: int = -1
    """How many samples all files have together, if the user gives it; else -1."""

    def read(self, path: str, stream: StreamWrapper) -> Iterator[Out]:
        raise NotImplementedError(f"{type(self).__name__} must define read()")

    def spread(self, sample: object) -> Iterator[Out]:
        path, stream = path_and_stream(sample)
        try:
            yield from self.read(path, stream)
        except Exception as error:
            name_file(error, path)
            raise
        finally:
            stream.close()

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.known if self.known >= 0 else None


class EachFile(Each[Any, Out]):
    """One sample out of one file."""

    __slots__ = ()
    known: int = -1
    """How many files there are, if the user gives it; else -1."""

    def length(self, inputs: tuple[int | None, ...]) -> int | None:
        return self.known if self.known >= 0 else inputs[0]


def path_and_stream(sample: object) -> tuple[str, Any]:
    """A sample as path and stream; a path alone is opened."""
    if isinstance(sample, str | os.PathLike):
        return os.fspath(sample), open_stream(sample)
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise TypeError(
            f"expected a path or a (path, stream) pair, not {type(sample).__name__}: put open_files() before this op"
        )
    path, stream = sample
    return path, StreamWrapper.of(stream, str(path))


def path_and_binary_stream(sample: object) -> tuple[str, StreamWrapper]:
    """A sample as path and binary stream; the error for any other sample says what is wrong with it."""
    if not isinstance(sample, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(sample)}")
    if len(sample) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(sample)}")
    path, stream = sample
    if not isinstance(path, str):
        raise TypeError(f"pathname within the tuple should have string type pathname, but it is type {type(path)}")
    inner = stream.file_obj if isinstance(stream, StreamWrapper) else stream
    if isinstance(inner, io.TextIOBase) or not (
        hasattr(inner, "read") or isinstance(inner, tarfile.TarFile | zipfile.ZipFile)
    ):
        raise TypeError(
            f"binary stream within the tuple should have IOBase or its subclasses as type, "
            f"but it is type {type(inner)}; open the file with mode 'rb'"
        )
    return path, StreamWrapper.of(stream, path)


@contextmanager
def unpacking(sample: object, called: str, errors: tuple[type[Exception], ...]) -> Iterator[tuple[str, StreamWrapper]]:
    """The path and stream of an archive. The stream closes after the last member that was taken out of it."""
    path, stream = path_and_binary_stream(sample)
    try:
        yield path, stream
    except errors as error:
        warnings.warn(
            f"Unable to extract files from corrupted {called} stream {path} due to: {error}, abort!", stacklevel=4
        )
        name_file(error, path)
        raise
    finally:
        stream.autoclose()


def archive_members(
    archive: StreamWrapper, files: Iterable[Any], path: str, opened: Callable[[Any, str], Any]
) -> Iterator[tuple[str, StreamWrapper]]:
    """Path and stream of these files of an archive, each as `opened(file, name)` gives it; a path is that of the
    archive and the name in it."""
    try:
        for info in files:
            name = member_path(path, info.filename)
            yield name, StreamWrapper(opened(info, name), archive, name)
    finally:
        archive.autoclose()


def member_path(archive: str, name: str) -> str:
    """The path of a member, below the path of its archive; an error if the name leads out of there."""
    inner = os.path.normpath(name.replace("\\", "/").lstrip("/"))
    if inner == ".." or inner.startswith("../") or os.path.isabs(inner):
        raise ValueError(
            f"{archive} holds a member called {name!r}, which lies outside of the archive's folder: refused"
        )
    return os.path.join(archive, inner)
