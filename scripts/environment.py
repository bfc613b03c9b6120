"""Makes a virtual environment with the core requirements and some extras of pyproject.toml, and prints its interpreter.

    python3 scripts/environment.py .venv torch dev

Uses the standard library only: it runs on a bare Python. A stamp in the environment lists the requirements that are
installed, so a second call only compares. Two calls at once wait for each other.
"""

import fcntl
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent

# One exact torch, so that measurements and bit-for-bit comparisons speak of the same thing everywhere.
# (And the last torchcodec whose wheel fits a torch without CUDA.)
PINNED = {"torch": ["torch==2.13.0"], "video": ["av>=12", "torchcodec==0.13.0"]}


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    if unknown := sorted(set(extras) - set(optional)):
        stop(f"pyproject.toml has no extra named {', '.join(unknown)}; it has {', '.join(sorted(optional))}")
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += PINNED.get(extra, optional[extra])
    return wanted


def works(python: Path) -> bool:
    return python.exists() and subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0


def run(*command: str | Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        stop(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


def say(message: str) -> None:
    print(f"headrace: {message}", file=sys.stderr, flush=True)


def stop(message: str) -> NoReturn:
    say(message)
    raise SystemExit(1)


def make(venv: Path, extras: list[str]) -> Path:
    python = venv / "bin" / "python"
    stamp = venv / "requirements.installed"
    wanted = requirements(extras)
    venv.mkdir(parents=True, exist_ok=True)
    with open(venv / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not works(python):
            say(f"making {venv.name} with Python {sys.version.split()[0]}")
            stamp.unlink(missing_ok=True)
            run(sys.executable, "-m", "venv", venv)
        installed = stamp.read_text().splitlines() if stamp.exists() else []
        if missing := [name for name in wanted if name not in installed]:
            say(f"installing {', '.join(missing)} into {venv.name}")
            run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
            stamp.write_text("\n".join(dict.fromkeys([*installed, *wanted])) + "\n")
    return python


if __name__ == "__main__":
    print(make(ROOT / sys.argv[1], sys.argv[2:]))
