"""StreamWrapper: an open file that is closed exactly once, and that can be sent to another process.

It behaves like the file inside it. The members of an archive are *children* of the archive's own stream: the parent
counts them, and after `autoclose()` it closes when its last child does. A stream that is dropped without `close()` is
closed when it is collected, so no file is left open.

It is pickled as a function that opens the file again (`reopen`) and the position in it; without such a function, as the
bytes that are not read yet.
"""

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from headrace.nested import parts
from headrace.secrets import shown

_DEPTH = 10
"""How deep `close_streams` looks into containers."""
_COUNTING = threading.RLock()
"""Guards the counts of children. Re-entrant: a collected child may be closed in the middle of anything."""
_FILES: dict[int, Any] = {}
"""The open file of each wrapper, by the wrapper's id. The garbage collector finalizes objects of a cycle in any order;
files that are listed here are in no cycle, so it is always the wrapper that closes its file."""


class StreamWrapper:
    """A file-like object, closed once; `parent_stream` is the stream that it reads from."""

    session_streams: ClassVar[dict["StreamWrapper", int]] = {}
    debug_unclosed_streams: ClassVar[bool] = False
    """When true, every open wrapper is listed in `session_streams`."""

    def __init__(
        self,
        file_obj: Any,
        parent_stream: "StreamWrapper | None" = None,
        name: str | None = None,
        reopen: Callable[[], Any] | None = None,
    ) -> None:
        # First: __del__ runs even when the constructor refuses its arguments.
        self._open = [True]
        self.replace_file(file_obj)
        self.parent_stream: StreamWrapper | None = None
        self.child_counter = 0
        self.close_on_last_child = False
        self.name = name
        self.reopen = reopen
        if parent_stream is not None:
            if not isinstance(parent_stream, StreamWrapper):
                raise RuntimeError(f"Parent stream should be StreamWrapper, {type(parent_stream)} was given")
            self.parent_stream = parent_stream
            with _COUNTING:
                parent_stream.child_counter += 1
        if StreamWrapper.debug_unclosed_streams:
            StreamWrapper.session_streams[self] = 1

    def replace_file(self, file_obj: Any) -> None:
        """Wrap another file from now on; the caller closes the old one."""
        self.file_obj = _FILES[id(self)] = file_obj

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._open

    @classmethod
    def of(cls, stream: Any, name: str | None = None) -> "StreamWrapper":
        """The stream itself if it is wrapped already, else in a wrapper."""
        return stream if isinstance(stream, StreamWrapper) else StreamWrapper(stream, name=name)

    @classmethod
    def close_streams(cls, value: Any, depth: int = 0) -> None:
        """Close every stream found in a sample of dicts, lists and tuples."""
        if depth > _DEPTH:
            return
        if isinstance(value, StreamWrapper):
            value.close()
        else:
            for part in parts(value):
                cls.close_streams(part, depth + 1)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the file, and the parent if this was its last child and it waits for that."""
        try:
            self._open.pop()  # atomic: of two threads, one closes
        except IndexError:
            return
        StreamWrapper.session_streams.pop(self, None)
        _FILES.pop(id(self), None)
        try:
            close = getattr(self.file_obj, "close", None)
            if close is not None:
                close(*args, **kwargs)
        finally:
            if self.parent_stream is not None:
                self.parent_stream._child_closed()

    def autoclose(self) -> None:
        """Close when the last child closes: at once, if there is none."""
        with _COUNTING:
            self.close_on_last_child = True
            last = self.child_counter == 0
        if last:
            self.close()

    def _child_closed(self) -> None:
        with _COUNTING:
            self.child_counter -= 1
            last = self.child_counter == 0 and self.close_on_last_child
        if last:
            self.close()

    def __getattr__(self, name: str) -> Any:
        # (Of these, an object whose constructor has failed may be asked before it has them.)
        if name in ("file_obj", "_open"):
            raise AttributeError(name)
        return getattr(self.file_obj, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.file_obj)})

    def __iter__(self) -> Iterator[Any]:
        return iter(self.file_obj)

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __enter__(self) -> "StreamWrapper":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", None):
            self.close()

    def __repr__(self) -> str:
        return f"StreamWrapper<{shown(self.name) if self.name is not None else repr(self.file_obj)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise TypeError(f"{self!r} is closed: it cannot travel to another process")
        if self.reopen is not None:
            return reopenable, (self.reopen, self.name, self._position())
        if not isinstance(self.file_obj, io.BytesIO | io.StringIO):
            self._into_memory()
        return StreamWrapper, (self.file_obj, None, self.name)

    def _position(self) -> int:
        try:
            return int(self.file_obj.tell())
        except (OSError, AttributeError) as error:
            raise TypeError(
                f"{self!r} is read in part and cannot say how far ({error}): read it where it is opened"
            ) from error

    def _into_memory(self) -> None:
        """Read the rest into memory, so that the stream can both be pickled and be read here."""
        read = getattr(self.file_obj, "read", None)
        if read is None:
            raise TypeError(f"{self!r} cannot travel to another process: use it in the place where it is made")
        rest = read()
        self.file_obj.close()
        self.replace_file(memory_file(rest))


def reopenable(reopen: Callable[[], Any], name: str | None, position: int = 0) -> StreamWrapper:
    """What `reopen()` opens, at this position, as a stream that another process can open again."""
    file = reopen()
    if position:
        file.seek(position)
    return StreamWrapper(file, name=name, reopen=reopen)


def memory_file(content: bytes | str) -> io.BytesIO | io.StringIO:
    """Bytes or text as a file."""
    return io.StringIO(content) if isinstance(content, str) else io.BytesIO(content)
