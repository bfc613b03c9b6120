"""The standard library's TarFile, as `decompress()` gives it: one that says when its archive is damaged."""

import tarfile
from typing import Any

from headrace.ops.archives.tar_bytes import begun
from headrace.sources.tar import ABOUT_NEXT, HEADERS
from headrace.sources.unpack import packed_by, unpacked


class CheckedHeader(tarfile.TarInfo):
    """A header. One that cannot be read, or after which no other can come, is an error wherever it stands."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
        found = super().frombuf(buf, encoding, errors)
        if found.type in ABOUT_NEXT and found.size > HEADERS:
            raise tarfile.InvalidHeaderError(  # type: ignore[attr-defined]
                f"the headers of one member have more than {HEADERS} bytes"
            )
        return found

    @classmethod
    def fromtarfile(cls, archive: Any) -> Any:
        at = archive.fileobj.tell()
        try:
            found = super().fromtarfile(archive)
        except (tarfile.EmptyHeaderError, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            if at == 0:
                raise  # (said by `open_tar`)
            raise tarfile.ReadError(_damaged(archive.name, f"byte {at}: {error}")) from None
        if found.size < 0 or archive.offset <= at:
            raise tarfile.ReadError(_damaged(archive.name, f"byte {at}: a member has a negative size"))
        return found


def open_tar(file: Any, path: str, limit: int) -> tarfile.TarFile:
    """The archive in an open file, compressed or not."""
    head, file = begun(file)
    kind = packed_by(head)
    content = file if kind is None else unpacked(file, kind, path, limit)
    try:
        return tarfile.open(path, "r:", content, tarinfo=CheckedHeader)
    except tarfile.TarError as error:
        raise tarfile.ReadError(_damaged(path, f"byte 0: {error}")) from error


def _damaged(path: str, what: str) -> str:
    return what if path in what else f"{path}: {what}; make or fetch the archive again"
