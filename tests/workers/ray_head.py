"""A Ray cluster of one node for a module of tests, away from the tests' own process tree.

Ray keeps idle processes and starts new ones when it likes, so as children of the test process they would look like
something that a test has left behind. The node runs in a session of its own, in a folder of its own, and all of it is
gone at the end. Only who knows its token, made up for the occasion, can connect.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.leaks import DEADLINE, in_session

STORE = 120_000_000


def token() -> dict[str, str]:
    """The environment of a cluster that nobody else can connect to."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}


@contextmanager
def head(cores: int = 2) -> Iterator[str]:
    """The address of a new cluster. Ray reads its settings when it is imported: import it inside, at the earliest."""
    before = dict(os.environ)
    os.environ.update(token())
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))  # sockets in it: their paths must be short
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port=0", f"--num-cpus={cores}"]
    command += [f"--object-store-memory={STORE}", "--include-dashboard=false", "--disable-usage-stats"]
    starting = subprocess.Popen(
        [*command, f"--temp-dir={folder}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        out, _ = starting.communicate(timeout=50)
        assert starting.returncode == 0, out.decode()
        yield (folder / "ray_current_cluster").read_text().strip()
    finally:
        members = in_session(starting.pid)
        for process in members:
            process.kill()
        psutil.wait_procs(members, timeout=DEADLINE)
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(before)
