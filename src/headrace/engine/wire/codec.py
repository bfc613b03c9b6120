"""Codec: any Python object as a small head and spans of raw memory, and back without a copy.

    object  --pack-->  head (pickle) + buffers (arrays and tensors, as they lie in memory)
            --write--> the buffers, once, into a slot; those that were made there already stay where they are
            --load-->  arrays and tensors that look into the slot

Samples of the usual form travel as a folded tree (`fold`), other objects by plain pickle, protocol 5; what plain pickle
refuses goes by cloudpickle. Many samples in one slot are
packed one by one with a table of their places, so that a reader can take any of them.
"""

import copyreg
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from headrace.engine.wire import fold, tensors
from headrace.engine.wire.fold import IN_BAND
from headrace.engine.wire.messages import Reply
from headrace.errors import NotPicklable
from headrace.memory.arena import Arena

ALIGN = 64
PICKLE = 0x80
"""The first byte of every pickle of protocol 2 and later, and of no folded tree."""

CURE = "return plain data, arrays or tensors from the last op that runs in the worker"
"""What to do about a sample that cannot travel; doors that know no ops have their own words (`words.Words`)."""


def pack(sample: object) -> tuple[bytes, list[Any]]:
    """The head and the buffers of one object."""
    folded = fold.pack(sample)
    if folded is not None:
        return folded
    buffers: list[Any] = []
    try:
        stream, pickler, _ = _pickler(buffers)
        pickler.dump(sample)
        return stream.getvalue(), buffers
    except _REFUSED as refused:
        buffers.clear()
        try:
            return dumps(sample, _keeper(buffers)), buffers
        except Exception:
            raise NotPicklable(
                f"a sample of type {type(sample).__name__} cannot travel from the worker: {refused}; {CURE}"
            ) from None


_REFUSED = (pickle.PicklingError, AttributeError, TypeError)


def _pickler(buffers: list[Any]) -> tuple[io.BytesIO, pickle.Pickler, tensors.Memories]:
    """A pickler of tensors too, that puts large buffers aside, and what it writes to."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5, buffer_callback=_keeper(buffers))
    memories = tensors.Memories()
    pickler.dispatch_table = _reducers(memories)
    return stream, pickler, memories


def _reducers(memories: tensors.Memories) -> dict[Any, Callable[[Any], Any]]:
    reducers: dict[Any, Callable[[Any], Any]] = copyreg.dispatch_table.copy()
    if (numpy := sys.modules.get("numpy")) is not None and hasattr(numpy, "str_"):  # (not while it is being imported)
        reducers[numpy.str_] = reducers[numpy.bytes_] = exact_text
    if hasattr(sys.modules.get("torch"), "Tensor"):
        reducers[sys.modules["torch"].Tensor] = memories.reduce
    return reducers


def exact_text(scalar: Any) -> tuple[Any, ...]:
    """numpy's own way to pickle its strings loses zeros at their ends."""
    return type(scalar), (str.__str__(scalar) if isinstance(scalar, str) else bytes(scalar),)


def _keeper(buffers: list[Any]) -> Callable[[pickle.PickleBuffer], bool]:
    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < IN_BAND:
            return True
        buffers.append(raw)
        return False

    return keep


MAINS = ("__main__", "__mp_main__")
"""The user's script, under the name it has where it was started, and in processes that multiprocessing spawns."""


def in_main(thing: Any) -> bool:
    """Whether a class or function can be found in the user's script under its name."""
    found: Any = sys.modules.get(thing.__module__) if thing.__module__ in MAINS else None
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


def dumps(thing: object, keep: Callable[[pickle.PickleBuffer], bool] | None = None) -> bytes:
    """Anything by cloudpickle; buffers that `keep` takes are left out."""
    from headrace.engine.wire.by_value import ReplyPickler

    stream = io.BytesIO()
    ReplyPickler(stream, 5, buffer_callback=keep).dump(thing)
    return stream.getvalue()


def load(head: Any, buffers: Sequence[Any]) -> Any:
    """The object again; its arrays look into `buffers`."""
    if head[0] != PICKLE:
        return fold.load(head, buffers)
    return pickle.loads(head, buffers=buffers)


def open_one(reply: Reply, arena: Arena) -> Any:
    """The one output of a ticket."""
    outputs = open_reply(reply, arena)
    return outputs[0] if type(reply.outputs) is list else outputs


def open_reply(reply: Reply, arena: Arena) -> Any:
    """What a reply holds: one output, or several as a list.

    Arrays look into the reply's slot, which is lent until the last of them is gone. Where slots are scarce they are
    copied, and the slot is free at once.
    """
    slot, head, spans = reply.slot, reply.outputs, reply.spans
    if slot is None:
        return head if isinstance(head, list) else load(head, ())
    if arena.crowded():
        arena.copies += 1
        memory: Any = slot.view
        buffers = [bytearray(memory[spans[k] : spans[k] + spans[k + 1]]) for k in range(0, len(spans), 2)]
        if type(head) is tuple:
            head = bytes(memory[head[0] : head[0] + head[1]])
        arena.give_back(slot)
        return load(head, buffers)
    memory = arena.lease(slot)
    buffers = [memory[spans[k] : spans[k] + spans[k + 1]] for k in range(0, len(spans), 2)]
    if type(head) is tuple:
        head = memory[head[0] : head[0] + head[1]]
    return load(head, buffers)


class Writer:
    """Fills one slot from the front: arrays that ops make in it, then buffers, then a table."""

    __slots__ = ("address", "memory", "overflow", "size", "used")

    def __init__(self, memory: memoryview, address: int, reserved: int) -> None:
        self.memory = memory
        self.address = address
        self.size = memory.nbytes
        self.used = reserved
        self.overflow: list[tuple[int, Any]] = []

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array inside the slot, or None if it does not fit."""
        import numpy as np

        nbytes = dtype.itemsize
        for extent in shape:
            nbytes *= extent
        start = -(-self.used // ALIGN) * ALIGN
        if nbytes < IN_BAND or start + nbytes > self.size or dtype.hasobject:
            return None
        self.used = start + nbytes
        return np.ndarray(shape, dtype, self.memory, start)

    def extend(self, first: Any, count: int, total: int) -> Any:
        """An array of `total` parts like the array `first`, of which `count` are there, at the end of the slot.

        None if they do not lie there, or if there is no room for the rest behind them.
        """
        import numpy as np

        start = first.__array_interface__["data"][0] - self.address
        end = start + total * first.nbytes
        if start + count * first.nbytes != self.used or end > self.size:
            return None
        self.used = end
        return np.ndarray((total, *first.shape), first.dtype, self.memory, start)

    def need(self, buffers: Sequence[Any], extra: int) -> int:
        """How large the slot has to be so that these buffers and `extra` bytes fit too."""
        total = self.used
        for raw in buffers:
            if self._inside(raw) is None:
                total = -(-total // ALIGN) * ALIGN + raw.nbytes
        return -(-total // ALIGN) * ALIGN + extra

    def write(self, buffers: Sequence[Any]) -> list[int]:
        """Put the buffers into the slot, each at most once; their spans."""
        spans: list[int] = []
        for raw in buffers:
            size = raw.nbytes
            start = self._inside(raw)
            if start is None:
                start = self.put(raw)
            spans += (start, size)
        return spans

    def put(self, raw: Any) -> int:
        start = -(-self.used // ALIGN) * ALIGN
        size = raw.nbytes if isinstance(raw, memoryview) else len(raw)
        self.memory[start : start + size] = raw
        self.used = start + size
        return start

    def _inside(self, raw: memoryview) -> int | None:
        owner = raw.obj
        interface = getattr(owner, "__array_interface__", None)
        if interface is None:
            return None
        start = interface["data"][0] - self.address
        return start if start >= 0 and start + raw.nbytes <= self.size else None


def pack_state(state: object) -> bytes:
    """The state of a strand, on its way between a worker and its consumer. It never leaves the two."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, 5)
    pickler.dispatch_table = _reducers(tensors.Memories())  # torch cannot read its own pickles of float8
    pickler.dump(state)
    return stream.getvalue()


def unpack_state(packed: bytes) -> Any:
    return pickle.loads(packed)


def pack_many(samples: Sequence[Any]) -> tuple[list[bytes], list[list[Any]]]:
    """Heads and buffers of many samples."""
    heads, found = [], []
    # One pickler for all: making one costs more than a small sample.
    buffers: list[Any] = []
    stream, pickler, memories = _pickler(buffers)
    for sample in samples:
        folded = fold.pack(sample)
        if folded is None:
            try:
                pickler.dump(sample)
                folded = stream.getvalue(), buffers[:]
            except _REFUSED:
                folded = pack(sample)
            stream.seek(0)
            stream.truncate()
            pickler.clear_memo()
            memories.clear()
            buffers.clear()
        heads.append(folded[0])
        found.append(folded[1])
    return heads, found


def need_many(writer: Writer, heads: Sequence[bytes], buffers: Sequence[Sequence[Any]]) -> int:
    flat = [raw for sample in buffers for raw in sample]
    return writer.need(flat, sum(map(len, heads)) + 24 * len(heads) + 16 * len(flat) + 4 * ALIGN)


def write_many(writer: Writer, heads: Sequence[bytes], buffers: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """Put packed samples into the slot; where their table lies.

    Arrays are at the front, table and heads at the very end: a batch can grow behind the last array.
    """
    joined = b"".join(heads)
    start = writer.size - len(joined)
    ends = []
    at = start
    for head in heads:
        at += len(head)
        ends.append(at)
    spans = [writer.write(raw) if raw else None for raw in buffers]
    table = marshal.dumps((start, ends, spans if any(spans) else None))
    offset = start - len(table)
    writer.memory[offset:start] = table
    writer.memory[start:] = joined
    return offset, len(table)


def read_table(memory: Any, offset: int, size: int) -> Any:
    """Where each sample of a slot lies. Read once per slot and content: it is as long as there are samples."""
    return marshal.loads(memory[offset : offset + size])


def load_many(memory: Any, table: Any, first: int, stop: int) -> list[Any]:
    """Samples first..stop of a slot."""
    start, ends, spans = table
    out = []
    at = start if first == 0 else ends[first - 1]
    for i in range(first, stop):
        end = ends[i]
        buffers: list[Any] = []
        if spans is not None and spans[i]:
            flat = spans[i]
            buffers = [memory[flat[k] : flat[k] + flat[k + 1]] for k in range(0, len(flat), 2)]
        out.append(load(memory[at:end], buffers))
        at = end
    return out
