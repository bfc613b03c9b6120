"""Ranks under `mpirun` (Open MPI 4); their output is shown as tagged lines.

    headrace run ── mpirun --xml ──┬─ machine 0: env RANK=0 ... program
       ^  pipe: <stdout rank="1">..└─ machine 1: env RANK=1 ... program

mpirun's own tags break lines where its buffers end and where a progress bar returns, so it is asked for XML instead:
each piece comes with its rank and its bytes escaped, and TaggedOutput makes whole lines of them. Each rank is a section
of its own (`-np 1 ... : -np 1 ...`), because each has its own variables; `env` sets them, which works on every machine.
Ranks are placed in blocks, host after host. mpirun ends all ranks when one fails, and its exit code is that rank's.
"""

import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import BadOption
from headrace.launch import hosts as launch_hosts
from headrace.launch.job import Job, bound_to, stop_signals
from headrace.launch.output import TaggedOutput
from headrace.launch.sessions import end_sessions
from headrace.ranks import env

_GRACE_SECONDS = 30.0
_CHUNK = 1 << 16
_PIECE = re.compile(rb"<(stdout|stderr|stddiag)\b([^>]*)>([^<]*)</\1>\n?")
_ESCAPE = re.compile(rb"&(#\d+|lt|gt|amp|quot|apos);")
_NAMED = {b"lt": b"<", b"gt": b">", b"amp": b"&", b"quot": b'"', b"apos": b"'"}
_FAILED = re.compile(r"Process name: \[\[\d+,\d+\],(\d+)\]|process rank (\d+) with PID.*?on signal (\d+)", re.DOTALL)


def run(job: Job, output: TaggedOutput) -> int:
    """The exit code of the job; see `launch`."""
    command = mpirun_command(job)
    if job.verbose:
        output.say(f"headrace: {shlex.join(command)}")
    with _signals_wake() as woken:
        # mpirun gets SIGTERM when we die, and then ends its ranks
        command = [*bound_to(os.getpid(), signal.SIGTERM), "-", *command]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            try:
                stopped, said = _forward_output(process, woken, output)
            finally:
                end_sessions([process.pid])
    code = process.returncode
    if stopped:
        return 128 + stopped
    if code == 0:
        return 0
    code = code if code > 0 else 128 - code
    failed = _FAILED.search(said)
    for rank in [int(failed[1] or failed[2])] if failed else range(job.num_instances):
        output.show_hidden(rank)  # mpirun does not always say who failed: then nothing is hidden
    who = f"rank {failed[1] or failed[2]}" if failed else "a rank"
    how = f"was ended by signal {failed[3]}" if failed and failed[3] else f"failed with exit code {code}"
    output.say(f"headrace: {who} {how}; the others were ended")
    return code


def mpirun_command(job: Job) -> list[str]:
    """One section for each rank."""
    program = shutil.which("mpirun")
    if program is None:
        raise BadOption("--engine mpi: there is no mpirun; install Open MPI (openmpi-bin), or use --engine torch")
    if ":" in job.program:
        raise BadOption("--engine mpi: mpirun takes an argument ':' for its own; use --engine torch")
    local = job.local_instances
    here = launch_hosts.are_here(job.hosts)
    # --oversubscribe: how many ranks a machine runs is what the user says, not how many cores it has
    command = [program, "--xml", "--bind-to", "none", "--map-by", "slot", "--oversubscribe"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if not here:
        command += ["--host", ",".join(f"{host}:{local}" for host in job.hosts)]
    if job.host_subnet:
        command += ["--mca", "btl_tcp_if_include", job.host_subnet, "--mca", "oob_tcp_if_include", job.host_subnet]
    command += shlex.split(job.mpi_global_args)
    address, port = job.endpoint or (_first_address(job), launch_hosts.free_port())
    environ = env.current()
    forwarded = {} if here else {name: environ[name] for name in env.FORWARDED if name in environ}
    for rank in range(job.num_instances):
        variables = forwarded | {
            env.RANK: str(rank),
            env.RANKS: str(job.num_instances),
            env.LOCAL_RANK: str(rank % local),
            env.LOCAL_RANKS: str(local),
            env.GROUP_RANK: str(rank // local),
            env.GROUP_RANKS: str(len(job.hosts)),
            env.MASTER_ADDR: address,
            env.MASTER_PORT: str(port),
        }
        variables |= job.variables(rank, job.num_instances, environ)
        if rank:
            command.append(":")
        command += ["-np", "1", *shlex.split(job.mpi_local_args)]
        command += ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]
        command += [*bound_to(0, 0), str(rank % local)] if job.numa_aware else []
        command += job.program
    return command


def _first_address(job: Job) -> str:
    """Where rank 0 listens."""
    here = job.hosts[0] in {"localhost", socket.gethostname()}
    return job.interface[1] if here and job.interface else job.hosts[0]


@contextmanager
def _signals_wake() -> Iterator[socket.socket]:
    """Signals arrive as bytes in a socket, so that the loop waits for them as for everything else."""
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    with wake, woken, stop_signals(lambda *_: None):
        old = signal.set_wakeup_fd(wake.fileno())
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(old)


def _forward_output(process: "subprocess.Popen[bytes]", woken: socket.socket, output: TaggedOutput) -> tuple[int, str]:
    """Show output until mpirun has ended; returns the signal that stopped us (0 for none), and mpirun's messages."""
    out, err = process.stdout, process.stderr
    assert out is not None
    assert err is not None
    xml = MpirunXml(output)
    stopped, deadline = 0, None
    with selectors.DefaultSelector() as selector:
        for stream in (out, err, woken):
            selector.register(stream, selectors.EVENT_READ)
        while len(selector.get_map()) > 1:
            ready = selector.select(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if deadline is not None and time.monotonic() >= deadline:
                process.kill()
            for key, _ in ready:
                if key.fileobj is woken:
                    number = woken.recv(1)[0]
                    if stopped:
                        process.kill()
                    stopped = stopped or number
                elif not (data := os.read(key.fd, _CHUNK)):
                    selector.unregister(key.fileobj)
                elif key.fileobj is out:
                    xml.feed(data)
                else:
                    xml.untagged(data)
            if (stopped or output.broken) and deadline is None:
                deadline = time.monotonic() + _GRACE_SECONDS
                process.terminate()
    xml.finish()
    process.wait()
    return stopped, xml.said.decode(errors="replace")


class MpirunXml:
    """Parses mpirun's XML: the output of ranks is shown as theirs, messages of mpirun itself without a tag."""

    def __init__(self, output: TaggedOutput) -> None:
        self.said = b""
        self._output = output
        self._rest = b""
        self._seen: set[tuple[int, str]] = set()

    def feed(self, data: bytes) -> None:
        self._rest += data
        end = 0
        for piece in _PIECE.finditer(self._rest):
            stream, attributes, text = piece.groups()
            rank = re.search(rb'rank="(\d+)"', attributes)
            if rank:
                name = "stdout" if stream == b"stdout" else "stderr"
                self._seen.add((int(rank[1]), name))
                self._output.feed(int(rank[1]), name, _unescape(text))
            else:
                self.untagged(_unescape(text))
            end = piece.end()
        self._rest = self._rest[end:]

    def untagged(self, text: bytes) -> None:
        self.said = (self.said + text)[-_CHUNK:]
        self._output.untagged(text)

    def finish(self) -> None:
        for rank, name in sorted(self._seen):
            self._output.finish(rank, name)


def _unescape(text: bytes) -> bytes:
    """`&#195;` is a byte, not a character."""
    return _ESCAPE.sub(lambda found: _NAMED.get(found[1]) or bytes([int(found[1][1:])]), text)
