"""Types are carried through the verbs: what mypy reveals is what the user will see."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = {
    "Pipe.of([1, 2])": "headrace.pipe.graph.Pipe[int]",
    "Pipe.of([1, 2]).map(str)": "headrace.pipe.graph.Pipe[str]",
    "Pipe.of(['a']).filter(bool)": "headrace.pipe.graph.Pipe[str]",
    "Pipe.of([1]).map(float).batch(4)": "headrace.pipe.graph.Pipe[list[float]]",
    "Pipe.of(['a b']).flatmap(str.split)": "headrace.pipe.graph.Pipe[str]",
    "Pipe.of([1]).enumerate()": "headrace.pipe.graph.Pipe[tuple[int, int]]",
    "Pipe.of([1]).zip(Pipe.of(['a']))": "headrace.pipe.graph.Pipe[tuple[int, str]]",
    "Pipe.of([1]).shuffle().header(3).cycle(2)": "headrace.pipe.graph.Pipe[int]",
    "Pipe.of([1]).concat(Pipe.of(['a']))": "headrace.pipe.graph.Pipe[int | str]",
    "Loader(Pipe.of([1]).batch(2))": "headrace.loader.Loader[list[int]]",
    "next(iter(Loader(Pipe.of([1]).map(str))))": "str",
    "streams.Mapper": "Any",
    "tables.SequenceWrapper": "Any",
    "traverse_dps": "def (datapipe: Any) -> dict[int, tuple[headrace.pipe.graph.Pipe[Any], Any]]",
}
IMPORTS = [
    "from headrace import Loader, Pipe",
    "from headrace.datapipes import iter as streams",
    "from headrace.datapipes import map as tables",
    "from headrace.datapipes.graph import traverse_dps",
]


@pytest.mark.timeout(180)
def test_mypy_reveals_the_type_of_every_verb(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = [*IMPORTS, *(f"reveal_type({case})" for case in CASES)]
    program.write_text("\n".join(lines) + "\n")
    root = Path(__file__).resolve().parents[2]
    # (With the options of scripts/check, which are strict: so what that has found out about the package is used.)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(program)],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )
    revealed = [
        line.split(chr(34))[1].replace("builtins.", "") for line in done.stdout.splitlines() if "Revealed type" in line
    ]
    assert revealed == list(CASES.values()), done.stdout + done.stderr
    assert "error:" not in done.stdout, done.stdout
