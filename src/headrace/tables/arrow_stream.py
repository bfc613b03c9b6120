"""Arrow streams as files: record batches by number, though a stream has no table of them.

    | schema | batch | batch | ... | end |

Hugging Face writes its data sets like this. Where the batches begin is found by walking through the heads of the
messages, which say how long each is; of the file, which is mapped, no more than that is looked at. A batch that is
damaged is an error: what it says of its own buffers is checked before anything follows it.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from headrace.errors import BadPipe
from headrace.sources.stored.form import FileState
from headrace.tables.packages import package

MAGIC = b"ARROW1"
"""What an Arrow file begins with; a stream does not."""


class _Walked(NamedTuple):
    """What walking through a stream has found."""

    schema: Any
    starts: tuple[int, ...]
    """The first byte of each record batch."""
    batches: tuple[Any, ...] | None
    """The batches themselves, where they share dictionaries and so cannot be read one by one."""


class ArrowStream:
    """A stream in a local file, asked like pyarrow's `RecordBatchFileReader`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._walked = _walked(path, FileState.of(path))
        self.schema = self._walked.schema
        self.num_record_batches = len(self._walked.starts)

    def get_batch(self, number: int) -> Any:
        if number >= self.num_record_batches:
            raise BadPipe(f"{self.path} has lost batches since the pipe was made: make it again")
        if self._walked.batches is not None:
            return self._walked.batches[number]
        pa = package("pyarrow")
        with pa.memory_map(self.path) as file:
            file.seek(self._walked.starts[number])
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), self.schema)
        batch.validate(full=True)
        return batch

    def __enter__(self) -> "ArrowStream":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open between two batches."""


@lru_cache(maxsize=1024)
def _walked(path: str, state: FileState) -> _Walked:
    pa = package("pyarrow")
    with pa.memory_map(path) as file:
        schema = pa.ipc.read_schema(file)
        starts = []
        dictionaries = False
        at = file.tell()
        while at < state.size:
            try:
                message = pa.ipc.read_message(file)
            except EOFError:
                break
            if message.type == "record batch":
                starts.append(at)
            dictionaries |= message.type == "dictionary"
            at = file.tell()
    whole = None
    if dictionaries:
        with pa.memory_map(path) as file, pa.ipc.open_stream(file) as reader:
            whole = tuple(reader)
        for batch in whole:
            batch.validate(full=True)
    return _Walked(schema, tuple(starts), whole)
