"""LitData chunks: samples are trees (dicts, lists, tuples) of leaves, whose types stand in the folder's `index.json`.

    sample: the sizes of its leaves, 4 bytes each, then the leaves

A chunk is plain, in frames that are compressed each by itself, or has rows of plain values as an Arrow table:

plain    | number of samples | offsets | samples |; where samples are compressed one by one, each is a zstd frame
frames   | "LDFZ01" 0 0 | version, flags (2 bytes each), samples, samples a frame, frames (4 each) | offsets |
         | first sample, samples (4), start (8), size, size unpacked (4) of each frame | frames |
         Offsets count bytes of all frames unpacked, end to end.
rows     | number of samples | offsets, all the same | Arrow file | its size (4) | "LDARW01" 0 |

Tensors come as numpy arrays, pictures as the bytes that are stored. Leaves that could run code when they are read
(`pickle`) are refused unless the files are trusted. Chunks of bare tokens are one array each.
"""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.sources.extra import import_extra
from headrace.sources.slice import FileSlice
from headrace.sources.stored.format import DamagedFile, Ints, OpenFile, Spans, StoredFormat
from headrace.sources.stored.packed import ZSTD, PiecesFile, UnpackedFile, unpack
from headrace.sources.stored.pickles import load_trusted
from headrace.sources.stored.spans import counted_table, spans_between

NUMPY = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?")
TORCH = (
    "f4", "f4", "f8", "f8", "c8", "c8", "c16", "c16", "f2", "f2", "",
    "u1", "i1", "i2", "i2", "i4", "i4", "i8", "i8", "?", "u2",
)  # fmt: skip
"""Types of arrays by their codes; empty for bfloat16, which numpy does not have."""
ARRAYS = {"numpy": ("<u4", NUMPY), "tensor": (">u4", TORCH)}
"""Leaves with type and shape in front of the values: how the numbers there are stored, and the types by code."""
BARE_ARRAYS = {"no_header_numpy": NUMPY, "no_header_tensor": TORCH}
FRAMES, ROWS = b"LDFZ01\0\0", b"LDARW01\0"
TAIL = 12
"""Bytes behind the Arrow table of a chunk: its size and a mark."""
HEAD = struct.Struct("<8sHHIII")
FRAME = np.dtype([("first", "<u4"), ("samples", "<u4"), ("start", "<u8"), ("size", "<u4"), ("unpacked", "<u4")])
THROUGH_LITDATA = "read it through litdata's StreamingDataset, as Pipe.of(dataset)"


@dataclass(frozen=True, slots=True)
class LitData(StoredFormat):
    """`leaves` are the types of the leaves; `tree` is the structure of a sample, as JSON."""

    leaves: tuple[str, ...]
    tree: str
    trust: bool = False
    packed: bool = False
    """Each sample is compressed by itself."""
    name = "litdata"
    scanned = False

    @classmethod
    def of(cls, files: tuple[str, ...], trust: bool) -> "LitData":
        """As the index beside these chunks says: those of several folders must be of one format."""
        first, *others = dict.fromkeys(str(Path(file).parent) for file in files)
        found = _of_folder(first, trust)
        for other in others:
            if _of_folder(other, trust) != found:
                raise BadOption(
                    f"the samples of {other} are others than those of {first}: make a pipe of each, and put them "
                    "together with concat()"
                )
        return found

    def open(self, path: str) -> OpenFile:
        file = OpenFile(path)
        if file.size >= HEAD.size and file.read(0, len(FRAMES)) == FRAMES:
            with file:
                return _framed(file)
        if file.size > TAIL and file.read(file.size - len(ROWS), len(ROWS)) == ROWS:
            with file:
                return _rows(file)
        return file

    def find(self, file: OpenFile, start: int) -> Iterator[Spans]:
        if isinstance(file, RowsChunk):
            yield Spans.numbered(file.size)
        else:
            yield spans_between(file.offsets if isinstance(file, FramedChunk) else counted_table(file), file)

    def decode(self, data: bytes, file: OpenFile, start: int) -> Any:
        if isinstance(file, RowsChunk):
            return file.row(start)
        if self.packed and data.startswith(ZSTD):
            data = unpack(data, file.path, start)
        count = len(self.leaves)
        sizes = np.frombuffer(data[: 4 * count], "<u4").tolist()
        if len(sizes) != count or 4 * count + sum(sizes) != len(data):
            raise DamagedFile(f"{file.path} is damaged: the leaves of the sample at byte {start} do not fill it")
        at, values = 4 * count, []
        for size, kind in zip(sizes, self.leaves, strict=True):
            values.append(_leaf(data[at : at + size], kind, self.trust))
            at += size
        return _grown(json.loads(self.tree), iter(values))


def is_litdata(folder: str) -> bool:
    """Whether the index of a folder is one of LitData."""
    try:
        return "chunks" in json.loads((Path(folder) / "index.json").read_bytes())
    except (ValueError, OSError):
        return False


def chunks(folder: str) -> tuple[str, ...]:
    """The chunks of a folder, in the order of its index."""
    names = [chunk["filename"] for chunk in _index(folder)["chunks"]]
    if any(Path(name).name != name for name in names):
        raise DamagedFile(f"{folder}/index.json names a file outside its folder")
    return tuple(str(Path(folder) / name) for name in names)


def _of_folder(folder: str, trust: bool) -> LitData:
    config = _index(folder)["config"]
    if config.get("encryption"):
        raise BadOption(f"{folder} is encrypted: {THROUGH_LITDATA}")
    if (config.get("item_loader") or "PyTreeLoader") != "PyTreeLoader":
        raise BadOption(f"{folder} was written for {config['item_loader']}: {THROUGH_LITDATA}")
    tree = json.loads(config["data_spec"])
    if isinstance(tree, list):
        tree = tree[1]  # (before it stands the version)
    packed = config.get("compression_level") == "sample"
    return LitData(tuple(config["data_format"]), json.dumps(_shape(tree)), trust, packed)


def _index(folder: str) -> Any:
    path = Path(folder) / "index.json"
    try:
        index = json.loads(path.read_bytes())
        if not isinstance(index["chunks"], list) or not isinstance(index["config"], dict):
            raise TypeError("it has no chunks")
        return index
    except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
        raise DamagedFile(f"{path} is not the index of LitData chunks ({error})") from None


def _shape(spec: Any) -> Any:
    """The structure of a sample: None for a leaf, [kind, children], or [kind, children, keys]."""
    kind = spec.get("type")
    if kind is None:
        return None
    inner = [_shape(child) for child in spec["children_spec"]]
    if kind in ("builtins.list", "builtins.tuple"):
        return [kind, inner]
    if kind in ("builtins.dict", "collections.OrderedDict"):
        keys = json.loads(spec["context"]) if isinstance(spec["context"], str) else spec["context"]
        return ["builtins.dict", inner, keys]
    raise BadOption(f"samples of LitData chunks that hold {kind} cannot be read: dicts, lists and tuples can")


def _grown(shape: Any, values: Iterator[Any]) -> Any:
    if shape is None:
        return next(values)
    kind, inner, *keys = shape
    made = [_grown(one, values) for one in inner]
    if kind == "builtins.dict":
        return dict(zip(keys[0], made, strict=True))
    return tuple(made) if kind == "builtins.tuple" else made


def _leaf(data: bytes, kind: str, trust: bool) -> Any:
    name, _, code = kind.partition(":")
    if (array := ARRAYS.get(name)) is not None:
        return _array(data, *array)
    if (types := BARE_ARRAYS.get(name)) is not None:
        return np.frombuffer(data, _dtype(types, int(code)))
    if name == "pickle":
        return load_trusted(data, trust, "a leaf of type 'pickle'")
    if name in PLAIN:
        return PLAIN[name](data)
    raise BadOption(
        f"leaves of LitData chunks of type {kind!r} cannot be read; those that can: {', '.join(PLAIN)}, arrays, tensors"
    )


def _dtype(types: tuple[str, ...], code: int) -> Any:
    if not 0 <= code < len(types) or not types[code]:
        raise BadOption(
            f"arrays of LitData's type {code} are none of numpy's: read it through litdata, as Pipe.of(...)"
        )
    return np.dtype(types[code]).newbyteorder("<")


def _array(data: bytes, number: str, types: tuple[str, ...]) -> Any:
    code, dimensions = np.frombuffer(data[:8], number).tolist()
    sides = np.frombuffer(data[8 : 8 + 4 * dimensions], number).tolist()
    return np.frombuffer(data[8 + 4 * dimensions :], _dtype(types, code)).reshape(sides)


PLAIN: dict[str, Callable[[bytes], Any]] = {
    "bool": lambda data: data[0] != 0, "int": partial(int.from_bytes, byteorder="little", signed=True),
    "float": lambda data: float(np.frombuffer(data, "<f8")[0]), "str": bytes.decode, "text": bytes.decode,
    "bytes": bytes, "jpeg": bytes, "image": bytes, "file": bytes,
}  # fmt: skip


class FramedChunk(UnpackedFile):
    """A chunk of compressed frames, which reads as its unpacked content."""

    def __init__(self, path: str, frames: Spans, sizes: list[int], offsets: Ints) -> None:
        super().__init__(path, frames, sizes)
        self.offsets = offsets


def _framed(file: OpenFile) -> FramedChunk:
    _, version, _, samples, _, count = HEAD.unpack(file.read(0, HEAD.size))
    if version != 1:
        raise DamagedFile(f"{file.path} has frames of version {version}: 1 can be read")
    table = HEAD.size + 4 * (samples + 1)
    if table + FRAME.itemsize * count > file.size:
        raise DamagedFile(f"{file.path} is damaged or cut off: its table of {samples} samples does not fit into it")
    offsets = np.frombuffer(file.read(HEAD.size, 4 * (samples + 1)), "<u4").astype(np.int64)
    frames = np.frombuffer(file.read(table, FRAME.itemsize * count), FRAME)
    starts, sizes = frames["start"].astype(np.int64), frames["size"].astype(np.int64)
    if bool((starts < 0).any()) or bool((starts + sizes > file.size).any()):
        raise DamagedFile(f"{file.path} is damaged: its table says that frames lie outside its {file.size} bytes")
    return FramedChunk(file.path, Spans(starts, sizes), frames["unpacked"].astype(np.int64).tolist(), offsets)


def _rows(file: OpenFile) -> "RowsChunk":
    size = int.from_bytes(file.read(file.size - TAIL, 4), "little")
    start = file.size - TAIL - size
    if start < 0:
        raise DamagedFile(f"{file.path} is damaged: its table of {size} bytes does not fit into it")
    return RowsChunk(file.path, len(counted_table(file)) - 1, start, size)


class RowsChunk(PiecesFile):
    """Rows of a table, in batches of equally many rows. Places are numbers of rows, not bytes."""

    def __init__(self, path: str, rows: int, start: int, size: int) -> None:
        super().__init__(path)
        self.bytes, self.size = size, rows
        self._lock = Lock()
        arrow = import_extra("arrow", "pyarrow")
        self._damage = arrow.ArrowException, OSError
        try:
            # (Not a method of this object: Arrow keeps the file, and the two would keep each other alive.)
            self._table = arrow.ipc.open_file(arrow.PythonFile(FileSlice(path, start, size), mode="r"))
            self._each = self.piece(0).num_rows if rows else 1
        except self._damage as error:
            raise DamagedFile(f"{path} is damaged: its table cannot be read ({error})") from None
        if -(-rows // max(1, self._each)) != self._table.num_record_batches and rows:
            raise DamagedFile(f"{path} is damaged: its table has other than {rows} rows")
        self.unit_memory = self.piece(0).nbytes if rows else 0

    def unit_ends(self, step: int) -> Ints:
        """A unit is a batch, because a batch is unpacked whole."""
        return np.arange(self._each, self.size + self._each, self._each)

    def read(self, start: int, size: int) -> bytes:
        return b""  # (a row is asked for by its number)

    def row(self, number: int) -> dict[str, Any]:
        which, at = divmod(number, self._each)
        try:
            batch = self.piece(which)
        except self._damage as error:
            raise DamagedFile(f"{self.path} is damaged in batch {which} of its table ({error})") from None
        if batch.num_rows != min(self._each, self.size - which * self._each):
            raise DamagedFile(f"{self.path} is damaged: batch {which} of its table has {batch.num_rows} rows")
        found: dict[str, Any] = batch.slice(at, 1).to_pylist()[0]
        return found

    def load(self, number: int) -> tuple[Any, int]:
        with self._lock:
            found = self._table.get_batch(number)
        self.check_again()  # (it is read after the file was looked at, and kept)
        found.validate(full=True)  # (damaged offsets would point anywhere into memory)
        return found, found.nbytes
