"""`headrace run [options] program args...`: one program on many processes, on one machine or several.

Options come first; the first word that is no option is the program, and all that follows belongs to it.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import BadOption, meant
from headrace.launch.job import Job, launch

_CONFIG = "options are not kept in files; write them on the command line, or the whole command in a script"
# Options of PopRun, and of headrace before 0.3, each with the reason that is given when it is used.
_REFUSED = {
    "--vipu": "hardware is handed out by the scheduler, not by this launcher; leave it out",
    "--ipus-per-replica": "a replica's devices are chosen by the program; leave it out",
    "--import-config": _CONFIG,
    "--export-config": _CONFIG,
    "--overwrite-config": _CONFIG,
    "--tag-output": "lines are always tagged so; leave it out",
    "--print-topology": "replicas are spread evenly over instances, and these over machines, in order; leave it out",
    "--numa-aware": "start the program with numactl: headrace run ... sh -c 'exec numactl -N $LOCAL_RANK python x.py'",
    "--offline-mode": "hide accelerators by a variable: CUDA_VISIBLE_DEVICES= headrace run ...",
    "--env": "set variables before the command, NAME=VALUE headrace run ...; to other machines mpirun passes them "
    "with --mpi-global-args '-x NAME'",
    "--hostfile": "write the names, --host h0,h1, or --host $(paste -sd, FILE)",
    "--host-subnet": "write --mpi-global-args '--mca btl_tcp_if_include NETWORK', or set GLOO_SOCKET_IFNAME",
    "--rdzv-id": "a job has an --rdzv-endpoint of its own; leave it out",
}


def main(argv: list[str]) -> int:
    parser = _parser()
    _check_options(argv, parser._option_string_actions)
    options = vars(parser.parse_args(argv))
    program = options.pop("program")
    job = Job(**options, program=tuple(program[1:] if program[:1] == ["--"] else program))
    _check_program(job)
    return launch(job)


def _check_options(argv: list[str], known: Mapping[str, argparse.Action]) -> None:
    """Refuse what is not known before argparse takes its value for the program, and says less."""
    words = iter(argv)
    for word in words:
        if not word.startswith("-") or word == "--":
            return
        name, equals, _ = word.partition("=")
        for refused, reason in _REFUSED.items():
            if name.startswith(refused) and name not in known:
                raise BadOption(f"{name}: {reason}")
        if name.startswith("--") and name not in known:
            raise BadOption(f"there is no option {name}{meant(name, list(known), 'see --help')}")
        if name in known and known[name].nargs != 0 and not equals:
            next(words, None)  # its value


def _check_program(job: Job) -> None:
    """Refuse a program that cannot be started; for a Python file that is not executable, say how to start it."""
    first = job.program[0] if job.program else ""
    if first.endswith(".py") and Path(first).is_file() and shutil.which(first) is None:
        raise BadOption(f"{first} is not a program by itself; write: headrace run ... python {' '.join(job.program)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace run",
        usage="headrace run [options] program [args ...]",
        description="Start a program on many processes. Each line that it writes is tagged with rank and stream; the "
        "first process that fails ends all others and gives the exit code.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--num-instances", type=int, metavar="N", help="processes in the whole job (1)")
    add("--num-replicas", type=int, metavar="N", help="model replicas in the whole job, a multiple of the processes")
    add("--max-restarts", type=int, metavar="N", help="start all processes again so many times after a failure (0)")
    add("--only-output-from-instance", type=int, metavar="N", help="show this one; of the others, what goes to stderr")
    add("--nnodes", metavar="N", help="machines that each run this command, N or MIN:MAX (1)")
    add("--node-rank", type=int, metavar="K", help="which of them this is; left out, the order of arrival decides")
    add("--rdzv-endpoint", metavar="HOST:PORT", help="where they meet, the same on each; HOST is one of them")
    add("--engine", help="torch (its elastic agent) or mpi (mpirun); mpi when --host names other machines")
    add("-H", "--host", metavar="HOSTS", help="machines for mpirun, such as h0,h1; processes are spread evenly")
    add("--mpi-global-args", "--mpi-local-args", metavar="ARGS", help="more arguments for mpirun")
    add("-v", "--verbose", action="count", help="say what is started and how")
    add("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser
