"""`headrace doctor [FILE:pipe | URL] [--ranks N] [--json]`: which launcher started this process and why, what the
machine allows, what to change; of a pipe, how often a job of so many ranks will read its data. Of a URL, such as
`s3://bucket/key`, whether and how fast it can be read from here (`bucket`).

Exit code 0; 1 when the launcher's variables cannot be true, so that a job would not start, or the URL cannot be read.
"""

import argparse
import json
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headrace.cli import bucket, machine
from headrace.errors import BadOption
from headrace.ranks import env
from headrace.ranks.detect import explain
from headrace.sources.bytes import is_remote

if TYPE_CHECKING:
    from headrace.pipe.graph import Pipe

_MB = 1 << 20


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="headrace doctor", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "subject",
        nargs="?",
        metavar="FILE:pipe | URL",
        help="a pipe or a loader that ranks will read, or an object of a store",
    )
    parser.add_argument("--ranks", type=int, help="of the job; those of the launcher, or 8, if not given")
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    args = parser.parse_args(argv)
    if args.ranks is not None and args.ranks < 1:
        raise BadOption(f"--ranks {args.ranks}: a whole number >= 1")
    if args.subject is not None and is_remote(args.subject):
        found = bucket.examine(args.subject)
        print(json.dumps(found, indent=2) if args.json else "\n".join(bucket.text(found)))
        return 1 if "error" in found else 0
    report = examine(None if args.subject is None else _pipe(args.subject), args.ranks)
    print(json.dumps(report, indent=2) if args.json else "\n".join(_text(report)))
    return 1 if report["launcher"]["error"] else 0


RANKS = 8
"""How many ranks are assumed where neither --ranks nor a launcher says."""


def examine(pipe: "Pipe[Any] | None" = None, ranks: int | None = None) -> dict[str, Any]:
    """The whole report, ready for JSON."""
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "launcher": _launcher(),
        **machine.facts(),
    }
    report["reading"] = [] if pipe is None else _reading(pipe, ranks or _ranks(report["launcher"]))
    report["advice"] = advice(report)
    return report


def _pipe(text: str) -> "Pipe[Any]":
    from headrace.cli.subject import find

    found = find(text).pipe
    if found is None:
        raise BadOption(f"{text} is no pipe, and no loader of one: name a Pipe or a Loader")
    return found


def _ranks(launcher: dict[str, Any]) -> int:
    found = launcher["world"]["ranks"] if launcher["name"] else 1
    return int(found) if found > 1 else RANKS


def _reading(pipe: "Pipe[Any]", ranks: int) -> list[str]:
    """What a job of so many ranks will read more than once; if nothing, a line that says so."""
    from headrace.engine.explain import reading
    from headrace.engine.program import cut

    program = cut(pipe, 0, divided=ranks > 1)
    if not program.indexed:
        return [
            f"the head of this pipe is a stream: each of {ranks} ranks reads all of it, so the job reads the data "
            f"{ranks} times; Pipe.stored and Pipe.parquet read files by position, each rank its own part"
        ]
    indexed = program.head.indexed(0, 0)
    assert indexed is not None
    return reading(indexed, ranks) or [f"{ranks} ranks read every sample once"]


def _launcher() -> dict[str, Any]:
    try:
        found = explain()
        replicas = env.replicas()
    except BadOption as wrong:
        return {"name": None, "error": str(wrong), "warnings": [], "disagree": []}
    return {
        "name": found.launcher,
        "error": None,
        "world": {name: value for name, value in asdict(found.world).items() if name != "store"},
        "variables": dict(found.variables),
        "replicas": asdict(replicas) if replicas else None,
        "disagree": [asdict(claim) for claim in found.disagree],
        "warnings": list(found.warnings),
    }


def advice(report: dict[str, Any]) -> list[str]:
    """What to do, most important first."""
    launcher = report["launcher"]
    words: list[str] = [launcher["error"]] if launcher["error"] else []
    words += launcher["warnings"]
    cores, memory, files = report["cores"], report["memory"], report["files"]["soft"]
    usable = min(cores["allowed"], cores["quota"] or cores["allowed"])
    ranks_here = launcher["world"]["local_ranks"] if launcher["name"] else 1
    workers = max(1, int(usable) // ranks_here - 1)
    words.append(f"workers a rank: {workers} ({usable:g} cores here for {ranks_here} rank{'s' * (ranks_here > 1)})")
    if cores["quota"] and cores["quota"] < cores["allowed"]:
        words.append(
            f"the container gives {cores['quota']:g} of {cores['allowed']} cores: count by it, not by the cores"
        )
    if memory["limit"] and memory["limit"] < memory["total"]:
        words.append(f"memory is limited to {_size(memory['limit'])}: keep workers x (memory of the data set) below it")
    if files is not None and files < 4096:
        words.append(f"only {files} files may be open: raise it with `ulimit -n 65536`")
    if not report["start"]["memfd"]:
        words.append("no memfd: shared memory has names here, and a killed process may leave some behind")
        if report["shm"] and report["shm"]["free"] < 512 * _MB:
            words.append(f"/dev/shm has {_size(report['shm']['free'])} free: give the container more (--shm-size=8g)")
    words += report.get("reading", [])
    if report["extras"]["torch"] is None:
        words.append(
            "torch is not installed: `headrace run` needs it unless --engine mpi: pip install 'headrace[torch]'"
        )
    return words


def _text(report: dict[str, Any]) -> list[str]:
    start, cores, memory, shm, files = (report[name] for name in ("start", "cores", "memory", "shm", "files"))
    quota = f", quota {cores['quota']:g}" if cores["quota"] else ""
    return [
        *_launcher_text(report["launcher"]),
        "",
        f"python     {report['python']} on {report['platform']}",
        f"cores      {cores['allowed']} allowed of {cores['machine']}{quota}",
        f"memory     {_size(memory['available'])} available of {_size(memory['total'])}, "
        f"limit {_size(memory['limit'])}, locked at most {_size(memory['locked'])}",
        f"/dev/shm   {_size(shm['free'])} free of {_size(shm['total'])}" if shm else "/dev/shm   there is none",
        f"files      {_number(files['soft'])} may be open, {_number(files['hard'])} if raised",
        "start      " + ", ".join(f"{name} {_number(value)}" for name, value in start.items()),
        "extras     " + ", ".join(f"{name} {version or 'not installed'}" for name, version in report["extras"].items()),
        f"mpirun     {report['mpirun'] or 'not installed'}",
        "",
        "advice",
        *(f"  - {words}" for words in report["advice"]),
    ]


def _launcher_text(launcher: dict[str, Any]) -> list[str]:
    if launcher["error"]:
        return [f"launcher   cannot be told: {launcher['error']}"]
    world = launcher["world"]
    lines = [f"launcher   {launcher['name']}"]
    if launcher["variables"]:
        lines.append(f"  because  {_assignments(launcher['variables'])}")
    lines.append(
        f"  world    rank {world['rank']} of {world['ranks']}, local {world['local_rank']} of {world['local_ranks']}, "
        f"node {world['node']} of {world['nodes']}"
    )
    if launcher["replicas"]:
        lines.append("  replicas {local} here from number {offset}, {total} in all".format(**launcher["replicas"]))
    for claim in launcher["disagree"]:
        because = _assignments(claim["variables"])
        lines.append(f"  not      {claim['launcher']}, which says rank {claim['rank']} of {claim['ranks']} ({because})")
    return lines


def _assignments(variables: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in variables.items())


def _size(count: int | None) -> str:
    if count is None:
        return "none"
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count // _MB} MB"


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unlimited" if value is None else str(value)
