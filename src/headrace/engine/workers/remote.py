"""Remote: what a worker process tells of its errors, and its end of itself."""

import signal

from headrace.engine.wire import codec

CAUSES = (
    "Likely causes: out of memory (see dmesg), a crash in native code, or a call to exit() in the dataset; "
    "workers=0 runs everything in this process and shows where"
)


class RemoteTraceback(Exception):
    """The traceback of an error, as it was in the worker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def remote(packed: bytes, text: str) -> BaseException:
    """The error itself, caused by the traceback that it had in the worker."""
    error = codec.load_error(packed)
    error.__cause__ = RemoteTraceback(text)
    return error


def describe_end(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
