"""Words and sizes of the house: one class name, one module; files that can be read at one sitting; types that speak.

The figures are ratchets: they may be lowered, never raised.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "headrace"

LINES = 500
"""The longest file that one idea may need."""
ANY = 0.08
"""The largest share of parameters that may be annotated `Any`."""
TWICE: dict[str, str] = {
    "DataLoader": "torch's and PopTorch's loaders have this name",
    "Options": "PopTorch's and SwiftLoader's options have this name",
    "Shuffle": "TorchData's adapter of a graph has this name",
}
"""Class names that a foreign interface dictates."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield str(path.relative_to(SRC)), ast.parse(path.read_text())


def parameters(tree: ast.Module) -> Iterator[ast.arg]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            yield from (one for one in every if one is not None and one.arg not in ("self", "cls"))


def test_a_class_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for room, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(room)
    twice = {name: rooms for name, rooms in homes.items() if len(rooms) > 1}
    assert not twice.keys() - TWICE.keys(), twice
    assert not TWICE.keys() - twice.keys(), "these exceptions are needed no more"


def test_a_file_can_be_read_at_one_sitting() -> None:
    sizes = {str(path.relative_to(SRC)): len(path.read_text().splitlines()) for path in SRC.rglob("*.py")}
    long = {room: size for room, size in sizes.items() if size > LINES}
    assert not long, "one idea a file: divide these"


def test_parameters_say_what_they_take() -> None:
    every = [one for _, tree in trees() for one in parameters(tree)]
    loose = [one for one in every if one.annotation is not None and ast.unparse(one.annotation) == "Any"]
    assert len(loose) / len(every) <= ANY, f"{len(loose)} of {len(every)} parameters are annotated Any"
