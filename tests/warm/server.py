"""The process that has imported torch, and forks a program for each request (see the package)."""

import gc
import json
import os
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
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, LARGEST, 2)
        if not data:
            os._exit(0)
        if pid := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        os.setsid()
        channel.close()
        for target, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        request = json.loads(data)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["folder"])
        return list(request["argv"])


if __name__ == "__main__":
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.path[0] = str(Path(sys.argv[0]).parent)
    __file__ = sys.argv[0]
    exec(compile(Path(__file__).read_text(), __file__, "exec"), globals())
