"""Copy-ahead: order, places of errors, containers, states, and the order of calls on a device that has streams."""

import json
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headrace.device import Ahead, AheadIterator, TorchTransfer, ahead, mapped, put
from headrace.doors.torch.loader import DataLoader
from headrace.engine.autosave import Autosave
from headrace.errors import BadOption
from headrace.loader import Loader
from headrace.pipe.graph import Pipe

Point = namedtuple("Point", "x y")


@dataclass(frozen=True, slots=True)
class Sample:
    image: Any
    name: str
    extra: Any = field(default=None, init=False)


class Tokens(UserDict[str, Any]):
    """A mapping of a library's own."""


class Own:
    """Moves itself."""

    def __init__(self, where: str = "nowhere") -> None:
        self.where = where

    def to(self, device: Any) -> "Own":
        return Own(str(device))


def batches(count: int, pulled: list[int] | None = None) -> Iterator[dict[str, Any]]:
    for i in range(count):
        if pulled is not None:
            pulled.append(i)
        yield {"x": np.full(3, i), "i": i}


def test_batches_come_in_order_as_tensors() -> None:
    got = list(ahead(batches(7), "cpu"))
    assert [b["i"] for b in got] == list(range(7))
    assert all(isinstance(b["x"], torch.Tensor) and b["x"].tolist() == [b["i"]] * 3 for b in got)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_it_is_depth_batches_ahead_once_it_runs(depth: int) -> None:
    pulled: list[int] = []
    moving = iter(ahead(batches(20, pulled), "cpu", depth))
    next(moving)
    assert len(pulled) == 1, "the first batch waits for nobody"
    for taken in range(2, 10):
        next(moving)
        assert len(pulled) == taken + depth


def test_every_iteration_is_an_epoch_of_its_own() -> None:
    feed = ahead([np.arange(2), np.arange(3)], "cpu")
    assert len(feed) == 2
    assert [[t.tolist() for t in feed] for _ in range(2)] == [[[0, 1], [0, 1, 2]]] * 2


def test_containers_keep_their_type_and_their_other_contents() -> None:
    sample = Sample(np.ones(2, np.float32), "cat")
    object.__setattr__(sample, "extra", np.zeros(1))
    counted: defaultdict[str, Any] = defaultdict(int, a=np.arange(2))
    given: dict[str, Any] = {
        "list": [np.arange(2), "text", None, 1.5, b"raw"],
        "tuple": (np.arange(2), (np.arange(1),)),
        "point": Point(np.arange(1), 2),
        "sample": sample,
        "ordered": OrderedDict(b=np.arange(1), a=np.arange(1)),
        "counted": counted,
        "proxy": MappingProxyType({"a": np.arange(1)}),
        "own": Tokens(ids=np.arange(3)),
        "names": np.array(["a", "b"]),
        "dates": np.array(["2020-01-01"], "datetime64[D]"),
        "tensor": torch.ones(2, dtype=torch.bfloat16),
        "empty": [],
    }
    (got,) = ahead([given], "cpu")
    tensor = torch.Tensor
    assert isinstance(got["list"][0], tensor)
    assert got["list"][1:] == ["text", None, 1.5, b"raw"]
    assert isinstance(got["tuple"][1][0], tensor)
    assert type(got["point"]) is Point
    assert (isinstance(got["point"].x, tensor), got["point"].y) == (True, 2)
    assert type(got["sample"]) is Sample
    assert isinstance(got["sample"].image, tensor)
    assert isinstance(got["sample"].extra, tensor)
    assert got["sample"].name == "cat"
    assert list(got["ordered"]) == ["b", "a"]
    assert type(got["ordered"]) is OrderedDict
    assert got["counted"].default_factory is int
    assert type(got["proxy"]) is dict
    assert type(got["own"]) is Tokens
    assert isinstance(got["own"]["ids"], tensor)
    assert got["names"].tolist() == ["a", "b"]
    assert isinstance(got["names"], np.ndarray)
    assert isinstance(got["dates"], np.ndarray)
    assert got["tensor"].dtype is torch.bfloat16
    assert got["empty"] == []
    assert isinstance(given["list"][0], np.ndarray), "the batch that was given is left as it was"
    assert counted["a"].tolist() == [0, 1]


def test_arrays_that_torch_cannot_look_into_are_copied() -> None:
    locked = np.arange(4)
    locked.flags.writeable = False
    for array in (locked, np.arange(4)[::-1], np.arange(4).astype(">i4")):
        assert put(array, "cpu").tolist() == array.tolist()


def test_a_tensor_on_its_device_is_not_copied() -> None:
    array = np.arange(4)
    moved: Any = put({"a": array}, "cpu")["a"]
    array[0] = 9
    assert moved[0] == 9


def test_what_moves_itself_is_asked_to() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.arange(3), torch.arange(2)])
    own, moved = put((Own(), packed), "cpu")
    assert own.where == "cpu"
    assert moved.data.tolist() == packed.data.tolist()


def test_an_error_is_raised_at_its_place_and_what_follows_still_comes() -> None:
    class Faulty:
        def __init__(self) -> None:
            self.at = -1

        def __iter__(self) -> "Faulty":
            return self

        def __next__(self) -> np.ndarray[Any, Any]:
            self.at += 1
            if self.at == 3:
                raise KeyError("three")
            if self.at == 6:
                raise StopIteration
            return np.array([self.at])

    moving = iter(ahead(Faulty(), "cpu", depth=4))
    assert [next(moving).item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="three"):
        next(moving)
    assert [t.item() for t in moving] == [4, 5]


def test_a_generator_that_fails_ends_there() -> None:
    def faulty() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("no more")

    moving = iter(ahead(faulty(), "cpu", depth=5))
    assert [next(moving), next(moving)] == [1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(moving)
    assert list(moving) == []


def test_an_error_in_the_move_has_its_place_too() -> None:
    class Broken:
        def to(self, device: Any) -> None:
            raise RuntimeError("cannot move")

    moving = iter(ahead([1, Broken(), 3], "cpu"))
    assert next(moving) == 1
    with pytest.raises(RuntimeError, match="cannot move"):
        next(moving)
    assert next(moving) == 3


def test_closing_ends_the_source_and_what_is_in_flight() -> None:
    ended = []

    def source() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            ended.append(True)

    with ahead(source(), "cpu") as feed:
        moving = iter(feed)
        assert next(moving) == 0
    assert ended == [True]
    assert list(moving) == []


def test_the_state_belongs_to_the_batch_at_hand_not_to_the_one_that_was_taken_last() -> None:
    pipe = Pipe.of(range(40)).shuffle().batch(4).collate()

    def rows(tensors: Any) -> list[list[int]]:
        return [t.tolist() for t in tensors]

    with Loader(pipe, seed=3) as whole:
        everything = [b.tolist() for b in whole]
    for cut in (0, 1, 4, 10):
        with Loader(pipe, seed=3) as loader, ahead(loader, "cpu", depth=3) as feed:
            moving = iter(feed)
            front = rows(next(moving) for _ in range(cut))
            state = json.loads(json.dumps(feed.state_dict()))
        with Loader(pipe, seed=3, workers=1, kind="thread") as other:
            again = ahead(other, "cpu")
            again.load_state_dict(state)
            assert front + rows(again) == everything


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (1, True)])
def test_an_autosave_of_a_data_loader_counts_what_the_training_loop_has(
    tmp_path: Path, workers: int, persistent: bool
) -> None:
    def make(path: str) -> Any:
        return DataLoader(
            range(40),
            4,
            num_workers=workers,
            persistent_workers=persistent,
            autosave=Autosave(tmp_path / path, every=1),
        )

    def rows(tensors: Any) -> list[list[int]]:
        return [t.tolist() for t in tensors]

    everything = [[*range(i, i + 4)] for i in range(0, 40, 4)]
    loader = make("run.json")
    moving = iter(ahead(loader, "cpu", depth=3))
    front = rows(next(moving) for _ in range(4))
    assert front == everything[:4]
    (tmp_path / "then.json").write_bytes((tmp_path / "run.json").read_bytes())
    assert rows(make("then.json")) == everything[3:], "the fourth was on its way when the file was written"
    moving.close()
    plain = iter(loader)
    assert rows(next(plain) for _ in range(4)) == everything[:4]
    assert rows(make("run.json")) == everything[4:], "nothing is taken ahead any more"


def test_after_the_last_batch_the_state_is_the_loaders() -> None:
    with Loader(Pipe.of(range(8)).batch(4), seed=1) as loader:
        feed = ahead(loader, "cpu")
        assert len(list(feed)) == 2
        assert feed.state_dict() == loader.state_dict()
        assert feed.state_dict()["epoch"] == 1


def test_a_mask_that_is_not_known_is_told_only_to_those_who_ask() -> None:
    pipe = Pipe.of(list(range(10))).batch(4).in_batch_shuffle().map(np.array)
    with Loader(pipe, ends="pad") as loader:
        feed = ahead(loader, "cpu")
        for _ in feed:
            for asked in (feed.mask, loader.mask):
                with pytest.raises(BadOption, match="batch at the end of the pipe"):
                    asked()


def test_the_mask_belongs_to_the_batch_at_hand_also_when_the_loader_is_asked() -> None:
    pipe = Pipe.of(range(1, 22)).batch(4).collate()
    with Loader(pipe, ends="pad") as loader:
        expected = [(batch.tolist(), loader.mask()) for batch in loader]
        assert expected[-1][1] == [True, False, False, False]
        feed = ahead(loader, "cpu", depth=3)
        assert feed.mask() is None
        assert [(batch.tolist(), feed.mask()) for batch in feed] == expected
        assert [(batch.tolist(), loader.mask()) for batch in feed] == expected
        assert [(batch.tolist(), loader.mask()) for batch in loader] == expected


def test_batches_of_worker_processes_arrive_whole() -> None:
    pipe = Pipe.of(range(64)).map(float).batch(8).collate()
    with Loader(pipe, workers=2) as loader:
        assert torch.cat(list(ahead(loader, "cpu"))).tolist() == list(map(float, range(64)))


def test_an_interrupt_of_the_user_costs_no_batch() -> None:
    class Interrupted:
        calls = 0

        def count(self) -> None:
            self.calls += 1
            if self.calls % 3 == 0:
                raise KeyboardInterrupt

        def begin(self, batch: object) -> tuple[Any, Any]:
            self.count()
            return batch, None

        def finish(self, batch: object, event: object) -> Any:
            self.count()
            return batch

    moving = AheadIterator(range(9), Interrupted(), 2)
    seen: list[int] = []
    for _ in range(12):
        try:
            seen.extend(moving)
        except KeyboardInterrupt:
            continue
    assert seen == list(range(9))


@pytest.mark.parametrize("depth", [0, -1, True, 1.5, None])
def test_a_depth_that_makes_no_sense_is_refused(depth: Any) -> None:
    with pytest.raises(BadOption, match="depth must be"):
        ahead([], "cpu", depth)


@pytest.mark.parametrize("device", ["no such device", object(), "cuda:x"])
def test_a_device_that_is_none_is_refused_with_what_to_write(device: Any) -> None:
    with pytest.raises(BadOption, match=r"torch\.device\(\)"):
        ahead([], device)


class Streams:
    """A device module that writes down what is done to it, on a device that only exists here."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.now = SimpleNamespace(name="step", wait_event=lambda event: self.log.append(f"step waits for {event}"))

    def Stream(self, device: Any) -> "Streams":
        self.log.append("side stream made")
        return self

    def record_event(self) -> str:
        number = sum(line.startswith("copied") for line in self.log)
        return f"copy {number}"

    def stream(self, side: Any) -> "Streams":
        return self

    def __enter__(self) -> None:
        self.log.append("on the side stream")

    def __exit__(self, *_: Any) -> None:
        self.log.append("copied")

    def current_stream(self, device: Any) -> Any:
        return self.now


def test_copies_are_begun_on_a_side_stream_and_the_step_waits_for_its_own_batch_only() -> None:
    streams = Streams()
    # "meta" is a device that is not the CPU and needs no hardware; it has no pinned memory either.
    transfer = TorchTransfer("meta", lambda device: streams)
    feed = Ahead([1, 2, 3, 4], "cpu", depth=1)
    feed._transfer = transfer
    assert list(feed) == [1, 2, 3, 4]
    copied = "on the side stream", "copied"
    assert streams.log == [
        "side stream made", *copied, "step waits for copy 1", *copied, *copied, "step waits for copy 2", *copied,
        "step waits for copy 3", "step waits for copy 4",
    ]  # fmt: skip


def test_what_was_copied_is_pinned_before_and_marked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams()
    transfer = TorchTransfer("meta", lambda device: streams)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: (streams.log.append("pinned"), self)[1])  # type: ignore[func-returns-value]
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, s: streams.log.append(f"marked for {s.name}"))
    moved = transfer.finish(*transfer.begin({"a": np.ones(2), "b": [torch.ones(3)]}))
    assert moved["a"].device.type == "meta"
    assert moved["b"][0].device.type == "meta"
    assert streams.log[1:] == [
        "on the side stream", "pinned", "pinned", "copied", "step waits for copy 1", *["marked for step"] * 2,
    ]  # fmt: skip


def test_a_device_without_streams_is_served_as_well() -> None:
    transfer = TorchTransfer("meta", lambda device: SimpleNamespace())
    assert transfer.finish(*transfer.begin([1, "a"])) == [1, "a"]


def test_jax_arrays_come_out_where_jax_is_asked_for() -> None:
    jax = pytest.importorskip("jax")
    given: dict[str, Any] = {
        "a": np.arange(3, dtype=np.int32),
        "t": torch.ones(2),
        "names": np.array(["x"]),
        "own": Tokens(i=np.ones(1)),
    }
    for device in ("jax", jax.devices("cpu")[0]):
        (got,) = ahead([given], device)
        assert isinstance(got["a"], jax.Array)
        assert isinstance(got["t"], jax.Array)
        assert isinstance(got["own"]["i"], jax.Array)
        assert isinstance(got["names"], np.ndarray)
        assert got["a"].tolist() == [0, 1, 2]


def test_mapping_leaves_what_is_to_stay_whole() -> None:
    assert mapped([(1, [2]), {3}], lambda leaf: "leaf", lambda part: isinstance(part, tuple)) == ["leaf", "leaf"]
