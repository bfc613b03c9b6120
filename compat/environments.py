"""One environment with torch and what the suites need; and two small ones over it, for the original and for ours.

    .venv-compat/base                   torch, pytest, ...: kept from run to run
    .venv-compat/torchdata==0.9.0/      an original, with none of its requirements
    <work>/original/bin/python          sees base and the original
    <work>/ours/bin/python              sees base, the shims and this tree's src; no original is installed there

A small environment is an interpreter and a .pth file, so what it sees does not hang on environment variables: every
process that its interpreter starts, by whatever method, sees the same.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from compat.suites import REQUIREMENTS, TORCH, Suite

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "compat"
PACKAGES = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


def home() -> Path:
    """Beside .venv, wherever that really is: work trees that share it share these too."""
    return (ROOT / ".venv").resolve().parent / ".venv-compat"


def run(*command: str | Path) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"compat: {' '.join(map(str, command))} failed:\n{done.stdout}")


def base() -> Path:
    """The packages of the environment with torch and what the suites need."""
    place = home() / "base"
    place.mkdir(parents=True, exist_ok=True)
    stamp = place / "requirements.installed"
    wanted = [TORCH, *REQUIREMENTS]
    with open(home() / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text().split() != wanted:
            say(f"making {place} (torch and {len(wanted) - 1} more)")
            run(sys.executable, "-m", "venv", place)
            run(place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
            stamp.write_text("\n".join(wanted) + "\n")
    return place / PACKAGES


def original(requirement: str) -> Path:
    """The folder that holds one package and nothing that it asks for, so that torch stays as it is."""
    place = home() / requirement
    with open(home() / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            say(f"installing {requirement}")
            partial = place.with_name(place.name + ".part")
            shutil.rmtree(partial, ignore_errors=True)
            pip = (home() / "base" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps")
            run(*pip, "--disable-pip-version-check", "--target", partial, requirement)
            partial.rename(place)
    return place


def overlay(place: Path, packages: Path, lines: list[str]) -> Path:
    """A small environment over the packages of another; its interpreter."""
    run(sys.executable, "-m", "venv", "--without-pip", place)
    (place / PACKAGES / "compat.pth").write_text("\n".join([str(packages), *lines]) + "\n")
    return place / "bin" / "python"


def for_original(suite: Suite, checkout: Path, work: Path) -> Path:
    packages = base()
    lines = [str(HERE / "side")]
    if suite.original is None:
        pass
    elif suite.original.startswith("./"):
        (work / "package").mkdir()
        shutil.copytree(checkout / suite.original, work / "package" / suite.original)
        lines.append(str(work / "package"))
    else:
        lines.append(str(original(suite.original)))
    return overlay(work / "original", packages, lines)


def for_ours(suite: Suite, work: Path, witness: Path) -> Path:
    packages = base()
    package = original(suite.original) if suite.original and not suite.original.startswith("./") else ""
    return overlay(work / "ours", packages, ours(suite, witness, package))


def ours(suite: Suite, witness: Path, package: Path | str) -> list[str]:
    """The lines of our side's .pth file."""
    given = (suite.name, str(witness), str(package), suite.replaced)
    begin = f"import compat_witness; compat_witness.begin{given!r}"
    return [str(HERE / "side"), str(HERE / "shims"), str(ROOT / "src"), begin]


def variables() -> dict[str, str]:
    """Those of a run: nothing that changes what Python imports, nothing that asks a hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HEADRACE"))}
    return kept | {"HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": "1", "PYTHONHASHSEED": "0"}


def say(message: str) -> None:
    print(f"compat: {message}", file=sys.stderr, flush=True)
