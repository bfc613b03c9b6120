"""What pack() takes: ids that int32 can hold, and fields of which none is overwritten or lost."""

from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption

WIDE = [
    (np.array([2**40 + 5, 7]), "1099511627781"),
    (np.array([2**32 - 1], np.uint32), "4294967295"),
    (np.array([2**63], np.uint64), "9223372036854775808"),
    (np.array([-(2**31) - 1]), "-2147483649"),
    ([2**31, 1], "2147483648"),
]


def packed(of: list[Any], known: bool, **options: Any) -> list[dict[str, Any]]:
    pipe = Pipe.of(of)
    if known:
        pipe = pipe.sized([len(one["tokens"] if isinstance(one, dict) else one) for one in of])
    return list(Loader(pipe.pack(6, **options)))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("as_dict", [False, True])
def test_ids_that_int32_cannot_hold_are_refused(known: bool, as_dict: bool) -> None:
    def as_told(tokens: Any) -> Any:
        return {"tokens": tokens} if as_dict else tokens

    for tokens, said in WIDE:
        with pytest.raises(BadOption, match=f"document 1 has the token id {said}: ids must be whole numbers within"):
            packed([as_told([1]), as_told(tokens)], known)
    for tokens in ([1.5, 2.5], np.array([float("nan"), 1.0]), np.array([1 + 2j])):
        with pytest.raises(BadOption, match=r"document 1 holds values of type .* whole numbers within int32"):
            packed([as_told([1]), as_told(tokens)], known)
    for tokens in ([-(2**31), 2**31 - 1], np.array([2**31 - 1], np.uint64), np.array([3], np.uint8), [], [True]):
        (row,) = packed([as_told([1]), as_told(tokens)], known)
        assert row["tokens"][: 1 + len(tokens)].tolist() == [1, *map(int, tokens)]


def test_of_a_long_document_only_what_is_in_the_row_is_looked_at() -> None:
    pipe = Pipe.of([np.array([1, 2, 3, 2**40])]).sized([4]).pack(2)
    rows = pipe.indexed(0, 0)
    assert rows is not None
    assert rows.get(0)["tokens"].tolist() == [1, 2]
    with pytest.raises(BadOption, match="token id"):
        rows.get(1)


def test_padding_and_separators_are_ids_too() -> None:
    for name in ("pad", "separator"):
        for value in (2**31, 0.5):
            with pytest.raises(BadOption, match=f"{name}={value}: ids must be whole numbers"):
                Pipe.of([[1]]).pack(3, **{name: value})


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ("mask", "positions", "documents")),
        ({"form": "flat"}, ("cu_seqlens", "max_seqlen", "positions")),
        ({"how": "fit", "long": "drop"}, ("left_out", "mask")),
        ({"drop_tail": True}, ("left_out",)),
    ],
)
def test_a_field_that_would_be_overwritten_is_refused(known: bool, options: Any, names: tuple[str, ...]) -> None:
    for name in names:
        with pytest.raises(BadOption, match=f"document 1 has a field '{name}'.*rename"):
            packed([{"tokens": [1]}, {"tokens": [2, 3, 4, 5, 6], name: [0, 1, 0, 1, 0]}], known, **options)


@pytest.mark.parametrize("known", [False, True])
def test_other_names_are_the_users_own(known: bool) -> None:
    (row,) = packed([{"tokens": [1, 2], "cu_seqlens": [3, 4], "left_out": [5, 6], "input_ids": [7, 8]}], known)
    assert row["cu_seqlens"].tolist() == [3, 4, 0, 0, 0, 0]
    assert row["left_out"].tolist() == [5, 6, 0, 0, 0, 0]
    assert row["input_ids"].tolist() == [7, 8, 0, 0, 0, 0]


@pytest.mark.parametrize("known", [False, True])
def test_documents_of_a_row_have_the_same_fields(known: bool) -> None:
    plain, rich, array = {"tokens": [1, 2]}, {"tokens": [3], "loss": [7]}, [4, 5]
    for of in ([plain, rich], [rich, plain], [array, rich], [rich, array]):
        has = of.index(rich)
        with pytest.raises(BadOption, match=f"document {has} has a field 'loss', and document {1 - has} in the same"):
            packed(of, known)
    (row,) = packed([plain, array], known)
    assert row["tokens"].tolist() == [1, 2, 4, 5, 0, 0]
    for of in ([array, rich], [rich, array]):
        with pytest.raises(BadOption, match="separator"):
            packed(of, known, separator=0)
