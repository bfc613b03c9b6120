"""TextLines of files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.ops.files.per_file import PerFile
from headrace.ops.text.text_lines import TextLines, check_skip


@dataclass(frozen=True, slots=True)
class ReadLines(PerFile[Any]):
    """Each line of each file, with its path; bytes stay bytes unless `decode`."""

    skip_lines: int = 0
    strip_newline: bool = True
    decode: bool = False
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = True
    verb = "readlines"

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        strip, return_path = self.strip_newline, self.return_path
        for line in TextLines(stream, path, self.skip_lines, self.decode, self.encoding, self.errors):
            if strip:
                line = line.rstrip("\r\n" if isinstance(line, str) else b"\r\n")
            yield (path, line) if return_path else line
