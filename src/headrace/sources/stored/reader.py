"""Forward reader: small reads that go forward through a file, of which most cost no system call."""

from headrace.sources.stored.form import OpenFile

PIECE = 1 << 18


class ForwardReader:
    """The piece of a file that was read last. A read inside it is a slice, any other reads the piece from there on."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._start = 0
        self._data = b""

    def read(self, start: int, size: int) -> bytes:
        inside = start - self._start
        if inside < 0 or inside + size > len(self._data):
            wanted = min(max(size, PIECE), max(size, self._file.size - start))
            self._data, self._start, inside = self._file.read(start, wanted), start, 0
        return self._data[inside : inside + size]
