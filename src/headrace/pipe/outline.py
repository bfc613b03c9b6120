"""Outline: a pipe as lines of text, sources first, one op a line, as `print(pipe)` shows it.

    Pipe.of(list of 100)
      .map(parse)
      .batch(32)

Where several pipes meet, each stands in front of the op that joins them; a pipe that is used twice is shown once:

    ┌ Pipe.of(list of 100)
    │   .map(parse)
    ├ Pipe.of(list of 20)
    zip()
      .batch(32)
"""

import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe


def outline(pipe: "Pipe[Any]") -> str:
    """The lines, none longer than the terminal is wide."""
    width = shutil.get_terminal_size().columns
    return "\n".join(shortened(line, width) for line in _lines(pipe, {}))


def in_one_line(pipe: "Pipe[Any]") -> str:
    """The pipe as one would write it: what `repr(pipe)` shows."""
    if not pipe.inputs:
        return f"Pipe.{pipe.op.describe()}"
    name, _, given = pipe.op.describe().removesuffix(")").partition("(")
    arguments = ", ".join([*(in_one_line(other) for other in pipe.inputs[1:]), *([given] if given else [])])
    return f"{in_one_line(pipe.inputs[0])}.{name}({arguments})"


def shortened(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 1, 0)]}…"


def _lines(node: "Pipe[Any]", shown: "dict[int, Pipe[Any]]") -> list[str]:
    if node.inputs and id(node) in shown:
        return [f"(from {node.op.describe()} above)"]
    shown[id(node)] = node  # kept alive, so that no other node gets its id
    if not node.inputs:
        return [f"Pipe.{node.op.describe()}"]
    if len(node.inputs) == 1:
        return [*_lines(node.inputs[0], shown), f"  .{node.op.describe()}"]
    joined = []
    for number, source in enumerate(node.inputs):
        first, *rest = _lines(source, shown)
        joined += [f"{'├' if number else '┌'} {first}", *(f"│ {line}" for line in rest)]
    return [*joined, node.op.describe()]
