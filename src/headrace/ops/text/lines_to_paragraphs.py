"""Lines to paragraphs: consecutive lines of one file, joined."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.op import Here, Op


def join_lines(lines: list[str]) -> str:
    """Lines with line ends between them."""
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class LinesToParagraphs(Op[tuple[str, Any], tuple[str, Any]]):
    """`(path, line)` samples as `(path, paragraph)`; an empty line, or another file, ends a paragraph."""

    joiner: Callable[[list[Any]], Any] = join_lines
    user = True

    def flow(self, samples: Iterator[tuple[str, Any]], here: Here) -> Iterator[tuple[str, Any]]:
        # Resumed inside a paragraph: the rest of it is emitted so that the count is right, and dropped by the engine.
        path, begun = here.note, here.note is not None
        lines: list[Any] = []
        here.rest(path)
        for name, line in samples:
            if begun and (not line or name != path):
                yield path, self._joined(lines)
                lines, begun = [], False
            if line:
                path, begun = name, True
                lines.append(line)
            here.rest(path if begun else None)
        if begun:
            yield path, self._joined(lines)

    def _joined(self, lines: list[Any]) -> Any:
        return self.joiner(lines) if lines else None
