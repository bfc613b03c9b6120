"""What a SwiftLoader makes of samples: collating, encoding and decoding, moving to a device, and the dry run."""

import dataclasses
import os
import pickle
import threading
from collections import OrderedDict, UserDict, defaultdict
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from headrace.device import put as move
from headrace.errors import BadOption, NotPicklable
from tests.doors.swift_data import Failing, Numbers, Samples, Unbuildable, batches, swift

pytestmark = pytest.mark.filterwarnings("ignore:.*more than the .* cores:RuntimeWarning")


class Point(NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass
class Scene:
    image: Any
    name: str


def one_batch(samples: list[Any], **options: Any) -> Any:
    """All the samples as one batch, through a worker."""
    options = {"batch_size": len(samples), "worker_per_consumer": 1, "shuffle": False, **options}
    with swift(Samples, {"samples": samples}, **options) as loader:
        loader.start(0)
        return next(loader)


# --- collating --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_numpy_scalars_of_every_type_become_an_array_of_that_type(dtype: str) -> None:
    batch = one_batch([np.dtype(dtype).type(i) for i in (0, 1, 1)])
    assert batch.dtype == np.dtype(dtype)
    assert batch.tolist() == [0, 1, 1]


def test_plain_numbers_become_arrays_and_text_stays() -> None:
    flags, counts, parts, texts, raw = one_batch([(True, 1, 0.5, "a", b"x"), (False, 2, 1.5, "b", b"y")])
    assert (flags.dtype, counts.dtype, parts.dtype) == (np.dtype("?"), np.dtype("i8"), np.dtype("f8"))
    assert (texts, raw) == (["a", "b"], [b"x", b"y"])


def test_containers_keep_their_form() -> None:
    batch = one_batch([{"a": [1, "x"], "p": Point(1, "n")}, {"a": [2, "y"], "p": Point(3, "m")}])
    assert batch["a"][0].tolist() == [1, 2]
    assert batch["a"][1] == ["x", "y"]
    assert type(batch["p"]) is Point
    assert batch["p"].x.tolist() == [1, 3]


def test_a_dataset_that_returns_nothing_is_an_error() -> None:
    with pytest.raises(TypeError, match="sample 0 of the batch is None"):
        one_batch([None, None])


def test_tensors_are_stacked_and_keep_their_shape() -> None:
    torch = pytest.importorskip("torch")
    single, scalar, image = one_batch([(torch.ones(1), torch.tensor(2.0), torch.zeros(3, 40, 40))] * 4)
    assert (single.shape, scalar.shape, image.shape) == ((4, 1), (4,), (4, 3, 40, 40))
    assert all(isinstance(t, torch.Tensor) for t in (single, scalar, image))


def test_ragged_samples_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match=r"field \['x'\].*shape \(2,\).*shape \(3,\)") as caught:
        one_batch([{"x": np.zeros(2)}, {"x": np.zeros(3)}])
    assert any("stage 'collate'" in note for note in caught.value.__notes__)


def test_a_function_of_the_users_collates_in_the_worker() -> None:
    with swift(kwargs=4, collate_fn=lambda samples: (sorted(samples), os.getpid())) as loader:
        loader.start(0)
        for samples, pid in loader:
            assert type(samples) is list
            assert pid != os.getpid()


# --- encoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("multithread", [True, False])
@pytest.mark.parametrize("size", [0, 3, 300_000])
def test_the_encoder_runs_in_the_worker_and_the_decoder_here_on_what_it_returned(
    kind: Any, multithread: bool, size: int
) -> None:
    def encode(batch: list[int]) -> Any:
        return kind(os.getpid().to_bytes(8, "little") + bytes(batch) * size if size else b"")

    def decode(data: Any) -> Any:
        return type(data), bytes(data), os.getpid()

    options = {"collate_fn": list, "batch_encoder": encode, "batch_decoder": decode, "multithread": multithread}
    with swift(kwargs=12, shuffle=False, **options) as loader:
        loader.start(0)
        for first, (found, data, pid) in zip(range(0, 12, 3), loader, strict=True):
            assert found is kind
            assert pid == os.getpid()
            if size:
                assert int.from_bytes(data[:8], "little") != os.getpid()
                assert data[8:] == bytes([first, first + 1, first + 2]) * size


def test_a_memoryview_of_numbers_travels_as_its_bytes() -> None:
    options = {"batch_encoder": memoryview, "batch_decoder": lambda view: np.frombuffer(view, "i8")}
    with swift(kwargs=9, shuffle=False, **options) as loader:
        loader.start(0)
        assert batches(loader) == [[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]
    options["batch_encoder"] = lambda batch: memoryview(np.stack([batch, batch], 1))[::-1]
    with swift(kwargs=9, shuffle=False, **options) as loader:
        loader.start(0)
        assert batches(loader)[0][0] == [2, 2, 1, 1, 0, 0]


def test_an_encoder_that_returns_something_else_is_an_error() -> None:
    with swift(batch_encoder=str, batch_decoder=str) as loader:
        loader.start(0)
        with pytest.raises(TypeError, match="must return bytes, bytearray or a memoryview, not str"):
            next(loader)


def test_encoder_and_decoder_belong_together() -> None:
    with pytest.raises(BadOption, match="give batch_decoder too"):
        swift(batch_encoder=pickle.dumps)


def test_dill_may_be_passed_by_those_who_want_it() -> None:
    dill = pytest.importorskip("dill")
    with swift(batch_encoder=dill.dumps, batch_decoder=dill.loads) as loader, swift() as plain:
        loader.start(0)
        plain.start(0)
        assert batches(loader, 2) == batches(plain, 2)


# --- the device -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_each_batch_is_moved_once_in_order_and_so_many_ahead(ahead: int) -> None:
    moved: list[list[int]] = []

    def to_device(batch: Any, device: Any) -> Any:
        assert device == "far away"
        assert threading.current_thread() is threading.main_thread()
        moved.append(batch.tolist())
        return ("there", batch.tolist())

    with swift(kwargs=30, shuffle=False, max_nb_batch_on_device=ahead) as loader:
        loader.start(0, device="far away", to_device=to_device)
        assert moved == []
        seen = []
        for batch in loader:
            seen.append(batch)
            assert len(moved) == len(seen) + ahead
    assert [batch for _, batch in seen] == moved[:10] == [[i, i + 1, i + 2] for i in range(0, 30, 3)]


def test_an_error_on_the_way_to_the_device_belongs_to_its_batch() -> None:
    def to_device(batch: Any, device: Any) -> Any:
        if batch[0] == 3:
            raise BufferError("the device is full")
        return batch.tolist()

    with swift(kwargs=9, shuffle=False, max_nb_batch_on_device=2) as loader:
        loader.start(0, device=0, to_device=to_device)
        assert next(loader) == [0, 1, 2]
        with pytest.raises(BufferError):
            next(loader)
        assert next(loader) == [6, 7, 8]


def test_the_default_moves_everything_nested_to_the_device() -> None:
    torch = pytest.importorskip("torch")
    sample = {
        "image": np.ones((2, 2), np.float32),
        "label": 1,
        "rest": [torch.ones(2), {"deep": np.int16(3)}],
        "name": "n",
    }
    with swift(Samples, {"samples": [sample] * 6}) as loader:
        loader.start(0, device=torch.device("cpu"))
        for batch in loader:
            assert batch["image"].dtype == torch.float32
            assert batch["label"].tolist() == [1, 1, 1]
            assert batch["rest"][1]["deep"].dtype == torch.int16
            assert batch["name"] == ["n"] * 3


def test_moving_keeps_the_form_of_containers() -> None:
    torch = pytest.importorskip("torch")

    class Encoding(UserDict):  # type: ignore[type-arg]
        def to(self, device: Any) -> str:
            return f"moved itself to {device}"

    def moved(batch: Any) -> Any:
        return move(batch, "meta")

    array = np.ones(3)
    assert moved(array).device.type == "meta"
    assert moved(torch.ones(2)).device.type == "meta"
    assert [t.device.type for t in moved([array, (array,)])[1]] == ["meta"]
    assert type(moved((array,))) is tuple
    point = moved(Point(3, array))
    assert (type(point), point.x, point.y.device.type) == (Point, 3, "meta")
    scene = moved(Scene(array, "n"))
    assert (type(scene), scene.name, scene.image.device.type) == (Scene, "n", "meta")
    for mapping in (OrderedDict(a=array), defaultdict(list, a=array), UserDict(a=array)):
        found = moved(mapping)
        assert type(found) is type(mapping)
        assert found["a"].device.type == "meta"
        assert mapping["a"] is array
    assert moved(MappingProxyType({"a": array}))["a"].device.type == "meta"
    assert moved(Encoding(a=1)) == "moved itself to meta"
    other = object()
    assert moved([other, None, "text", b"raw", 3, 2.5, Scene])[:2] == [other, None]


def test_arrays_that_torch_does_not_take_as_they_are_still_move() -> None:
    torch = pytest.importorskip("torch")
    fixed = np.arange(4)
    fixed.flags.writeable = False
    for array in (fixed, np.arange(4)[::-1], np.arange(4, dtype=">i4"), np.arange(4, dtype="u2")):
        assert move(array, "cpu").tolist() == array.tolist()
        assert isinstance(move(array, "cpu"), torch.Tensor)
    words = np.array(["a", "b"])
    assert move(words, "cpu") is words


# --- the dry run ------------------------------------------------------------------------------------------------------


def explode(*_: Any) -> Any:
    raise FloatingPointError("no")


@pytest.mark.parametrize(
    ("stage", "dataset", "kwargs", "options"),
    [
        ("construct", Unbuildable, {"count": 3}, {}),
        ("getitem", Failing, {"count": 5, "bad": 2}, {}),
        ("collate", Samples, {"samples": [np.zeros(1), np.zeros(2), 3]}, {}),
        ("collate", Numbers, {"count": 5}, {"collate_fn": explode}),
        ("encode", Numbers, {"count": 5}, {"batch_encoder": explode, "batch_decoder": explode}),
        ("encode", Samples, {"samples": [threading.Lock()] * 3}, {"collate_fn": list}),
        ("decode", Numbers, {"count": 5}, {"batch_encoder": np.ndarray.tobytes, "batch_decoder": explode}),
    ],
)
def test_validation_names_the_stage_that_fails(
    stage: str, dataset: type, kwargs: dict[str, Any], options: dict[str, Any]
) -> None:
    with pytest.raises((OSError, ValueError, FloatingPointError, NotPicklable)) as caught:
        swift(dataset, kwargs, validate=True, **options)
    assert any(f"failed at stage '{stage}'" in note for note in caught.value.__notes__)
    swift(dataset, kwargs, validate=False, **options).close()


def test_validation_takes_a_dataset_that_is_smaller_than_a_batch_or_empty() -> None:
    for count in (0, 1, 2):
        swift(kwargs=count, batch_size=8, validate=True).close()
