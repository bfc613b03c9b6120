"""Ranks under `mpirun` (Open MPI 4), which starts them on all machines; their output is shown as tagged lines.

    headrace run ── mpirun --xml ──┬─ machine 0: sh -c 'RANK=$OMPI_COMM_WORLD_RANK ...; exec program'
       ^  <stdout rank="1">...     └─ machine 1: ...

A shell on each machine sets torch's variables from Open MPI's. Ranks are placed in blocks, host after host.
mpirun's own tags tear lines that are written in pieces, so it is asked for XML: each piece comes with its rank, its
bytes escaped. mpirun ends all ranks when one fails or when it is told to end; its exit code is that of the rank.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections import defaultdict

from headrace.errors import BadOption
from headrace.launch.job import Job, bound_to, stopped_by_signals
from headrace.launch.output import LineSplitter, TaggedOutput
from headrace.ranks import env

_CHUNK = 1 << 16
_PIECE = re.compile(rb"<(stdout|stderr|stddiag)\b([^>]*)>([^<]*)</\1>\n?")
_RANK = re.compile(rb'rank="(\d+)"')
_ESCAPE = re.compile(rb"&(#\d+|lt|gt|amp|quot|apos);")
_NAMED = {b"lt": b"<", b"gt": b">", b"amp": b"&", b"quot": b'"', b"apos": b"'"}
_SET = f"""
export {env.RANK}="${env.OMPI_RANK}" {env.RANKS}="${env.OMPI_RANKS}"
export {env.LOCAL_RANK}="${env.OMPI_LOCAL_RANK}" {env.LOCAL_RANKS}="${env.OMPI_LOCAL_RANKS}"
export {env.GROUP_RANK}="$((RANK / LOCAL_WORLD_SIZE))" {env.GROUP_RANKS}="$((WORLD_SIZE / LOCAL_WORLD_SIZE))"
export {env.OWN_RUN}="$RANK/$WORLD_SIZE"
exec "$@"
"""


def run(job: Job, output: TaggedOutput) -> int:
    """The exit code of the job; see `launch`."""
    command = mpirun_command(job)
    if job.verbose:
        output.say(shlex.join(command))
    stopped: list[signal.Signals] = []
    # mpirun gets SIGTERM when we die, and then ends its ranks
    bound = [*bound_to(os.getpid(), signal.SIGTERM), "0", *command]
    variables = {**env.current(), **job.variables()}
    with subprocess.Popen(bound, env=variables, stdout=subprocess.PIPE, start_new_session=True) as process:

        def stop(number: signal.Signals) -> None:
            stopped.append(number)
            process.terminate()

        assert process.stdout is not None
        output.on_broken = process.terminate
        xml = MpirunXml(output)
        with stopped_by_signals(job, stop):
            while data := os.read(process.stdout.fileno(), _CHUNK):
                xml.feed(data)
            xml.finish()
            code = process.wait()
    if stopped:
        return 128 + stopped[0]
    return code if code >= 0 else 128 - code


def mpirun_command(job: Job) -> list[str]:
    program = shutil.which("mpirun")
    if program is None:
        raise BadOption("--engine mpi: there is no mpirun; install Open MPI (openmpi-bin), or use --engine torch")
    if ":" in job.program:
        raise BadOption("--engine mpi: mpirun takes an argument ':' for its own; use --engine torch")
    try:
        more = shlex.split(job.mpi_global_args)
    except ValueError as error:
        raise BadOption(f"--mpi-global-args {job.mpi_global_args}: {error}; write it as for a shell") from None
    # --oversubscribe: how many ranks a machine runs is what the user says, not how many cores it has
    command = [program, "--xml", "--bind-to", "none", "--map-by", "slot", "--oversubscribe"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    names = [*job.variables()]
    if not job.is_here:
        command += ["--host", ",".join(f"{host}:{job.local_instances}" for host in job.hosts)]
        names += [name for name in env.FORWARDED if name in env.current()]
    for name in names:
        command += ["-x", name]
    command += ["-x", f"{env.MASTER_ADDR}={job.hosts[0]}", "-x", f"{env.MASTER_PORT}={free_port()}"]
    return [*command, *more, "-np", str(job.num_instances), "/bin/sh", "-c", _SET, "sh", *job.program]


class MpirunXml:
    """Parses mpirun's XML: the output of ranks is shown as theirs, messages of mpirun itself without a tag."""

    def __init__(self, output: TaggedOutput) -> None:
        self._output = output
        self._rest = b""
        self._lines: defaultdict[tuple[int, str], LineSplitter] = defaultdict(LineSplitter)

    def feed(self, data: bytes) -> None:
        self._rest += data
        end = 0
        for piece in _PIECE.finditer(self._rest):
            stream, attributes, escaped = piece.groups()
            text = _ESCAPE.sub(_character, escaped)
            if rank := _RANK.search(attributes):
                source = int(rank[1]), "stdout" if stream == b"stdout" else "stderr"
                self._output.show(*source, self._lines[source].feed(text))
            else:
                self._output.say_as_it_is(text)
            end = piece.end()
        self._rest = self._rest[end:]

    def finish(self) -> None:
        for source, lines in self._lines.items():
            self._output.show(*source, lines.finish())


def _character(escape: "re.Match[bytes]") -> bytes:
    """`&#195;` is a byte, not a character."""
    return _NAMED.get(escape[1]) or bytes([int(escape[1][1:])])


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taker:
        taker.bind(("", 0))
        port: int = taker.getsockname()[1]
        return port
