"""Arrow arrays in memory that several processes share: written as one Arrow stream, read in place.

Rows that are taken from such arrays must not refer to the memory any longer, since another unit may be written there.
`take` copies most Arrow types; `stays_behind` says which it does not.
"""

import struct
from collections.abc import Mapping
from typing import Any

from headrace.tables.convert.arrow_types import inner_types, is_list_view
from headrace.tables.packages import pa

LENGTH = struct.Struct("<q")
ALIGN = 64
"""Bytes before a stream that has its length in front: Arrow's buffers are aligned to so many."""


def write_stream(sink: Any, arrays: Mapping[str, Any]) -> None:
    """The columns as one Arrow stream into a file of pyarrow's."""
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_stream(memory: memoryview) -> dict[str, Any]:
    """The arrays of a stream; they look into this memory."""
    with pa.ipc.open_stream(pa.py_buffer(memory)) as reader:
        batch = reader.read_next_batch()
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def bytes_of(arrays: Mapping[str, Any]) -> int:
    """Bytes that `store` needs for these columns."""
    sink = pa.MockOutputStream()
    write_stream(sink, arrays)
    return ALIGN + int(sink.size())


def store(memory: memoryview, arrays: Mapping[str, Any]) -> None:
    """Write the columns into this memory, with their length in front; 0 if they do not fit."""
    size = bytes_of(arrays)
    LENGTH.pack_into(memory, 0, size if size <= len(memory) else 0)
    if size <= len(memory):
        with pa.FixedSizeBufferWriter(pa.py_buffer(memory[ALIGN:])) as sink:
            write_stream(sink, arrays)


def stored(memory: memoryview) -> dict[str, Any] | None:
    """The arrays that lie in this memory; None if they did not fit."""
    (size,) = LENGTH.unpack_from(memory)
    if not size:
        return None
    return {name: _own_dictionary(array) for name, array in read_stream(memory[ALIGN:size]).items()}


def _own_dictionary(array: Any) -> Any:
    """The array with a dictionary outside the memory: rows that are taken from it share its dictionary."""
    if not pa.types.is_dictionary(array.type):
        return array
    values = array.dictionary
    copied = pa.concat_arrays([values, values.slice(0, 0)])  # of two, because one would be handed on as it is
    return pa.DictionaryArray.from_arrays(array.indices, copied, ordered=array.type.ordered)


def stays_behind(kind: Any, outermost: bool = True) -> bool:
    """Whether rows taken from an array of this type still refer to its memory: list views, categories inside others."""
    if is_list_view(kind) or pa.types.is_union(kind) or (pa.types.is_dictionary(kind) and not outermost):
        return True
    outermost = outermost and isinstance(kind, pa.BaseExtensionType)
    return any(stays_behind(inner, outermost) for inner in inner_types(kind))
