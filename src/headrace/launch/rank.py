"""The first moments of a rank: tie it to its parent and its NUMA node, then become the program.

Run as a script by path (no site, no headrace: about 10 ms), never imported by it:

    python -I -S rank.py PARENT SIGNAL LOCAL_RANK program args...

PARENT      the process that starts us, 0 for any; when it ends in any way, even by SIGKILL, we get SIGNAL (Linux)
LOCAL_RANK  bind to NUMA node number LOCAL_RANK modulo the number of nodes; "-" to stay as we are

Exit codes as in a shell: 127 when the program is not found, 126 when it cannot be run.
"""

import os
import signal
import sys
from pathlib import Path

_NODES = Path("/sys/devices/system/node")
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    parent, death, local_rank, *program = argv
    if sys.platform == "linux" and int(parent):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(death), 0, 0, 0)
        if os.getppid() != int(parent):  # it ended before we asked to be told
            return 128 + int(death)
    if local_rank != "-":
        nodes = numa_nodes(_NODES)
        os.sched_setaffinity(0, nodes[int(local_rank) % len(nodes)])
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and a program would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"headrace run: cannot start {program[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def numa_nodes(folder: Path = _NODES) -> list[set[int]]:
    """The CPUs of each NUMA node that this process may use; a machine that says nothing is one node."""
    allowed = os.sched_getaffinity(0)
    numbered = sorted(folder.glob("node[0-9]*"), key=lambda path: int(path.name.removeprefix("node")))
    nodes = [allowed & _cpus((path / "cpulist").read_text()) for path in numbered]
    return [cpus for cpus in nodes if cpus] or [allowed]


def _cpus(text: str) -> set[int]:
    """The kernel's `0-3,8` is {0, 1, 2, 3, 8}."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
