"""The Loader as users hold it: options, lengths, lifetimes, what it hands over and what it says."""

import gc
import inspect
import json
import re
import threading
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from headrace import Budget, Loader, Pipe
from headrace.engine.policy import Policy
from headrace.errors import BadOption, BadPipe, Closed, NoLength, NotPicklable, SnapshotRefused, TooManyErrors
from tests.laws.pipes import KINDS, Numbers, stream

Point = namedtuple("Point", "x y")


@dataclass
class Record:
    number: int
    name: str


WAYS = ["inline", "thread3", "fork2", "server3"]


@pytest.mark.parametrize("way", WAYS)
def test_any_object_arrives_as_it_was(way: str) -> None:
    given = [None, 0, "text", b"bytes", 3.5, (1, [2]), {"a": None}, Point(1, 2), Record(1, "r"), np.array(3), {1, 2}]
    with Loader(Pipe.of(given), **KINDS[way]) as loader:
        got = list(loader)
    assert [repr(g) for g in got] == [repr(g) for g in given]
    assert [type(g) for g in got] == [type(g) for g in given]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.array([object(), None], dtype=object),
        np.arange(6).reshape(2, 3).T,
        np.zeros(10**5, np.float16),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array("2020-01-01", "datetime64[D]"),
    ],
)
def test_arrays_of_every_sort_arrive_as_they_were(way: str, array: Any) -> None:
    with Loader(Pipe.of([array]), **KINDS[way]) as loader:
        (got,) = loader
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert repr(got.tolist())[:20] == repr(array.tolist())[:20]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.bool, torch.complex64, torch.int8])
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (50, 60)])
def test_tensors_arrive_as_they_were(way: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype)
    with Loader(Pipe.of([tensor, tensor.T if tensor.ndim == 2 else tensor]), **KINDS[way]) as loader:
        first, second = loader
    assert first.dtype == dtype
    assert torch.equal(first, tensor)
    assert second.shape == (tensor.T.shape if tensor.ndim == 2 else tensor.shape)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0, 1])
def test_empty_and_single_data(way: str, size: int) -> None:
    for pipe in (Pipe.of(Numbers(size)), Pipe.of(stream(size)), Pipe.of(Numbers(size)).batch(4).collate()):
        with Loader(pipe, **KINDS[way]) as loader:
            assert len(list(loader)) == size
            assert len(list(loader)) == size


def grown(x: int) -> np.ndarray:
    return np.full(100 if x < 3 else 100_000 * x, x)


def test_a_batch_that_outgrows_its_slot_a_hundredfold_arrives() -> None:
    with Loader(Pipe.of(Numbers(8)).map(grown), workers=2) as loader:
        for i, array in enumerate(loader):
            assert (array == i).all()
            assert len(array) == len(grown(i))


def test_collate_keeps_the_form_of_samples() -> None:
    sample = {"a": (1, 2.5), "p": Point(np.zeros(2), "s"), "r": Record(7, "n"), "t": torch.ones(2), "l": [1, 2]}
    batch = next(iter(Loader(Pipe.of([sample] * 3).batch(3).collate())))
    assert batch["a"][0].tolist() == [1, 1, 1]
    assert isinstance(batch["p"], Point)
    assert batch["p"].x.shape == (3, 2)
    assert batch["p"].y == ["s", "s", "s"]
    assert batch["r"].number.tolist() == [7, 7, 7]
    assert isinstance(batch["t"], torch.Tensor)
    assert batch["t"].shape == (3, 2)
    assert len(batch["l"]) == 2


def test_shapes_that_do_not_agree_are_named() -> None:
    loader = Loader(Pipe.of([{"x": np.zeros(2)}, {"x": np.zeros(3)}]).batch(2).collate())
    with pytest.raises(ValueError, match=r"\['x'\].*\(2,\).*\(3,\)"):
        next(iter(loader))


def failing(x: int) -> int:
    if x in (5, 13):
        raise KeyError("bad sample", x)
    return x


@pytest.mark.parametrize("way", WAYS)
def test_an_error_keeps_its_type_and_gains_its_place(way: str) -> None:
    with Loader(Pipe.of(Numbers(20)).map(failing).batch(4), **KINDS[way]) as loader:
        batches = iter(loader)
        assert next(batches) == [0, 1, 2, 3]
        with pytest.raises(KeyError) as caught:
            next(batches)
        assert caught.value.args == ("bad sample", 5)
        assert "failing" in caught.value.__notes__[0]
        assert "position 5" in caught.value.__notes__[0]
        assert next(batches) == [8, 9, 10, 11]
        assert caught.traceback[-1].name == "failing"


@pytest.mark.parametrize("way", WAYS)
def test_samples_that_fail_can_be_left_out_and_are_counted(way: str) -> None:
    pipe = Pipe.of(Numbers(20)).map(failing).batch(4)
    with Loader(pipe, on_error="skip", **KINDS[way]) as loader:
        assert list(loader) == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11], [12, 14, 15], [16, 17, 18, 19]]
        assert loader.stats().skips == 2
    with (
        Loader(pipe, on_error=Budget(count=1), **KINDS[way]) as loader,
        pytest.raises(TooManyErrors, match="position 13"),
    ):
        list(loader)


@pytest.mark.parametrize("sample", [3, np.float32(3), None, {"x": 3}])
def test_collate_without_batch_says_to_write_it(sample: Any) -> None:
    with pytest.raises(BadPipe, match=r"of type \w+; write \.batch\(n\) before \.collate\(\)"):
        list(Loader(Pipe.of([sample]).collate()))


def test_an_op_that_cannot_travel_is_named_before_any_process_starts() -> None:
    lock = threading.Lock()
    loader = Loader(Pipe.of(Numbers(5)).map(lambda x: (x, lock)[0]), workers=2)
    with pytest.raises(NotPicklable, match=r"^fn closure variable lock \(lock\) in map\("):
        iter(loader)


def test_an_iterator_that_cannot_travel_is_to_be_made_by_a_function() -> None:
    loader = Loader(Pipe.of(x for x in range(3)), workers=2)
    with pytest.raises(NotPicklable, match=r"^data \(generator\) in .*; give the function that makes it"):
        iter(loader)


@pytest.mark.parametrize("way", WAYS)
def test_breaking_off_and_iterating_again_is_clean(way: str) -> None:
    with Loader(Pipe.of(Numbers(100)).batch(5), **KINDS[way]) as loader:
        for _ in range(5):
            for batch in loader:
                if batch[0] >= 20:
                    break
        assert [x for b in loader for x in b] == list(range(100))


@pytest.mark.parametrize("way", WAYS)
def test_two_live_iterators_do_not_disturb_each_other(way: str) -> None:
    with Loader(Pipe.of(Numbers(60)).batch(5), **KINDS[way]) as loader:
        first, second = iter(loader), iter(loader)
        got = [(next(first), next(second)) for _ in range(12)]
        assert all(a == b for a, b in got)
        assert [x for a, _ in got for x in a] == list(range(60))


@pytest.mark.parametrize("way", WAYS)
def test_loaders_in_threads(way: str) -> None:
    results: dict[int, list[int]] = {}

    def run(number: int) -> None:
        with Loader(Pipe.of(Numbers(50)).batch(5), **KINDS[way]) as loader:
            results[number] = [x for b in loader for x in b]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {i: list(range(50)) for i in range(3)}


def test_lengths() -> None:
    assert len(Loader(Pipe.of(Numbers(10)).batch(4))) == 3
    assert len(Loader(Pipe.of(Numbers(10)).batch(4, drop_last=True).collate())) == 2
    assert len(Loader(Pipe.of(Numbers(10)).shuffle())) == 10
    with pytest.raises(NoLength):
        len(Loader(Pipe.of(Numbers(10)).filter(bool)))
    with pytest.raises(NoLength):
        len(Loader(Pipe.of(Numbers(10)).cycle()))


def test_a_closed_loader_says_so() -> None:
    loader = Loader(Pipe.of(Numbers(3)), workers=1)
    list(loader)
    loader.close()
    loader.close()
    with pytest.raises(Closed):
        iter(loader)


def test_set_epoch_chooses_the_order() -> None:
    loader = Loader(Pipe.of(Numbers(30)).shuffle(), seed=2)
    first, second = list(loader), list(loader)
    loader.set_epoch(0)
    assert list(loader) == first
    assert list(loader) == second


def test_set_epoch_of_the_epoch_that_a_loaded_state_stands_in_goes_on_there() -> None:
    """The usual loop, `for epoch in range(loader.epoch, n): loader.set_epoch(epoch)`, after a resume."""
    loader = Loader(Pipe.of(Numbers(30)).shuffle(), seed=2)
    samples = iter(loader)
    got = [next(samples) for _ in range(11)]
    again = Loader(Pipe.of(Numbers(30)).shuffle(), seed=2)
    again.load_state_dict(loader.state_dict())
    again.set_epoch(again.epoch)
    assert got + list(again) == list(Loader(Pipe.of(Numbers(30)).shuffle(), seed=2))
    again.load_state_dict(loader.state_dict())
    again.set_epoch(1)
    assert sorted(again) == list(range(30)), "another epoch begins at its beginning"


@pytest.mark.parametrize("shuffle", [{}, {"window": 7}])
def test_inside_an_epoch_shuffled_data_of_another_length_is_refused(shuffle: dict[str, int]) -> None:
    """The order follows from the length: some samples would come twice, and others never."""
    loader = Loader(Pipe.of(Numbers(30)).shuffle(**shuffle).batch(4), seed=2)
    samples = iter(loader)
    next(samples)
    state = json.loads(json.dumps(loader.state_dict()))
    for length in (29, 31, 300):
        with pytest.raises(SnapshotRefused, match=f"had 30 samples, and it has {length} now"):
            Loader(Pipe.of(Numbers(length)).shuffle(**shuffle).batch(4), seed=2).load_state_dict(state)
    for _ in samples:
        pass
    grown = Loader(Pipe.of(Numbers(31)).shuffle(**shuffle).batch(4), seed=2)
    grown.load_state_dict(loader.state_dict())
    assert sorted(n for batch in grown for n in batch) == list(range(31)), "between two epochs it may grow"
    in_order = Loader(Pipe.of(Numbers(30)).batch(4))
    next(iter(in_order))
    longer = Loader(Pipe.of(Numbers(33)).batch(4))
    longer.load_state_dict(in_order.state_dict())
    assert [n for batch in longer for n in batch] == list(range(4, 33)), "what comes in order may be longer"


def test_workers_start_with_the_users_function() -> None:
    seen: list[int] = []

    def init(number: int) -> None:
        seen.append(number)

    with Loader(Pipe.of(Numbers(10)).map(lambda x: list(seen)), workers=3, worker_init=init) as loader:
        assert {tuple(x) for x in loader} <= {(0,), (1,), (2,)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": -1}, "workers"),
        ({"workers": 2, "kind": "proces"}, "did you mean 'process'"),
        ({"workers": 0, "kind": "thread"}, "workers >= 1"),
        ({"timeout": 0}, "timeout"),
        ({"seed": -1}, "seed"),
        ({"start_method": "fork"}, "kind='process'"),
        ({"on_error": "ignore"}, "on_error"),
        ({"timeout": "a minute"}, "timeout must be None or a number of seconds > 0"),
        ({"recycle": True}, "recycle must be None or a whole number >= 1"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        Loader(Pipe.of(Numbers(3)), **options)


def test_a_loader_has_these_options_and_no_others() -> None:
    takes = inspect.signature(Loader).parameters.values()
    assert [p.name for p in takes if p.kind is p.KEYWORD_ONLY] == [
        "workers", "kind", "prefetch", "ordered", "seed", "epoch", "world", "timeout", "start_method", "strands",
        "memory", "worker_init", "restarts", "on_error", "on_poison", "on_stuck", "recycle", "recycle_memory", "ends",
        "sharding", "autosave", "quarantine",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gone", "value", "says"),
    [
        ("window", 4, "bounded by prefetch=, for each worker, and by memory="),
        ("stretch", False, "only while batches are quick to make"),
        ("pinned", True, "headrace.DataLoader has torch's worker for each"),
        ("stealing", False, "headrace.DataLoader has torch's worker for each"),
        ("randomness", "carried", "headrace.DataLoader carries the generators"),
        ("pool", None, "headrace.share(data)"),
        ("every", 5, "write autosave=Autosave(path, every=5)"),
        ("store", None, "write world=World(rank=..., ranks=..., store=store)"),
    ],
)
def test_an_option_that_is_no_more_is_refused_in_a_line_that_says_what_to_write(
    gone: str, value: object, says: str
) -> None:
    with pytest.raises(BadOption, match=f"Loader has no option '{gone}': .*{re.escape(says)}") as refused:
        Loader(Pipe.of(Numbers(3)), **dict.fromkeys([gone], value))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"randomness": "carry"}, "did you mean 'carried'"),
        ({"window": 0}, "window must be None or a whole number >= 1"),
    ],
)
def test_what_doors_say_beyond_the_options_is_checked_too(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        Policy(**options)


def test_a_door_makes_a_loader_of_a_policy() -> None:
    policy = Policy(workers=2, kind="thread", pinned=True, window=2)
    with Loader.of(Pipe.of(Numbers(9)).batch(2), policy, seed=3, epoch=1) as loader:
        assert (loader.policy, loader.seed, loader.epoch) == (policy, 3, 1)
        assert list(loader) == list(Loader(Pipe.of(Numbers(9)).batch(2)))


def test_a_loader_that_is_dropped_leaves_nothing(no_new_fds: Any) -> None:
    for batch in Loader(Pipe.of(Numbers(10)).batch(2), workers=2, start_method="fork"):
        assert batch
    no_new_fds()
    for _ in range(5):
        loader = Loader(Pipe.of(Numbers(10)).batch(2), workers=2, start_method="fork")
        next(iter(loader))
        del loader
        gc.collect()


@pytest.mark.parametrize("options", [{}, {"workers": 1, "kind": "thread"}, {"workers": 1}], ids=str)
def test_an_iterator_that_an_earlier_epoch_has_used_up_is_no_empty_epoch(options: dict[str, Any]) -> None:
    with Loader(Pipe.of(iter([1, 2])), **options) as loader:
        assert list(loader) == [1, 2]
        with pytest.raises(BadPipe, match="can be iterated again"):
            list(loader)


def test_a_snapshot_beyond_the_end_of_shorter_data_is_refused() -> None:
    loader = Loader(Pipe.of(range(10)))
    reader = iter(loader)
    for _ in range(9):
        next(reader)
    shorter = Loader(Pipe.of(range(5)))
    shorter.load_state_dict(loader.state_dict())
    with pytest.raises(SnapshotRefused, match="beyond the end of the data"):
        list(shorter)
