"""Anonymous memory that is written once, sealed, and then only read.

    SegmentWriter --finish--> Segment --address--> (token, places) --reopen--> Segment in another process
    one writer                any number of readers

    | magic | token | place of the contents |  blocks ...  | contents: JSON, one entry a column |

The memory has no name in any file system, so nothing is left behind when processes are killed. On Linux it is a memfd,
sealed against writing, growing and shrinking: a reader can neither change it nor be hurt by a change. Elsewhere it is
a temporary file that is unlinked as soon as it is made; such memory travels by fork only.

An address names the processes that hold the memory open and the number of their descriptor: the process that made it,
and the one that pickled the address. It is opened through /proc/<pid>/fd/<fd>, which the kernel allows to the same user
only, and a random token in the header shows that the descriptor is still the right one.
"""

import json
import mmap as mmap_names
import os
import weakref
from collections.abc import Iterable
from mmap import ACCESS_COPY, MAP_SHARED, PROT_READ, mmap
from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.errors import Closed, NotPicklable
from headrace.memory.arena import LINUX, memfd

if TYPE_CHECKING:
    from typing_extensions import Buffer

NAME = "headrace-share"
HEADER = Struct("<8s16sQQ")
MAGIC = b"hrshare1"

Descriptor = tuple[int, int]
Address = tuple[bytes, tuple[Descriptor, ...]]
Array = tuple[str, int, int]
"""Numbers in the segment: their struct format, where they start, how many there are."""

POPULATE: int = getattr(mmap_names, "MAP_POPULATE", 0)


class SegmentWriter:
    """Writes a segment: blocks one after another, straight into its memory."""

    def __init__(self) -> None:
        fd = memfd(NAME)
        self._file = open(fd, "wb", buffering=1 << 20)  # noqa: SIM115 - closed by finish or discard
        try:
            # A second, read-only description: what is mapped through it can never be made writable.
            path = f"/proc/self/fd/{fd}"
            self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if LINUX else os.dup(fd)
        except BaseException:
            self._file.close()
            raise
        self._token = os.urandom(16)
        self._end = self._file.write(bytes(HEADER.size))

    def put(self, data: "Buffer", align: int = 1) -> int:
        """Append bytes; returns where they start."""
        gap = -self._end % align
        if gap:
            self._file.write(bytes(gap))
        start = self._end + gap
        self._end = start + self._file.write(data)
        return start

    @property
    def end(self) -> int:
        return self._end

    def finish(self, contents: list[list[Any]]) -> "Segment":
        encoded = json.dumps(contents, separators=(",", ":")).encode()
        start = self.put(encoded)
        self._file.seek(0)
        self._file.write(HEADER.pack(MAGIC, self._token, start, len(encoded)))
        self._file.flush()
        if LINUX:
            from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, fcntl

            fcntl(self._file.fileno(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL)
        self._file.close()
        reader, self._reader = self._reader, -1  # it is the segment's from here on
        return Segment(reader, self._token, (os.getpid(), reader), made_here=True)

    def discard(self) -> None:
        try:
            self._file.close()
        finally:
            if self._reader >= 0:
                os.close(self._reader)


class Segment:
    """Sealed memory, mapped in this process. The mapping lives as long as any view of it."""

    def __init__(self, fd: int, token: bytes, maker: Descriptor, *, made_here: bool) -> None:
        self.fd = fd
        self.token = token
        self.maker = maker
        weakref.finalize(self, os.close, fd).atexit = False
        # The maker maps every page now: pages that only one process has mapped count as its private memory, and with
        # the maker's mapping beside it no page is ever counted as private memory of a reader.
        self.memory = mmap(fd, 0, prot=PROT_READ, flags=MAP_SHARED | (POPULATE if made_here else 0))
        _, _, start, length = HEADER.unpack_from(self.memory)
        self.contents: list[list[Any]] = json.loads(self.memory[start : start + length])
        self._scratch: mmap | None = None
        self.columns: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        _live[token] = self

    def table(self, table: Iterable[Any]) -> "memoryview[Any]":
        form, start, count = table
        return memoryview(self.memory)[start : start + count * Struct(form).size].cast(form)

    def scratch(self) -> mmap:
        """The same bytes as a writable mapping: a page that is written to becomes a private copy of this process."""
        if self._scratch is None:
            self._scratch = mmap(self.fd, 0, access=ACCESS_COPY)
        return self._scratch

    def address(self) -> Address:
        """Where another process finds this memory."""
        if not LINUX:
            raise NotPicklable(
                "a shared object cannot be pickled on this system: its memory travels by fork only. "
                "Start the workers with 'fork', or pickle copy.deepcopy(it), which is a plain copy"
            )
        here = (os.getpid(), self.fd)
        return self.token, (self.maker,) if self.maker == here else (self.maker, here)


def reopen(token: bytes, places: tuple[Descriptor, ...]) -> Segment:
    """The segment at an address: one that this process has open already, or opened through a process that has it."""
    segment = _live.get(token)
    if segment is not None:
        return segment
    for place in places:
        fd = open_shared(*place, NAME, MAGIC + token)
        if fd is not None:
            return Segment(fd, token, places[0], made_here=False)
    holders = " or ".join(str(pid) for pid, _ in places)
    raise Closed(
        f"the memory of this shared object is gone: process {holders} has ended, has let go of the object, or is not "
        "visible from here (another machine, container or user). Keep the object that headrace.share() returned alive "
        "for as long as others open it, and call share() once on every machine"
    )


def open_shared(pid: int, number: int, name: str, start: bytes, mode: int = os.O_RDONLY) -> int | None:
    """A descriptor of the memory that another process has under `number`, if it has that name and begins with `start`;
    None if not."""
    path = f"/proc/{pid}/fd/{number}"
    try:
        # Looked at before it is opened: the number may be a pipe by now, and opening that would wait.
        if not os.readlink(path).startswith(f"/memfd:{name}"):
            return None
        fd = os.open(path, mode | os.O_CLOEXEC)
    except OSError:
        return None  # another machine, or that process is gone
    if os.pread(fd, len(start), 0) == start:
        return fd
    os.close(fd)
    return None


_live: "weakref.WeakValueDictionary[bytes, Segment]" = weakref.WeakValueDictionary()
