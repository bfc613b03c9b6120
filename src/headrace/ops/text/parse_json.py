"""JSON: one document a file, or one a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.ops.files.per_file import EachFile, PerFile, reading
from headrace.ops.keywords import Given, keywords
from headrace.ops.text.text_lines import placed, text_lines


@dataclass(frozen=True, slots=True)
class ParseJsonFiles(EachFile[tuple[str, Any]]):
    """Each file as `(path, document)`; `kwargs` are those of `json.loads`."""

    kwargs: Given = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", keywords(self.kwargs))

    def apply(self, sample: Any) -> tuple[str, Any]:
        path, stream = reading(sample)
        try:
            return path, json.loads(stream.read(), **dict(self.kwargs))
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(f"{path}: {error.msg}", error.doc, error.pos) from None
        finally:
            stream.close()


@dataclass(frozen=True, slots=True)
class ParseJsonl(PerFile[Any]):
    """The document on each line of each file; empty lines are left out. `kwargs` are those of `json.loads`."""

    encoding: str = "utf-8"
    errors: str = "strict"
    return_path: bool = False
    kwargs: Given = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", keywords(self.kwargs))

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        number, more, return_path = 0, dict(self.kwargs), self.return_path
        try:
            lines = text_lines(stream, 0, True, self.encoding, self.errors)
            for number, line in enumerate(lines, 1):  # noqa: B007 - an error names it
                if line and not line.isspace():
                    document = json.loads(line, **more)
                    yield (path, document) if return_path else document
        except UnicodeDecodeError as error:
            raise placed(error, path, number) from None
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(f"{path}, line {number}: {error.msg}", error.doc, error.pos) from None
