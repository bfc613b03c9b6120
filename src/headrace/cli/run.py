"""`headrace run [options] program args...`: one program on many processes, on one machine or several.

Options come first; the first word that is no option is the program, and all that follows belongs to it.
A switch may be written `--numa-aware`, `--numa-aware=yes`, `--no-numa-aware`, `--numa-aware=no`.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from headrace.errors import BadOption, meant
from headrace.launch.job import Job, launch

_YES, _NO = ("yes", "1", "true", "on"), ("no", "0", "false", "off")

_HARDWARE = "hardware is handed out by the scheduler, not by this launcher; leave it out"
_CONFIG = "options are not kept in files; write them on the command line, or the whole command in a script"
# Options of PopRun that are not here, each with the reason that is given when it is used.
_REFUSED = {
    "--vipu": _HARDWARE,
    "--num-ilds": _HARDWARE,
    "--update-partition": _HARDWARE,
    "--reset-partition": _HARDWARE,
    "--remove-partition": _HARDWARE,
    "--ipus-per-replica": "a replica's devices are chosen by the program; leave it out",
    "--executable-cache-path": "nothing is compiled here; leave it out",
    "--allow-run-as-root": "it is not needed here; leave it out",
    "--synchronise": "files are not copied to other machines; use a shared file system or your own copy",
    "--import-config": _CONFIG,
    "--export-config": _CONFIG,
    "--overwrite-config": _CONFIG,
    "--distribute-ssh-key": "keys are not copied to other machines; use ssh-copy-id",
}


def main(argv: list[str]) -> int:
    parser = _parser()
    parsed = vars(parser.parse_args(_words(parser, argv)))
    if parsed["program"][:1] == ["--"]:
        del parsed["program"][0]
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in parsed.items()
    }
    job = Job(**options)
    _check_program(job)
    if job.print_topology:
        print(job.picture(), flush=True)
        if not job.program:
            return 0
    return launch(job, sys.stdout.buffer, sys.stderr.buffer)


def _words(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """What argparse takes: `--switch=yes` as `--switch`, `--switch=no` as `--no-switch`, all up to the program.

    An option that is not known is refused here: argparse would take its value for the program, and say less.
    """
    known = parser._option_string_actions
    words: list[str] = []
    rest = list(argv)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        for refused, reason in _REFUSED.items():
            if name.startswith(refused):
                raise BadOption(f"{name}: {reason}")
        if name.startswith("--") and name not in known:
            raise BadOption(f"there is no option {name}{meant(name, list(known), 'see --help')}")
        action = known.get(name)
        if equals and isinstance(action, argparse.BooleanOptionalAction):
            if value.lower() not in (*_YES, *_NO):
                raise BadOption(f"{word}: write yes or no")
            word = name if value.lower() in _YES else f"--no-{name.removeprefix('--')}"
        words.append(word)
        if rest and not equals and action is not None and action.nargs != 0:
            words.append(rest.pop(0))  # its value
    return words + rest


def _check_program(job: Job) -> None:
    """Refuse a program that cannot be started; for a Python file that is not executable, say how to start it."""
    first = job.program[0] if job.program else ""
    if first.endswith(".py") and Path(first).is_file() and shutil.which(first) is None:
        raise BadOption(f"{first} is not a program by itself; write: headrace run ... python {' '.join(job.program)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace run",
        usage="headrace run [options] program [args ...]",
        description="Start a program on many processes. Its output is tagged with the rank, line by line; "
        "the first process that fails ends all others and gives the exit code.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    switch = argparse.BooleanOptionalAction
    add = parser.add_argument
    add("--num-instances", type=int, metavar="N", help="processes in the whole job (1)")
    add("--num-replicas", type=int, metavar="N", help="model replicas in the whole job, a multiple of the processes")
    add("--engine", help="torch (its elastic agent) or mpi (mpirun); mpi when --host names other machines")
    add("-H", "--host", metavar="HOSTS", help="machines, such as h0,h1 or h[0-2,4]; processes are spread evenly")
    add("--hostfile", metavar="FILE", help="the same, one machine a line")
    add("--host-subnet", metavar="NETWORK", help="the network between machines, such as 10.1.0.0/16")
    add("--nnodes", metavar="N", help="machines that each run this command, N or MIN:MAX (1)")
    add("--node-rank", type=int, metavar="K", help="which of them this is; left out, the order of arrival decides")
    add("--rdzv-endpoint", metavar="HOST:PORT", help="where they meet, the same on each")
    add("--rdzv-id", metavar="NAME", help="the name of the job at that place (headrace)")
    add("--max-restarts", type=int, metavar="N", help="start all processes again so many times after a failure (0)")
    add("--numa-aware", action=switch, help="bind processes to NUMA nodes, round robin")
    add("--print-topology", action=switch, help="print which machine runs which processes and replicas")
    add("--only-output-from-instance", type=int, metavar="N", help="show this one; of others, stderr if they fail")
    add("--tag-output", action=switch, help="tag lines as PopRun does, [1,0]<stdout>:, instead of [rank 0]")
    add("--offline-mode", action=switch, help="hide all accelerators from the program")
    add("--env", action="append", metavar="NAME[=VALUE]", help="set, or pass on, a variable; may come several times")
    add("--mpi-global-args", metavar="ARGS", help="more arguments for mpirun, for the whole job")
    add("--mpi-local-args", metavar="ARGS", help="more arguments for mpirun, for each process")
    add("-v", "--verbose", action="count", help="say what is started and how; -vv more")
    add("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser
