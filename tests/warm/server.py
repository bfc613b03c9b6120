"""The process that has imported torch, and forks a program for each request (see the package)."""

import gc
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

MODULES = ("numpy", "torch", "torch.distributed", "torch.utils.data")
LARGEST = 1 << 18


def serve(channel: socket.socket) -> list[str]:
    """Forks for each request and never returns; in the fork it returns the program's command line."""
    for module in MODULES:
        __import__(module)
    gc.collect()
    gc.freeze()  # a fork neither looks through what is imported, nor copies it for that
    running: dict[int, socket.socket] = {}
    ends, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    while True:
        ready, _, _ = select.select([channel, ends], [], [])
        if ends in ready:
            os.read(ends, 4096)
            tell_ends(running)
            continue
        data, descriptors, _, _ = socket.recv_fds(channel, LARGEST, 3)
        if not data:
            while running:
                tell_ends(running, wait=True)
            os._exit(0)
        asked = socket.socket(fileno=descriptors.pop())
        if pid := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            running[pid] = asked
            asked.send(str(pid).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for end in (channel, asked, *running.values()):
            end.close()
        os.close(ends)
        os.close(woken)
        for target, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        request = json.loads(data)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["folder"])
        return list(request["argv"])


def tell_ends(running: dict[int, socket.socket], wait: bool = False) -> None:
    """Tells whoever asked for them how programs have ended."""
    while running:
        pid, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as asked:
            try:
                asked.send(str(os.waitstatus_to_exitcode(status)).encode())
            except BrokenPipeError:
                pass  # whoever asked is gone


if __name__ == "__main__":
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.path[0] = str(Path(sys.argv[0]).parent)
    __file__ = sys.argv[0]
    exec(compile(Path(__file__).read_text(), __file__, "exec"), globals())
