"""JSON: one document a file, or one a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.context import skipper
from headrace.ops.files.per_file import EachFile, Keywords, PerFile, path_and_stream
from headrace.ops.text.text_lines import TextLines

MARK = "\ufeff"
"""The byte order mark that some programs write at the start of text."""


@dataclass(frozen=True, slots=True)
class ParseJsonFiles(EachFile[tuple[str, Any]]):
    """Each file as `(path, document)`; `kwargs` are those of `json.loads`."""

    kwargs: Keywords = ()

    def apply(self, sample: object) -> tuple[str, Any]:
        path, stream = path_and_stream(sample)
        try:
            return path, json.loads(stream.read(), **dict(self.kwargs))
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(f"{path}: {error.msg}", error.doc, error.pos) from None
        finally:
            stream.close()


@dataclass(frozen=True, slots=True)
class ParseJsonl(PerFile[Any]):
    """The document on each line of each file; blank lines, and a byte order mark at the start, are left out.

    `kwargs` are those of `json.loads`.
    """

    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = False
    kwargs: Keywords = ()

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        skip, more, return_path = skipper(), dict(self.kwargs), self.return_path
        lines = TextLines(stream, path, 0, True, self.encoding, self.errors)
        for line in lines:
            if lines.number == 1:
                line = line.removeprefix(MARK)
            if line and not line.isspace():
                try:
                    document = json.loads(line, **more)
                except json.JSONDecodeError as error:
                    place = f"{path}, line {lines.number}"
                    skip(json.JSONDecodeError(f"{place}: {error.msg}", error.doc, error.pos))
                    continue
                except Exception as error:  # too deep, too long a number, whatever a hook of the user raises
                    error.add_note(f"(in {path}, line {lines.number})")
                    skip(error)
                    continue
                yield (path, document) if return_path else document
