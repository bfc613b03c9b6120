"""One array of every Arrow type, without and with missing values."""

import datetime as dt
import decimal
import uuid
from typing import Any

import pyarrow as pa

D = decimal.Decimal
WHEN = [dt.datetime(2020, 1, 2, 3, 4, 5), dt.datetime(1969, 7, 20, 20, 17, 40), dt.datetime(2100, 12, 31)]
DAYS = [dt.date(2020, 1, 2), dt.date(1969, 7, 20), dt.date(2100, 12, 31)]
TIMES = [dt.time(1, 2, 3), dt.time(0, 0), dt.time(23, 59, 59)]
SPANS = [dt.timedelta(seconds=5), dt.timedelta(days=-1), dt.timedelta(days=400)]
WORDS = ["a", "", "zürich"]

VALUES: dict[Any, list[Any]] = {
    pa.null(): [None, None, None],
    pa.bool_(): [True, False, True],
    **{t: [1, 0, 100] for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{t: [1, 0, 200] for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{t: [1.5, 0.0, -2.0] for t in (pa.float16(), pa.float32(), pa.float64())},
    **{pa.timestamp(u): WHEN for u in ("s", "ms", "us", "ns")},
    pa.timestamp("us", "Europe/Zurich"): [w.replace(tzinfo=dt.UTC) for w in WHEN],
    pa.date32(): DAYS,
    pa.date64(): DAYS,
    **{pa.time32(u): TIMES for u in ("s", "ms")},
    **{pa.time64(u): TIMES for u in ("us", "ns")},
    **{pa.duration(u): SPANS for u in ("s", "ms", "us", "ns")},
    pa.month_day_nano_interval(): [pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([-1, 0, 9])],
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), WORDS),
    **{t: [w.encode() for w in WORDS] for t in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.binary(2): [b"ab", b"\0\0", b"c\0"],
    **{t: [D("1.50"), D("0.00"), D("-2.25")] for t in (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(20, 2))},
    pa.decimal256(50, 2): [D("1.50"), D("0.00"), D("-2.25")],
    **{t: [[1, 2], [], [3]] for t in (pa.list_(pa.int32()), pa.large_list(pa.int32()))},
    **{t: [[1, 2], [], [3]] for t in (pa.list_view(pa.int32()), pa.large_list_view(pa.int32()))},
    pa.list_(pa.string()): [["a", "b"], [], ["c"]],
    pa.list_(pa.list_(pa.int8())): [[[1], [2, 3]], [], [[]]],
    pa.list_(pa.float32(), 2): [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    pa.struct([("x", pa.int32()), ("y", pa.string())]): [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}, {"x": 3, "y": "c"}],
    pa.map_(pa.string(), pa.int32()): [[("a", 1)], [], [("b", 2), ("c", 3)]],
    pa.dictionary(pa.int8(), pa.string()): ["red", "blue", "red"],
    pa.dictionary(pa.int32(), pa.int64()): [7, 9, 7],
    pa.run_end_encoded(pa.int32(), pa.int64()): [7, 7, 9],
    pa.uuid(): [uuid.UUID(int=i).bytes for i in (1, 2, 3)],
    pa.json_(): ['{"a": 1}', "[]", "3"],
    pa.bool8(): [1, 0, 1],
    pa.opaque(pa.int32(), "thing", "somebody"): [1, 2, 3],
    pa.list_(pa.list_(pa.int8(), 1), 2): [[[1], [2]], [[3], [4]], [[5], [6]]],
    pa.list_(pa.int32(), 0): [[], [], []],
    pa.fixed_shape_tensor(pa.float32(), [2]): [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    pa.fixed_shape_tensor(pa.int8(), [2, 1], permutation=[1, 0]): [[1, 2], [3, 4], [5, 6]],
}


def _array(kind: Any, values: list[Any]) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, len(values) + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind.value_type))
    return pa.array(values, kind)


def _union(mode: str) -> Any:
    codes = pa.array([0, 1, 0], pa.int8())
    if mode == "sparse":
        return pa.UnionArray.from_sparse(codes, [pa.array([1, 0, 3]), pa.array(["", "b", ""])])
    return pa.UnionArray.from_dense(codes, pa.array([0, 0, 1], pa.int32()), [pa.array([1, 3]), pa.array(["b"])])


ARRAYS: dict[str, Any] = {str(kind): _array(kind, values) for kind, values in VALUES.items()}
ARRAYS |= {str(_union(mode).type): _union(mode) for mode in ("sparse", "dense")}
HOLES: dict[str, Any] = {
    str(kind): _array(kind, [values[0], None, values[2]])
    for kind, values in VALUES.items()
    if kind != pa.null() and "fixed_shape" not in str(kind)
}
