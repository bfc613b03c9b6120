"""`headrace bench [case ...]`: the benchmarks, on this machine.

They are part of the repository, not of the installed package: they are run where its folder `benchmarks` is found, in
the working directory, above it, or beside the package.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import headrace


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace bench", description="Measure headrace against other loaders on this machine."
    )
    parser.add_argument(
        "case", nargs="*", help="names or patterns of cases ('*': all); those of the README, if none is given"
    )
    parser.add_argument("--subjects", help="whom to measure, such as headrace,torch")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="shorter measurements, and an end after minutes")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    args = parser.parse_args(argv)
    root = repository()
    if root is None:
        print(
            "headrace bench: the benchmarks are in the repository, which is not here. Unpack the source, change into "
            "its folder, and say it again (or: scripts/bench).",
            file=sys.stderr,
        )
        return 2
    command = [sys.executable, "-m", "benchmarks", *args.case]
    for name in ("subjects", "rounds"):
        if getattr(args, name) is not None:
            command += [f"--{name}", str(getattr(args, name))]
    if args.quick:
        command.append("--quick")
    if not args.json:
        return subprocess.call(command, cwd=root)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        out = Path(folder) / "results.json"
        code = subprocess.call([*command, "--json", str(out)], cwd=root, stdout=sys.stderr)
        if out.exists():
            print(out.read_text(), end="")
    return code


def repository(start: Path | None = None) -> Path | None:
    """The folder that holds the benchmarks."""
    here = (start or Path.cwd()).resolve()
    package = Path(headrace.__file__).resolve()
    for folder in (here, *here.parents, package.parents[2]):
        if (folder / "benchmarks" / "__main__.py").is_file() and (folder / "pyproject.toml").is_file():
            return folder
    return None
