"""Arrow streams as files: record batches by number, though a stream has no table of them.

    | schema | batch | batch | ... | end |

Hugging Face writes its data sets like this. The file is mapped, and only the headers of the messages are read to find
where the batches begin: each header says how long its message is. A batch is validated before it is used, so a damaged
one is an error.
"""

from functools import lru_cache
from typing import Any

from headrace.errors import BadPipe
from headrace.sources.bytes import FileState, mapped
from headrace.tables.packages import pa

MAGIC = b"ARROW1"
"""What an Arrow file begins with; a stream does not."""


def _mapped(path: str) -> Any:
    """A local file, of which only what is looked at is read."""
    return pa.BufferReader(mapped(path))


class ArrowStream:
    """A stream in a local file, asked like pyarrow's `RecordBatchFileReader`. Nothing is open between two batches."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self._starts: list[int] = []
        """The first byte of each record batch."""
        self._batches: list[Any] | None = None
        """The batches themselves, where they share dictionaries and so cannot be read one by one."""
        dictionaries = False
        with _mapped(path) as file:
            self.schema = pa.ipc.read_schema(file)
            while (at := file.tell()) < size:
                try:
                    message = pa.ipc.read_message(file)
                except EOFError:
                    break
                if message.type == "record batch":
                    self._starts.append(at)
                dictionaries |= message.type == "dictionary"
        self.num_record_batches = len(self._starts)
        if dictionaries:
            with _mapped(path) as file, pa.ipc.open_stream(file) as reader:
                self._batches = list(reader)
            for batch in self._batches:
                batch.validate(full=True)

    def get_batch(self, number: int) -> Any:
        if number >= self.num_record_batches:
            raise BadPipe(f"{self.path} has lost batches since the pipe was made: make it again")
        if self._batches is not None:
            return self._batches[number]
        with _mapped(self.path) as file:
            file.seek(self._starts[number])
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), self.schema)
        batch.validate(full=True)
        return batch


@lru_cache(maxsize=1024)
def arrow_stream(path: str, state: FileState) -> ArrowStream:
    """The stream in a file that was like this; it is walked through once."""
    return ArrowStream(path, state.size)
