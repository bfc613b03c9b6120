"""Counted files: local files whose reads are counted, so that a job knows how often it reads its data."""

import io
from typing import TYPE_CHECKING

from headrace.observe.meter import files

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class CountedFile(io.FileIO):
    """A local file that is only read. (A buffered reader calls `readinto`, others `read`; `readall` calls neither.)"""

    def __init__(self, path: str) -> None:
        super().__init__(path, "rb")
        files.opened()

    def __del__(self) -> None:
        self.close()  # (pyarrow drops files that it was given, without closing them)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        data: bytes = super().read(size) or b""
        files.read(len(data))
        return data

    def readall(self) -> bytes:
        data: bytes = super().readall() or b""
        files.read(len(data))
        return data

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        count = super().readinto(buffer) or 0
        files.read(count)
        return count
