"""The programs of docs/formats.md with the readers of other libraries run, where these libraries are installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import environments
from tests.docs.test_blocks import ROOT, blocks

PROGRAMS = {
    library: next(block for block in blocks(ROOT / "docs" / "formats.md", "text") if library in block)
    for library in ("datasets", "litdata")
}
START = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\nfrom headrace import Loader, Pipe\n"


@pytest.mark.integrations
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("library", PROGRAMS)
def test_the_program_with_the_reader_of_a_library_runs(library: str, tmp_path: Path) -> None:
    python = sys.executable
    if library == "litdata":
        pythons, absent = environments.pythons([library], print)
        assert not absent
        python = pythons[library]
    else:
        pytest.importorskip(library, reason="not installed")
    done = subprocess.run(
        [python, "-c", START + PROGRAMS[library]], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
