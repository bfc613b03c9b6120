"""RawFile: what read-only files that keep their own position have in common. A subclass says how bytes are fetched."""

import io
from typing import Any

CHUNK = 1 << 20


class RawFile(io.RawIOBase):
    """Bytes that `fetch` gets, at any position; `size` is that of the whole file, or None where it is not known."""

    step = CHUNK
    """Bytes that `readall` fetches at a time."""

    def __init__(self, path: str, size: int | None = None) -> None:
        super().__init__()
        self.path = path
        self.size = size
        self.position = 0

    def fetch(self, wanted: int) -> bytes:
        """Up to `wanted` bytes from the position on; none only at the end of the file."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self.size is None:
            raise io.UnsupportedOperation(f"the size of {self.path} is not known")
        target = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size or 0}[whence] + offset
        if target < 0:
            raise ValueError(f"negative seek position {target}")
        self.position = target
        return target

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.fetch(len(view))
        view[: len(data)] = data
        self.position += len(data)
        return len(data)

    def readall(self) -> bytes:
        parts = []
        while data := self.fetch(self.step):
            self.position += len(data)
            parts.append(data)
        return b"".join(parts)
