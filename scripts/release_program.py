"""A release, proven before anybody publishes it. Run it through scripts/release.

1. The version of pyproject.toml has a heading in CHANGELOG.md and stands in CITATION.cff; without `--dry-run` that
   heading has a date, the tag is free, and everything is committed.
2. sdist and wheel are built from what git tracks, by `build`, in an environment made for it; `twine check --strict`
   reads their metadata. The sdist holds every tracked file of src.
3. The wheel is installed into an empty environment, away from the tree: the demo and `headrace doctor` run from it.

Uses the standard library only. `build` and `twine` are fetched into a temporary environment.
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
DATED = re.compile(r"\d{4}-\d{2}-\d{2}$")


def stop(message: str) -> NoReturn:
    raise SystemExit(f"scripts/release: {message}")


def run(*command: str | Path, cwd: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    done = subprocess.run(
        command, cwd=cwd, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        stop(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}")
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """The interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    if packages:
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, cwd=folder)
    return python


def version(dry: bool) -> str:
    """The version that is released, the same wherever it is written."""
    number: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading = re.search(rf"^## {re.escape(number)}\b(.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None:
        stop(f"CHANGELOG.md has no heading '## {number} ...'; write what changed in this version")
    if not dry and not DATED.search(heading[1].strip(" ()")):
        stop(f"the heading of {number} in CHANGELOG.md has no date; write '## {number} (YYYY-MM-DD)'")
    if f"version: {number}\n" not in (ROOT / "CITATION.cff").read_text():
        stop(f"CITATION.cff names another version; write 'version: {number}'")
    if not dry:
        if changed := run("git", "status", "--porcelain", cwd=ROOT):
            stop(f"commit or remove these first:\n{changed}")
        if run("git", "tag", "--list", f"v{number}", cwd=ROOT):
            stop(f"the tag v{number} exists already; raise the version in pyproject.toml")
    return number


def tracked(copy: Path) -> list[str]:
    """What git tracks, as it is in the working tree, laid into a folder of its own."""
    names = run("git", "ls-files", "-z", cwd=ROOT).rstrip("\0").split("\0")
    there = [name for name in names if (ROOT / name).is_file()]
    for name in there:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod((ROOT / name).stat().st_mode)
    return there


def build(folder: Path, number: str) -> tuple[Path, Path]:
    """sdist and wheel, built and checked."""
    tree, made = folder / "tree", folder / "dist"
    names = tracked(tree)
    python = environment(folder / "builder", "build", "twine")
    run(python, "-m", "build", "--outdir", made, tree, cwd=folder)
    sdist, wheel = made / f"headrace-{number}.tar.gz", made / f"headrace-{number}-py3-none-any.whl"
    print(run(python, "-m", "twine", "check", "--strict", sdist, wheel, cwd=folder).strip())
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    if absent := [name for name in names if name.startswith("src/") and name not in inside]:
        stop(f"the sdist lacks {', '.join(absent[:5])}: [tool.setuptools] in pyproject.toml leaves them out")
    return sdist, wheel


def prove(folder: Path, wheel: Path) -> None:
    """The wheel, in an environment that has nothing else, runs the demo and the doctor."""
    python = environment(folder / "user", str(wheel))
    desk = folder / "desk"
    desk.mkdir()
    program = desk / "demo.py"
    program.write_text((ROOT / "scripts" / "demo_program.py").read_text())
    where = run(python, "-c", "import headrace; print(headrace.__file__)", cwd=desk).strip()
    if not where.startswith(str(folder / "user")):
        stop(f"the demo would have run {where}, not the wheel")
    print(f"demo: {run(python, program, cwd=desk).strip().splitlines()[-1]}")
    print(f"doctor: {run(python.parent / 'headrace', 'doctor', cwd=desk).strip().splitlines()[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dry-run", action="store_true", help="build and check only")
    dry = parser.parse_args().dry_run
    number = version(dry)
    with tempfile.TemporaryDirectory(prefix="headrace-release-") as made:
        folder = Path(made)
        sdist, wheel = build(folder, number)
        prove(folder, wheel)
        if dry:
            print(f"ok: headrace {number} can be published; nothing was")
            return
        kept = ROOT / "dist"
        kept.mkdir(exist_ok=True)
        for path in (sdist, wheel):
            (kept / path.name).write_bytes(path.read_bytes())
    print(
        f"ok: {kept} holds headrace {number}. To publish it:\n"
        f"    git tag --annotate v{number} --message 'headrace {number}' && git push --follow-tags\n"
        f"    {Path(sys.executable).name} -m twine upload {kept.name}/headrace-{number}*"
    )


if __name__ == "__main__":
    main()
