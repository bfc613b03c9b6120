"""The first moments of a rank (or of mpirun): tie it to its parent, then become the program.

Run as a script by path (no site, no headrace: about 10 ms), never imported by it:

    python -I -S rank.py PARENT SIGNAL LOCAL_RANK program args...

When the process PARENT ends in any way, even by SIGKILL, we get SIGNAL (Linux). Its standard input is for the first of
its ranks, as with mpirun; for the others it is empty.
Exit codes as in a shell: 127 when the program is not found, 126 when it cannot be run.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    parent, death, local_rank, *program = argv
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(death), 0, 0, 0)
        if os.getppid() != int(parent):  # it ended before we asked to be told
            return 128 + int(death)
    if local_rank != "0":
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and a program would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"headrace run: cannot start {program[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
