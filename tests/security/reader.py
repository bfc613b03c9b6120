"""Reads one file in a process of its own, and tells what came of it, and the memory and the time that it took."""

import io
import json
import pickle
import resource
import sys
from typing import Any

from headrace import Pipe
from headrace.sources.stream import StreamWrapper

SECONDS = 5
"""Of processor time, after the start of the interpreter. Whatever takes a second more is killed."""
ADDRESSES = 8 << 30
"""Bytes of address space: so that this machine survives a file that is not refused."""
SHOWN = 100


class OneWay(io.RawIOBase):
    """A file that cannot seek, as a connection."""

    def __init__(self, path: str) -> None:
        self._inner = open(path, "rb")  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._inner.readinto(buffer)

    def close(self) -> None:
        self._inner.close()
        super().close()


def opened(path: str) -> Pipe[Any]:
    return Pipe.files(path).open_files("rb")


def passing(path: str) -> Pipe[Any]:
    """The file as a stream that cannot seek."""
    return Pipe.of([(path, OneWay(path))])


def plain(sample: Any) -> Any:
    """A sample with its streams read, as JSON has it."""
    if isinstance(sample, StreamWrapper):
        with sample:
            return plain(sample.read())
    if isinstance(sample, dict):
        return {str(key): plain(value) for key, value in sample.items()}
    if isinstance(sample, list | tuple):
        return [plain(part) for part in sample[:SHOWN]]
    if hasattr(sample, "shape"):
        return f"{sample.dtype}{list(sample.shape)}"
    return sample.decode("latin-1")[:SHOWN] if isinstance(sample, bytes) else sample


def used() -> float:
    """Seconds of the processor, of this process and of those that it started and that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main(path: str, expression: str) -> None:
    begun = used()
    resource.setrlimit(resource.RLIMIT_CPU, (int(begun) + 1 + SECONDS, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    told: dict[str, Any] = {}
    try:
        names = {**globals(), "path": path, "pickle": pickle}
        told["samples"] = [plain(sample) for sample in eval(expression, names)]
    except Exception as error:
        told["error"] = type(error).__name__
        told["text"] = "\n".join([str(error), *getattr(error, "__notes__", ())])
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM"))
    kilobytes = int(line.split()[1]) + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    told["megabytes"] = kilobytes * 1024 // 10**6
    told["seconds"] = used() - begun
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
