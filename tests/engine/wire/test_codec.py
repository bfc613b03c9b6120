"""What travels is what was sent: values that pickle, or numpy's own way with it, would change."""

import copyreg
import io
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from headrace.engine.wire import codec
from headrace.engine.wire.by_value import Pickler
from headrace.tables.batch_transfer import DepartingText


def sent(value: object) -> Any:
    head, buffers = codec.pack(value)
    return codec.load(head, [bytearray(buffer) for buffer in buffers])


def by_value(value: object) -> Any:
    stream = io.BytesIO()
    Pickler(stream, 5).dump(value)
    return pickle.loads(stream.getvalue())


@pytest.mark.parametrize(
    "value",
    [np.str_("a\0"), np.str_("\0"), np.str_(""), np.bytes_(b"a\0\0"), np.bytes_(b""), np.str_("plain")],
    ids=ascii,
)
@pytest.mark.parametrize("around", ["alone", "list", "dict", "array", "beside an array"])
@pytest.mark.parametrize("way", ["to the consumer", "by value"])
def test_strings_of_numpy_keep_the_zeros_at_their_ends(value: Any, around: str, way: str) -> None:
    nested: Any = {
        "alone": value,
        "list": [value] * 3,
        "dict": {"a": value},
        "array": np.array([value, None], object),
        "beside an array": (np.zeros(3000), value),
    }[around]
    found = by_value(nested) if way == "by value" else sent(nested)
    for _ in range(around != "alone"):
        found = found["a"] if around == "dict" else found[1 if around == "beside an array" else 0]
    assert type(found) is type(value)
    assert (len(found), found == value) == (len(value), True)


class Registered:
    def __init__(self, made_by: str) -> None:
        self.made_by = made_by


def _registered(_: Registered) -> Any:
    return Registered, ("its reducer",)


@pytest.mark.parametrize("torch", [False, True])
def test_reducers_that_somebody_has_registered_are_used(torch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, Registered, _registered)
    if torch:
        pytest.importorskip("torch")
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert sent([Registered("hand"), np.zeros(9)])[0].made_by == "its reducer"


def test_no_object_that_is_only_for_the_way_arrives() -> None:
    pa = pytest.importorskip("pyarrow")
    texts = ["ä" * 900, "b" * 2000]
    found = sent({"x": DepartingText(pa.array(texts), listed=False), "y": np.zeros(3000)})
    assert found["x"].tolist() == texts
