"""Lines of files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.ops.files.per_file import PerFile
from headrace.ops.text.text_lines import check_skip, placed, text_lines


@dataclass(frozen=True, slots=True)
class ReadLines(PerFile[Any]):
    """Each line of each file, with its path; bytes stay bytes unless `decode`."""

    skip_lines: int = 0
    strip_newline: bool = True
    decode: bool = False
    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = True

    def __post_init__(self) -> None:
        check_skip(self.skip_lines)

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        number = 0
        strip, return_path = self.strip_newline, self.return_path
        try:
            lines = text_lines(stream, self.skip_lines, self.decode, self.encoding, self.errors)
            number = self.skip_lines
            for number, line in enumerate(lines, self.skip_lines + 1):  # noqa: B007 - an error names it
                if strip:
                    line = line.rstrip("\r\n" if isinstance(line, str) else b"\r\n")
                yield (path, line) if return_path else line
        except UnicodeDecodeError as error:
            raise placed(error, path, number) from None

    @classmethod
    def name(cls) -> str:
        return "readlines"
