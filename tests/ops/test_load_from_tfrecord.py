import io
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from headrace.errors import MissingExtra
from headrace.pipe.graph import Pipe
from headrace.sources.crc32c import PACKAGES, crc32c, stored_crc
from tests.ops.file_laws import check_file_op


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Any, packed: bool = True) -> bytes:
    if isinstance(value[0], bytes):
        return field(1, b"".join(field(1, v) for v in value))
    if isinstance(value[0], float):
        raw = [struct.pack("<f", v) for v in value]
        return field(2, field(1, b"".join(raw)) if packed else b"".join(varint(1 << 3 | 5) + r for r in raw))
    raw = [varint(v) for v in value]
    return field(3, field(1, b"".join(raw)) if packed else b"".join(varint(1 << 3) + r for r in raw))


def example(values: dict[str, Any], sequences: dict[str, list[Any]] | None = None, packed: bool = True) -> bytes:
    entries = b"".join(field(1, field(1, k.encode()) + field(2, feature(v, packed))) for k, v in values.items())
    out = field(1, entries)
    if sequences:
        lists = b""
        for name, steps in sequences.items():
            inner = b"".join(field(1, feature(step)) for step in steps)
            lists += field(1, field(1, name.encode()) + field(2, inner))
        out += field(2, lists)
    return out


def framed(record: bytes) -> bytes:
    size = struct.pack("<Q", len(record))
    return size + stored_crc(size) + record + stored_crc(record)


VALUES = {"name": [b"a", b"bc"], "x": [1.5, -2.0, 0.25, 8.0], "n": [0, -1, 2**40, 7]}


def stream(*records: bytes) -> Pipe[Any]:
    return Pipe.of([("x.tfrecord", io.BytesIO(b"".join(map(framed, records))))])


@pytest.mark.parametrize(("data", "crc"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA)])
def test_the_check_sum_is_the_published_one(data: bytes, crc: int) -> None:
    assert crc32c()(data) == one_by_one(data) == crc


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Lets only these packages be found, with a check sum that is theirs."""

    def only(*packages: str) -> None:
        for name, function in PACKAGES.items():
            module = ModuleType(name)
            setattr(module, function, one_by_one)
            monkeypatch.setitem(sys.modules, name, module if name in packages else None)
        crc32c.cache_clear()

    yield only
    crc32c.cache_clear()


@pytest.mark.parametrize("package", PACKAGES)
def test_either_package_makes_the_check_sums(installed: Callable[..., None], package: str, tmp_path: Path) -> None:
    installed(package)
    (found,) = stream(example(VALUES)).load_from_tfrecord()
    assert found["name"] == VALUES["name"]
    (tmp_path / "x.tfrecord").write_bytes(framed(example(VALUES)))
    (found,) = Pipe.stored(tmp_path / "x.tfrecord")
    assert found["name"] == VALUES["name"]


def test_check_sums_that_no_package_can_verify_are_an_error_when_the_pipe_is_made(
    installed: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "x.tfrecord").write_bytes(framed(example(VALUES)))
    installed()
    for make in (Pipe.tfrecords, Pipe.stored):
        with pytest.raises(MissingExtra, match=r"^crc32c is not installed; .*pip install 'headrace\[tfrecord\]'$"):
            make(tmp_path / "x.tfrecord")


def one_by_one(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_examples_become_arrays_and_lists_of_bytes(tmp_path: Path) -> None:
    for number in range(2):
        records = [example({**VALUES, "i": [number * 10 + i]}) for i in range(3)]
        (tmp_path / f"{number}.tfrecord").write_bytes(b"".join(map(framed, records)))
    pipe = Pipe.tfrecords(tmp_path)
    got = check_file_op(pipe)
    assert [sample["i"] for sample in got] == [[0], [1], [2], [10], [11], [12]]
    first = next(iter(pipe))
    assert first["name"] == [b"a", b"bc"]
    assert (first["x"].dtype, first["x"].tolist()) == (np.float32, VALUES["x"])
    assert (first["n"].dtype, first["n"].tolist()) == (np.int64, VALUES["n"])


def test_numbers_may_be_written_one_by_one() -> None:
    packed, single = stream(example(VALUES), example(VALUES, packed=False)).load_from_tfrecord()
    assert packed.keys() == single.keys()
    assert all(np.array_equal(packed[k], single[k]) for k in packed)


def test_sequences_become_lists() -> None:
    record = example({"id": [5]}, {"frames": [[1.0, 2.0], [3.0]], "words": [[b"x"], [b"y", b"z"]]})
    (sample,) = stream(record).load_from_tfrecord()
    assert [f.tolist() for f in sample["frames"]] == [[1.0, 2.0], [3.0]]
    assert sample["words"] == [[b"x"], [b"y", b"z"]]


def test_a_shape_is_that_of_a_whole_sequence() -> None:
    record = example({"id": [5]}, {"frames": [[1.0, 2.0], [3.0, 4.0]], "words": [[b"x"], [b"y"]]})
    spec = {"frames": ((-1, 1, 2), "float64"), "words": ((-1,), None), "id": None}
    (sample,) = stream(record).load_from_tfrecord(spec)
    assert sample["frames"].tolist() == [[[1.0, 2.0]], [[3.0, 4.0]]]
    assert sample["words"] == [b"x", b"y"]
    assert sample["id"].tolist() == [5]


def test_a_sequence_of_unlike_features_has_no_shape() -> None:
    record = example({}, {"frames": [[1.0, 2.0], [3.0]]})
    with pytest.raises(RuntimeError, match="different lengths"), pytest.warns(UserWarning, match="corrupted tfrecord"):
        list(stream(record).load_from_tfrecord({"frames": ((-1,), None)}))


def test_a_spec_picks_shapes_and_converts() -> None:
    (sample,) = stream(example(VALUES)).load_from_tfrecord(
        {"x": ((2, -1), "float64"), "name": ((2, 1), None), "n": (None, "i4")}
    )
    assert sample["x"].tolist() == [[1.5, -2.0], [0.25, 8.0]]
    assert (sample["x"].dtype, sample["n"].dtype) == (np.float64, np.int32)
    assert sample["name"] == [[b"a"], [b"bc"]]
    assert list(sample) == ["x", "name", "n"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"y": (None, None)}, "Example is missing some required keys: y"),
        ({"x": ((3,), None)}, r"Cannot reshape 4 values into shape \(3,\)"),
        ({"name": ((-1, 3), None)}, r"Cannot reshape 2 values into shape \(-1, 3\)"),
    ],
)
def test_an_example_that_does_not_fit_the_spec_is_an_error(spec: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text), pytest.warns(UserWarning, match="corrupted tfrecord"):
        list(stream(example(VALUES)).load_from_tfrecord(spec))


def test_a_shape_with_two_open_sides_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match="at most one dynamic dimension"):
        stream().load_from_tfrecord({"x": ((-1, -1), None)})


@pytest.mark.parametrize(
    ("cut", "text"),
    [(4, "record size"), (10, "start token"), (20, "failed to read the record"), (-2, "end token")],
)
def test_a_file_that_is_cut_short_warns_and_raises(cut: int, text: str) -> None:
    data = framed(example(VALUES))[:cut]
    with (
        pytest.raises(RuntimeError, match=f"Invalid tfrecord file: .*{text}"),
        pytest.warns(UserWarning, match="Unable to read from corrupted tfrecord stream"),
    ):
        list(Pipe.of([("x", io.BytesIO(data))]).load_from_tfrecord())


def test_a_record_that_claims_to_be_larger_than_any_memory_is_an_error_that_names_it(tmp_path: Path) -> None:
    size = struct.pack("<Q", 2**62)
    (tmp_path / "x.tfrecord").write_bytes(size + stored_crc(size) + b"no more")
    with pytest.raises(RuntimeError, match=r"record 0 of .*x\.tfrecord"), pytest.warns(UserWarning, match="corrupted"):
        list(Pipe.of([str(tmp_path / "x.tfrecord")]).open_files("rb").load_from_tfrecord())


@pytest.mark.parametrize("at", [0, 9, 30])
def test_a_flipped_bit_is_found(at: int) -> None:
    data = bytearray(framed(example(VALUES)))
    data[at] ^= 1
    with pytest.raises(RuntimeError, match="check sum differs"), pytest.warns(UserWarning, match="corrupted tfrecord"):
        list(Pipe.of([("x", io.BytesIO(bytes(data)))]).load_from_tfrecord())
