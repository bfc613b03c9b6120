"""Tar archives that say when they are damaged.

The standard library ends an archive at the first header that it cannot read, as if nothing were missing. Here:

    a header that is damaged, cut, or made of zeros while members follow it     tarfile.ReadError, with file and offset
    the file ends behind a member, where two blocks of zeros should stand       a warning: members may be lost
    another archive follows behind the end of this one                          a warning: it is not read
    the check sum of what it is compressed with differs                         tarfile.ReadError, at the end
"""

import bz2
import gzip
import lzma
import tarfile
import warnings
import zlib
from collections.abc import Iterator
from typing import Any


class UncleanEnd(tarfile.ReadError):
    """The archive ends here, but not as it should: a reason for a warning."""


class TarHeader(tarfile.TarInfo):
    """A header; one that cannot be read is an error, wherever it stands."""

    @classmethod
    def fromtarfile(cls, archive: Any) -> Any:
        at = archive.fileobj.tell()
        try:
            return super().fromtarfile(archive)
        except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
            if at == 0 or archive.offset != at:  # nothing at all, or nothing behind a header that announces another
                raise
            raise UncleanEnd("has no end-of-archive: it may have been cut short") from None
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            _check_end(archive.fileobj, at)
            raise
        except tarfile.HeaderError as error:
            if at == 0:
                raise  # another kind of file: tarfile tries the next compression
            raise tarfile.ReadError(f"byte {at}: {error}") from None


def _check_end(file: Any, at: int) -> None:
    """Raise unless the block of zeros that was read at `at` is followed by another one, or by nothing."""
    second = file.read(tarfile.BLOCKSIZE)
    if second.strip(b"\0"):
        raise tarfile.ReadError(f"byte {at}: a header of zeros, and more behind it")
    more = bool(at and file.read(tarfile.BLOCKSIZE).strip(b"\0"))
    if isinstance(file, gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile):
        try:  # the check sum of the content stands at the end, and is compared there
            while file.read(1 << 20):
                pass
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise tarfile.ReadError(f"byte {at}, its end, so what was read may be damaged: {error}") from None
    if more:
        raise UncleanEnd("holds more after its end-of-archive, which is not read: unpack it with `tar -i`")


def open_tar(file: object, mode: str, path: str) -> tarfile.TarFile:
    """The archive in an open file."""
    try:
        return tarfile.open(fileobj=file, mode=mode, tarinfo=TarHeader)  # type: ignore[call-overload, no-any-return]
    except tarfile.TarError as error:
        raise tarfile.ReadError(_damaged(path, f"byte 0: {error}")) from error


def headers(archive: tarfile.TarFile, path: str) -> Iterator[tarfile.TarInfo]:
    """Every member's header, in the order of the archive `path`."""
    if archive.tarinfo is tarfile.TarInfo:
        archive.tarinfo = TarHeader  # the user has opened it
    try:
        yield from archive
    except UncleanEnd as remark:
        warnings.warn(f"{path} {remark}", stacklevel=2)
    except tarfile.TarError as error:
        text = str(error)
        place = text if text.startswith("byte ") else f"byte {archive.offset}: {text}"
        raise tarfile.ReadError(_damaged(path, place)) from error


def content(archive: tarfile.TarFile, info: tarfile.TarInfo, path: str) -> bytes:
    """What a regular file holds."""
    file = archive.extractfile(info)
    assert file is not None  # a regular file
    try:
        with file:
            return file.read()
    except tarfile.TarError as error:
        raise tarfile.ReadError(_damaged(path, f"byte {info.offset}: in {info.name}, {error}")) from error


def _damaged(path: str, what: str) -> str:
    return f'{path}, {what}; make or fetch the archive again, or leave out what it lost with on_error="skip"'
