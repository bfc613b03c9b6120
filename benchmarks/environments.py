"""Environments for peers: one for all whose versions agree, one of its own for each that asks for other versions.

    .venv-bench/peers        torch 2.13.0, then grain, then spdl, ...
    .venv-bench/datapipes    torch 2.13.0, then torchdata 0.9.0
    .venv-bench/mosaic       torch 2.13.0, then mosaicml-streaming (another numpy)

torch comes first and alone, and everything after it under the constraint that it stays. Each requirement is installed
by itself, so that one which cannot be had takes nothing with it; the next run tries it again.
"""

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.roster import ROSTER

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-bench"
TORCH = "torch==2.13.0"
TOOLS = ("numpy", "cloudpickle", "psutil", "pillow", "pyarrow", "simplejpeg", "soundfile", "av")
"""What the harness and the data sets need."""

PATIENCE = 1200.0
Say = Callable[[str], None]


def pythons(subjects: Iterable[str], say: Say, folder: Path = FOLDER) -> tuple[dict[str, str], dict[str, str]]:
    """The interpreter of each subject; and for those that have none, why they are not installed."""
    found: dict[str, str] = {}
    absent: dict[str, str] = {}
    failed: dict[tuple[Path, str], str] = {}
    for name in subjects:
        entry = ROSTER.get(name)
        if entry is None or not entry.environment:
            found[name] = sys.executable
            continue
        home = folder / entry.environment
        if reason := install(home, entry.requires, failed, say):
            absent[name] = reason
        else:
            found[name] = str(home / "bin" / "python")
    return found, absent


def install(home: Path, requirements: Iterable[str], failed: dict[tuple[Path, str], str], say: Say) -> str | None:
    """None, or why it failed, which `failed` remembers. Two processes at once wait for each other."""
    home.mkdir(parents=True, exist_ok=True)
    (home.parent / ".gitignore").write_text("*\n")
    note = home / "installed.txt"
    with open(home / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = note.read_text().splitlines() if note.exists() else []
        for step in ("venv", TORCH, *TOOLS, *requirements):
            if step in done:
                continue
            if (home, step) not in failed:
                say(f"{home.name}: installing {step}")
                if reason := attempt(home, step):
                    failed[home, step] = reason
            if (home, step) in failed:
                return failed[home, step]
            done.append(step)
            note.write_text("\n".join(done) + "\n")
    return None


def attempt(home: Path, step: str) -> str | None:
    if step == "venv":
        return run(sys.executable, "-m", "venv", str(home))
    constraints = home / "constraints.txt"
    constraints.write_text(TORCH + "\n")
    pip = (str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet")
    return run(*pip, step) if step == TORCH else run(*pip, "--constraint", str(constraints), step)


def run(*command: str) -> str | None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return f"{command[-1]}: the installation did not end within {PATIENCE:.0f} s"
    if done.returncode == 0:
        return None
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    return f"{command[-1]}: {(errors or done.stdout.splitlines() or ['no output'])[-1]}"


def versions(python: str) -> dict[str, str]:
    """Of the subjects' packages that this interpreter has."""
    packages = sorted({entry.package for entry in ROSTER.values()} | {"numpy", "pillow", "pyarrow"})
    script = (
        "import importlib.metadata as m, json, sys\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run([python, "-c", script, *packages], capture_output=True, text=True, check=True)
    answer: dict[str, str] = json.loads(done.stdout)
    return answer
