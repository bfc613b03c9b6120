"""Runs all tests in two lanes side by side: most of them wait for processes that they start.

Each lane is a session of its own, so that each knows which processes are its own. What the first one says is shown as
it comes, what the second one says at its end.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
SECOND = (
    "doors", "tables", "workers", "observe", "seeds", "examples", "benchmarks", "typing", "test_tuning.py",
    "test_packaging.py", "plan",
)  # fmt: skip


def lanes() -> tuple[list[str], list[str]]:
    """The folders and files of each lane."""
    every = sorted(path for path in TESTS.iterdir() if path.match("test_*.py") or any(path.glob("test_*.py")))
    first = [str(path) for path in every if path.name not in SECOND]
    return first, [str(TESTS / name) for name in SECOND]


def start(options: list[str], paths: list[str], output: IO[str] | None) -> subprocess.Popen[Any]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *paths],
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        start_new_session=True,
    )


def main(options: list[str]) -> int:
    # Whoever runs this in the background may have told it to ignore Ctrl-C; tests that send it must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the lanes, which are sessions, end too
    first, second = lanes()
    with tempfile.TemporaryFile("w+") as log:
        running = [start(options, first, None), start(options, second, log)]
        try:
            codes = [process.wait() for process in running]
        finally:
            for process in running:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                    process.wait()
        log.seek(0)
        sys.stdout.write(log.read())
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
