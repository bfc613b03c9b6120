"""JSON: one document a file, or one a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.context import skipper
from headrace.ops.files.per_file import EachFile, Keywords, PerFile, path_and_stream
from headrace.ops.text.text_lines import TextLines
from headrace.sources.limit import PARSED, check_limit, limit_of


@dataclass(frozen=True, slots=True)
class ParseJsonFiles(EachFile[tuple[str, Any]]):
    """Each file as `(path, document)`; `kwargs` are those of `json.loads`."""

    kwargs: Keywords = ()

    def apply(self, sample: object) -> tuple[str, Any]:
        path, stream = path_and_stream(sample)
        try:
            text = stream.read()
            check_limit(PARSED * len(text), limit_of(stream), path)
            return path, json.loads(text, **dict(self.kwargs))
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
    kwargs: Keywords = ()

    def read(self, path: str, stream: Any) -> Iterator[Any]:
        skip, more, return_path = skipper(), dict(self.kwargs), self.return_path
        lines = TextLines(stream, path, 0, True, self.encoding, self.errors)
        for line in lines:
            if line and not line.isspace():
                try:
                    document = json.loads(line, **more)
                except json.JSONDecodeError as error:
                    place = f"{path}, line {lines.number}"
                    skip(json.JSONDecodeError(f"{place}: {error.msg}", error.doc, error.pos))
                    continue
                yield (path, document) if return_path else document
