"""Our shorter ways to collate give what torch's `default_collate` gives, in a worker and outside of one."""

import collections
import gc
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data._utils import collate as torchs
from torch.utils.data._utils import worker

from headrace.doors.torch.collate import shorter
from headrace.doors.torch.loader import DataLoader
from headrace.doors.torch.numpy_collate import LeaveToTorch, _refuse, collated, default_collate
from headrace.engine.wire import codec
from headrace.engine.wire.fold import AsTensor
from tests.conftest import SRC, RunScript
from tests.doors.torch_free_datasets import Asking

Point = collections.namedtuple("Point", "x y")


class Named(list[int]):
    pass


LARGE = [np.arange(2000, dtype="f4").reshape(40, 50) + k for k in range(4)]
BATCHES: list[Any] = [
    [1, 2], [True, False], [True, 1], [1, True], [1, 2.5], [2.5, 1], [1.5, None], [1, None], [2**63, 1], [2**62, 1],
    [-1, 2], [1.5, True], [1.5, 2**60 + 1], [1j], ["a", "b"], [b"a"], [None], [{1}], [], [[]], [()], (1, 2),
    [np.float32(1), np.float32(2)], [np.float32(1), np.float64(2)], [np.float64(1), np.float32(2)],
    [np.int8(1), np.int8(2)], [np.uint16(1)], [np.float16(1)], [np.bool_(1)], [np.longdouble(1)], [np.complex64(1)],
    [np.datetime64(1, "s")], [np.str_("a")], [[np.float32(1), 3], [np.float32(2), 4]],
    [(1, 2.0), (3, 4.0)], [[1, 2], [3, 4]], [[1], [2, 3]], [(1,), (2, 3)], [Point(1, 2), Point(3, 4)],
    [{"a": 1}, {"a": 2}], [{"a": 1}, {"b": 2}], [{"a": 1, "b": 2}, {"a": 2}], [collections.OrderedDict(a=1)],
    [collections.defaultdict(int, a=1)], [Named([1, 2]), Named([3, 4])], [collections.deque([1, 2])],
    [range(3), range(3)], np.array(["a", "b"]), np.arange(3),
    [np.zeros(3), np.ones(3)], [np.zeros(3), np.ones(3, "f4")], [np.zeros(3), np.ones(4)], [np.zeros(()), np.ones(())],
    [np.zeros((4, 5, 3)).transpose(2, 0, 1)] * 3, [np.zeros((2, 3), order="F")], [np.zeros((2, 3))], [np.zeros((0, 3))],
    [np.array(["a"])], [np.array([None])], [np.zeros(3, "u2")],
    [np.zeros(3, ">f4")], [np.zeros(3, "c8")], LARGE, [a.T for a in LARGE], [np.ma.masked_array([1, 2])],
    [np.zeros(3), [0, 0, 0]],
    [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(4)], [torch.zeros(3), torch.ones(3).double()],
    [torch.zeros(3, dtype=torch.int32), torch.ones(3)], [torch.zeros(3, requires_grad=True)], [torch.zeros(())],
    [torch.zeros(0)], [torch.zeros(2000, dtype=torch.bfloat16)] * 2, [torch.zeros(3).to_sparse()],
    [1.5, torch.tensor(2.0, requires_grad=True)], [1, torch.tensor(2j).conj()],
    [torch.nn.Parameter(torch.zeros(2))], [torch.arange(4000).reshape(40, 100).T] * 3,
]  # fmt: skip


@pytest.fixture(params=["main", "worker"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "worker":
        monkeypatch.setattr(worker, "_worker_info", worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None))


def result(function: Any, batch: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(batch)
        except Exception as error:
            return type(error), str(error)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        alike = type(a) is type(b) and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        return alike and torch.equal(a, b) and (a.stride() == b.stride() or not a.numel())
    if isinstance(a, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("batch", BATCHES, ids=lambda b: str(b)[:40])
def test_the_result_is_torchs(batch: Any) -> None:
    assert same(result(default_collate, batch), result(torchs.default_collate, batch))


@pytest.mark.parametrize("batch", BATCHES, ids=lambda b: str(b)[:40])
def test_without_torch_the_result_is_the_same_or_left_to_torch(batch: Any) -> None:
    try:
        head, buffers = codec.pack(collated(batch, AsTensor, _refuse))
    except LeaveToTorch:
        return
    assert same(codec.load(head, [bytearray(raw) for raw in buffers]), result(torchs.default_collate, batch))


def test_most_usual_batches_are_not_left_to_torch() -> None:
    usual = [[1, 2], [True, False], [1.5, 2.5], ["a"], [np.float32(1)], LARGE, [(1, "a")], [{"a": [1, LARGE[0]]}]]
    for batch in usual:
        collated(batch, AsTensor, _refuse)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_need_no_torch_do_not_import_it(run_script: RunScript, context: str) -> None:
    # (A program of its own: the server of workers that other tests have started may have imported torch.)
    done = run_script(
        f"""
        import sys, torch
        sys.path.append({str(SRC.parent)!r})
        from headrace import DataLoader
        from tests.doors.torch_free_datasets import Numbers

        batches = list(DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context={context!r}))
        assert [b[0].tolist() for b in batches] == [list(range(k, k + 8)) for k in range(0, 40, 8)]
        assert all(type(b[1]) is torch.Tensor and b[1].shape == (8, 3000) for b in batches)
        print(any(bool(b[2].any()) for b in batches))
        """,
        warm=True,
    )
    assert done.stdout == "False\n", done.stderr


def test_torch_that_comes_late_finds_a_worker_as_torch_makes_it() -> None:
    def batches(kind: Any, context: str) -> list[Any]:
        generator = torch.Generator().manual_seed(5)
        return list(kind(Asking(), batch_size=8, num_workers=2, generator=generator, multiprocessing_context=context))

    ours, torchs_own = batches(DataLoader, "spawn"), batches(torch.utils.data.DataLoader, "fork")
    assert all(map(same, ours, torchs_own))


def test_a_changed_table_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torchs.default_collate_fn_map, int, lambda batch, *, collate_fn_map: "ints")
    monkeypatch.setitem(torchs.default_collate_fn_map, torch.Tensor, lambda batch, *, collate_fn_map: "tensors")
    monkeypatch.setitem(torchs.default_collate_fn_map, complex, lambda batch, *, collate_fn_map: "new")
    for batch in ([1, 2], [torch.zeros(3)], [np.zeros(3)], [1j], [1.5]):
        assert same(default_collate(batch), torchs.default_collate(batch))
    assert list(DataLoader([1, 2], 2, num_workers=1)) == ["ints"]


def test_only_torchs_own_function_is_replaced() -> None:
    assert shorter(torchs.default_collate) is default_collate
    assert shorter(str) is str


def own(samples: list[Any]) -> Any:
    return torchs.default_collate(samples)


def test_user_code_that_calls_torchs_in_a_worker_gets_the_same() -> None:
    data = [torch.full((100, 100), float(i)) for i in range(4)]
    (ours,) = DataLoader(data, 4, num_workers=1, collate_fn=own)  # type: ignore[arg-type]
    assert torch.equal(ours, torch.stack(data))
    assert torchs.default_collate_fn_map[torch.Tensor] is torchs.collate_tensor_fn, "only workers change their table"


class Caches:
    """A collate_fn that keeps what it has made."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __call__(self, samples: list[Any]) -> Any:
        self.kept.append(torchs.default_collate(samples))
        return [k[0, 0, 0].item() for k in self.kept]


def test_what_user_code_collates_in_a_worker_can_be_kept_there() -> None:
    for kind in (torch.full, np.full):
        data = [kind((100, 100), float(i)) for i in range(20)]
        *_, last = DataLoader(data, 1, num_workers=1, collate_fn=Caches(), prefetch_factor=2)  # type: ignore[arg-type]
        assert last == [float(i) for i in range(20)]


def test_batches_are_writable_and_independent() -> None:
    data = [torch.full((100, 100), float(i)) for i in range(6)]
    batches = list(DataLoader(data, 2, num_workers=2))  # type: ignore[arg-type]
    for batch in batches:
        batch.add_(100)
    assert [b[0, 0, 0].item() for b in batches] == [100, 102, 104]


def large(number: int, kind: str) -> Any:
    array = np.random.default_rng(number).integers(0, 255, (3, 160, 160), np.uint8)
    tensor = torch.from_numpy(array)
    return {
        "array": array,
        "tensor": tensor,
        "sample": (array, number),
        "fields": {"image": tensor, "name": str(number), "mask": array[:1].repeat(3, 0)},
        "list": [array, tensor],
        "turned": tensor.permute(1, 2, 0),
        "half": tensor.to(torch.bfloat16),
        "conj": torch.view_as_complex(tensor.float().reshape(-1, 2)).conj(),
        "unlike shapes": array if number % 2 else array[:, 1:],
        "unlike types": array if number % 2 else array.astype(np.float32),
        "tensors of unlike types": tensor if number % 2 else tensor.float(),
        "one small": array if number else array[0, 0],
        "big endian": array.astype(">f4"),
        "twice the same": (array, array),
    }[kind]


ALIKE = ("array", "tensor", "sample", "fields", "list", "turned", "half", "conj", "unlike types")
ALIKE += ("tensors of unlike types", "twice the same")


class Large(torch.utils.data.Dataset[Any]):
    def __init__(self, *kinds: str) -> None:
        self.samples = [large(number, kind) for kind in kinds for number in range(4)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def test_large_samples_make_torchs_batches() -> None:
    dataset = Large(*ALIKE)
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=True)
    for _ in range(2):  # what a worker's dataset keeps is not a part of a batch that has gone
        for kind, theirs, ours in zip(ALIKE, torch.utils.data.DataLoader(dataset, batch_size=4), loader, strict=True):
            assert same(theirs, ours), kind


@pytest.mark.parametrize("kind", ["unlike shapes", "one small", "big endian"])
def test_large_samples_that_torch_refuses_are_refused(kind: str) -> None:
    theirs, ours = (
        result(list, cls(Large(kind), batch_size=4, num_workers=number))
        for cls, number in ((torch.utils.data.DataLoader, 0), (DataLoader, 1))
    )
    assert theirs[0] is ours[0]
    gc.collect()  # the error's frames hold the iterator


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused_in_a_worker_in_torchs_words() -> None:
    batch: Any = [torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])] * 2
    with pytest.raises(RuntimeError, match="nested tensors are not currently supported by the default collate_fn"):
        list(DataLoader(batch, batch_size=2, num_workers=1))
    gc.collect()  # the error's frames hold the iterator
