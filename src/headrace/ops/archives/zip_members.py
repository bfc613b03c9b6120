"""Members of zip archives, unpacked without taking more memory than they are allowed.

The standard library unpacks deflate as far as it is asked to, but of any other method all that it has read: 45 bytes of
bzip2 are 46 MB. So bzip2 is unpacked here, and the methods that hardly anybody writes are refused.
"""

import zipfile
from copy import copy
from typing import Any

from headrace.sources.limit import limit_of
from headrace.sources.unpack import BZIP2, Unpacked, unpacked


def open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, max_bytes: int) -> Any:
    """A member as a file; `name` is what messages call it."""
    if info.compress_type == zipfile.ZIP_STORED:
        member, limit = archive.open(info), limit_of(archive.fp)
        return Unpacked(member, name, limit)
    if info.compress_type == zipfile.ZIP_DEFLATED:
        return Unpacked(archive.open(info), name, max_bytes)
    if info.compress_type == zipfile.ZIP_BZIP2:
        return unpacked(archive.open(_as_it_is(info)), BZIP2, name, max_bytes)
    raise zipfile.BadZipFile(
        f"{name} is compressed by method {info.compress_type}, which is not read: pack it again with deflate, bzip2 or "
        "no compression"
    )


def _as_it_is(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """The same member as if it were not compressed: its file then gives the bytes in the archive."""
    found = copy(info)
    found.compress_type = zipfile.ZIP_STORED
    found.file_size = found.compress_size
    del found.CRC  # (bzip2 has a check sum of its own)
    return found
