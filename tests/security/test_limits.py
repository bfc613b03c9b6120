"""No file takes more memory or time than it may: what comes of it is right, or a clear error that names the file.

Each file is read in a fresh process. Its peak of memory is what the kernel has seen (VmHWM), with the largest process
that it started; its deadline is in seconds of the processor, so that other work on the machine does not count.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.security import archives, compressed, media, stored, tables
from tests.security.case import Case
from tests.security.reader import SECONDS
from tests.warm import SRC

READER = Path(__file__).with_name("reader.py")
CASES = [*archives.CASES, *compressed.CASES, *stored.CASES, *media.CASES, *tables.CASES]


def told(path: Path, expression: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(READER), str(path), expression],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"it ended by {done.returncode} (-24: by its deadline)\n{done.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_hostile_file_is_a_clear_error_or_right_data_within_the_limits(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    found = told(path, case.read)
    if case.gives is not None:
        assert found.get("samples") == case.gives, found
    else:
        assert "error" in found, f"no error, but {found['samples']}"
        assert found["error"] != "MemoryError", found
        assert path.stem in found["text"], found
        assert re.search(case.says, found["text"], re.DOTALL), found
    print(f"{found['megabytes']} MB, {found['seconds']:.1f} s: {case.id}")
    assert found["megabytes"] <= case.most, found
    assert found["seconds"] <= SECONDS, found
