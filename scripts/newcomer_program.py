"""The newcomer: a clone, an empty environment, the README from top to bottom, and the programs of examples/doors.

Nothing of this working tree is in the way of what it runs: the clone lies in a folder of its own, Python finds headrace
only where pip has put it, and blocks of Python run in an empty folder. Uses the standard library only. Run it through
scripts/newcomer.
"""

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED: dict[str, list[str]] = runpy.run_path(str(ROOT / "scripts" / "environment.py"))["PINNED"]
BLOCK = re.compile(r"^```(bash|console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Newcomer:
    """Somebody with a shell in a clone, and an environment of their own."""

    def __init__(self, folder: Path, tests: bool) -> None:
        self.clone = folder / "headrace"
        self.desk = folder / "desk"
        self.tests = tests
        self._written = ""
        environment = folder / "environment"
        self.desk.mkdir()
        venv.create(environment, with_pip=True)
        pinned = folder / "constraints.txt"
        pinned.write_text("\n".join(line for lines in PINNED.values() for line in lines))
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
        self._environ = {
            **kept,
            "PATH": f"{environment / 'bin'}{os.pathsep}{kept['PATH']}",
            "PIP_CONSTRAINT": str(pinned),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        }

    def shell(self, command: str) -> None:
        """One line, typed in the clone."""
        if command.startswith("scripts/test") and not self.tests:
            print(f"$ {command}\n    left out: it takes many minutes; scripts/newcomer --tests runs it", flush=True)
            return
        self._run(f"$ {command}", ["bash", "-c", command], self.clone)

    def program(self, block: str) -> None:
        """A block of Python, pasted below the ones before it."""
        self._written += block + "\n\n"
        path = self.desk / "program.py"
        path.write_text(self._written)
        first = next(line for line in block.splitlines() if line and not line.startswith(("import", "from")))
        self._run(f"python: {first} ...", ["python", str(path)], self.desk)

    def read(self, page: Path) -> None:
        for language, text in BLOCK.findall(page.read_text()):
            if language == "python":
                self.program(text)
            for line in text.splitlines() if language != "python" else ():
                if language == "bash" or line.startswith("$ "):
                    self.shell(line.removeprefix("$ ").partition("  #")[0].strip())

    def _run(self, told: str, command: list[str], folder: Path) -> None:
        print(told, flush=True)
        started = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\nFAILED with {done.returncode}: {told}")
        last = done.stdout.strip().splitlines()[-1:] or [""]
        print(f"    ok, {time.monotonic() - started:.0f} s  {last[0][:100]}", flush=True)


def clone(target: Path, changes: bool) -> None:
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)], check=True)
    if not changes:
        return
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.rstrip("\0").split("\0"):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
        else:
            (target / name).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/newcomer", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--changes", action="store_true", help="with what is changed in this working tree")
    parser.add_argument("--tests", action="store_true", help="also run the tests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-newcomer-") as made:
        folder = Path(made)
        clone(folder / "headrace", options.changes)
        print(f"cloned to {folder / 'headrace'}; making an empty environment with Python {sys.version.split()[0]}")
        newcomer = Newcomer(folder, options.tests)
        newcomer.read(newcomer.clone / "README.md")
        for example in sorted((newcomer.clone / "examples" / "doors").glob("*.py")):
            newcomer.shell(f"python {example.relative_to(newcomer.clone)}")
    print("ok: every block of the README, and every door")


if __name__ == "__main__":
    main()
