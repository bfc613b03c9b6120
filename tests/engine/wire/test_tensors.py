"""Tensors that travel keep how they look at their memory, and which of them look at the same."""

from typing import Any

import pytest
import torch

from headrace.engine.wire import codec

BASE = torch.arange(3000.0)


def travel(thing: Any) -> Any:
    head, buffers = codec.pack(thing)
    return codec.load(bytearray(head), [memoryview(bytearray(raw)) for raw in buffers])


def travel_many(things: list[Any]) -> list[Any]:
    heads, buffers = codec.pack_many(things)
    loaded = zip(heads, buffers, strict=True)
    return [codec.load(bytearray(head), [memoryview(bytearray(raw)) for raw in raws]) for head, raws in loaded]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(2 * 3 * 8 * 8.0).view(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.arange(1200).view(30, 40).t(),
        torch.ones(3, 1).expand(3, 1000),
        torch.arange(4000.0)[::2],
        torch.arange(4000.0)[1000:],
        torch.zeros(4, 4, dtype=torch.bfloat16).t(),
        torch.zeros(0, 3),
        torch.ones(5, requires_grad=True),
        torch.ones(8, dtype=torch.complex64).conj(),
    ],
    ids=lambda t: f"{t.dtype}{list(t.shape)}{list(t.stride())}",
)
def test_a_tensor_keeps_its_values_and_strides(tensor: Any) -> None:
    for got in (travel(tensor), travel({"x": [tensor]})["x"][0], *travel_many([tensor, tensor])):
        assert torch.equal(got, tensor)
        assert (got.dtype, got.requires_grad, got.is_conj()) == (tensor.dtype, tensor.requires_grad, tensor.is_conj())
        assert got.stride() == tensor.stride() or not tensor.numel()


@pytest.mark.parametrize(
    "make",
    [
        lambda base: (base[:2000], base[1000:]),
        lambda base: (base, base.view(30, 100)),
        lambda base: {"whole": base, "part": base[1000:]},
        lambda base: [base.view(30, 100).t(), base],
    ],
)
def test_two_tensors_over_one_memory_arrive_as_that(make: Any) -> None:
    for got in (travel(make(BASE.clone())), *travel_many([make(BASE.clone())] * 2)):
        one, other = got.values() if isinstance(got, dict) else got
        assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        one.fill_(-1)
        assert (other == -1).any()


def test_samples_that_travel_together_have_nothing_in_common() -> None:
    one, other = travel_many([BASE, BASE])
    one.fill_(-1)
    assert torch.equal(other, BASE)


def test_a_row_of_a_large_tensor_travels_without_it() -> None:
    rows = torch.zeros(10_000, 100)
    head, buffers = codec.pack([rows[7], rows[8]])
    assert len(head) + sum(raw.nbytes for raw in buffers) < 4096
    tall = torch.zeros(100, 3, 8, 8).to(memory_format=torch.channels_last)
    assert travel({"image": tall[5:6]})["image"].stride() == tall[5:6].stride()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_travel() -> None:
    parts = [torch.ones(2, 3), torch.zeros(1, 3)]
    for layout in (torch.strided, torch.jagged):
        got = travel(torch.nested.nested_tensor(parts, layout=layout))
        assert got.is_nested
        assert all(map(torch.equal, got.unbind(), parts))
