"""The table of what it costs to resume, in docs/snapshots.md, is the one that is made here from examples of all ops.

After a change, `python -m tests.docs.test_resume_table` writes it anew.
"""

import tempfile
from pathlib import Path

import pytest

from headrace.engine.explain import resume_cost
from headrace.pipe.graph import Pipe
from tests.ops.law6_examples import EXAMPLES, At, stream

PAGE = Path(__file__).resolve().parents[2] / "docs" / "snapshots.md"
ELSEWHERE = ("HuggingFace",)
"""Needs a package that is not there in every run."""
START, END = "<!-- resume:start -->", "<!-- resume:end -->"


def table(folder: Path) -> str:
    """Ops of the same cost in one row."""
    costs: dict[str, list[str]] = {}
    at = At(folder, "http://127.0.0.1")
    at.make()
    for name, make in EXAMPLES.items():
        if name in ELSEWHERE:
            continue
        node = _node(make(stream, at), name)
        if node is not None:
            costs.setdefault(resume_cost(node), []).append(f"`{node.op.name()}`")
    rows = [f"| {cost} | {', '.join(sorted({*ops}))} |" for cost, ops in sorted(costs.items())]
    return "\n".join(["| what is read again | by |", "|---|---|", *rows])


def _node(pipe: Pipe[object], name: str) -> Pipe[object] | None:
    return next((node for node in pipe.nodes() if type(node.op).__name__ == name), None)


def test_the_table_says_what_each_op_says_of_itself(tmp_path: Path) -> None:
    for package in ("pyarrow", "rarfile"):
        pytest.importorskip(package, reason="an example needs it")
    written = PAGE.read_text().partition(START)[2].partition(END)[0].strip()
    assert written == table(tmp_path), "run: python -m tests.docs.test_resume_table"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(START)
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(f"{before}{START}\n{table(Path(folder))}\n{END}{rest.partition(END)[2]}")
