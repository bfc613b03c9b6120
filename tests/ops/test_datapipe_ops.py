"""Every in-memory op of the DataPipes inventory keeps the contract: travel, length, random access, resume, workers."""

import copy
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import headrace
from headrace import Loader, Pipe
from headrace.op import Spot, place
from headrace.ops.counts import BadCount
from headrace.pipe import cursor
from headrace.testing.checks import check_pipe
from tests.depth import across


def rows(n: int = 23) -> list[tuple[int, int, str]]:
    return [(i, i * i % 7, f"t{i}") for i in range(n)]


def dicts(n: int = 23) -> list[dict[str, Any]]:
    return [{"a": i, "b": {"c": i + 1, "d": i + 2}} for i in range(n)]


def stream(data: list[Any]) -> Pipe[Any]:
    return Pipe.of(lambda: iter(copy.deepcopy(data)))


def add(a: int, b: int) -> int:
    return a + b


class Point(NamedTuple):
    x: Any
    y: Any


def noisy(x: Any) -> Any:
    return (x, float(headrace.rng().random()))


async def slow_double(x: int) -> int:
    return 2 * x


def spread(x: int) -> list[int]:
    return [x] * (x % 4)


def third(x: int) -> int | None:
    return None if x % 5 == 4 else x % 3


def pairs(x: int) -> tuple[int, int]:
    return x, -x


def joined(*pipes: Pipe[Any]) -> Pipe[Any]:
    first, *rest = pipes
    return first.zip_longest(*rest)


NUMBERS = list(range(23))

CASES: dict[str, Any] = {
    "map column": lambda of: of(rows()).map(add, (0, 1)),
    "map to a new column": lambda of: of(rows()).map(add, [0, 1], -1),
    "map to a key": lambda of: of(dicts()).map(lambda b: b["c"], "b", "e"),
    "filter column": lambda of: of(rows()).filter(lambda b: b > 2, 1),
    "flatmap column": lambda of: of(rows()).flatmap(lambda b: range(b), 1),
    "flatmap itself": lambda of: of(rows()).flatmap(),
    "drop": lambda of: of(rows()).drop(1),
    "slice": lambda of: of(rows()).slice(0, 2),
    "slice keys": lambda of: of(dicts()).slice(["a"]),
    "flatten": lambda of: of(dicts()).flatten(),
    "add_index": lambda of: of(dicts()).add_index(),
    "rows2columnar": lambda of: of(dicts()).batch(4).rows2columnar(["a"]),
    "map_batches": lambda of: of(NUMBERS).map_batches(sorted, 4),
    "map_batches column": lambda of: of(rows()).map_batches(lambda column: [sum(column)], 4, input_col=0),
    "async_map_batches": lambda of: of(NUMBERS).async_map_batches(slow_double, 4),
    "async_map_batches kept": lambda of: of(NUMBERS).async_map_batches(slow_double, 4, flatten=False),
    "threadpool_map": lambda of: of(NUMBERS).threadpool_map(noisy, scheduled_tasks=5, max_workers=2),
    "bucketbatch": lambda of: of(NUMBERS).bucketbatch(3, batch_num=2, bucket_num=2, sort_key=sorted),
    "bucketbatch unsorted": lambda of: of(NUMBERS).bucketbatch(3, batch_num=2, use_in_batch_shuffle=False),
    "in_batch_shuffle": lambda of: of(NUMBERS).batch(5).in_batch_shuffle(),
    "groupby": lambda of: of(NUMBERS).groupby(lambda x: x % 3, group_size=2, keep_key=True),
    "groupby overflowing": lambda of: of(NUMBERS).groupby(lambda x: x % 3, buffer_size=4),
    "max_token_bucketize": lambda of: of(["x" * (i % 6) for i in NUMBERS]).max_token_bucketize(12, buffer_size=5),
    "max_token_bucketize padded": lambda of: of(["x" * (i % 6) for i in NUMBERS]).max_token_bucketize(
        12, buffer_size=5, include_padding=True
    ),
    "shuffled_flatmap": lambda of: of(NUMBERS).shuffled_flatmap(spread, buffer_size=4),
    "repeat": lambda of: of(NUMBERS).repeat(3),
    "set_length": lambda of: of(NUMBERS).set_length(23),
    "fork": lambda of: joined(*of(NUMBERS).fork(3)),
    "fork into maps": lambda of: joined(*[t.map(noisy) for t in of(NUMBERS).fork(2, copy="deep")]),
    "fork and filter": lambda of: (lambda a, b: a.filter(lambda x: x % 3 == 0).zip(b))(*of(NUMBERS).fork(2)),
    "fork and shuffle": lambda of: (lambda a, b: a.shuffle(buffer_size=4).zip(b))(*of(NUMBERS).fork(2)),
    "fork one after the other": lambda of: (lambda a, b: a.concat(b))(*of(NUMBERS).fork(2)),
    "fork twice": lambda of: (lambda a, b: a.zip(*b.fork(2)))(*of(NUMBERS).fork(2)),
    "fork cycled": lambda of: joined(*of(NUMBERS).fork(2)).cycle(2),
    "fork, one branch cycled": lambda of: (lambda a, b: a.cycle(2).zip(b))(*of(NUMBERS).fork(2)),
    "fork, read twice": lambda of: (lambda a, b: a.zip(a.map(noisy), b))(*of(NUMBERS).fork(2)),
    "fork, one branch alone": lambda of: of(NUMBERS).fork(2)[1],
    "demux": lambda of: joined(*of(NUMBERS).demux(3, third, drop_none=True)),
    "demux one after the other": lambda of: (lambda a, b, c: c.concat(a, b))(
        *of(NUMBERS).demux(3, third, drop_none=True)
    ),
    "demux, one branch alone": lambda of: of(NUMBERS).demux(3, third, drop_none=True)[1].map(noisy),
    "round_robin_demux": lambda of: joined(*of(NUMBERS).round_robin_demux(3)),
    "unzip": lambda of: joined(*of(rows()).unzip(3, columns_to_skip=[1])),
    "random_split": lambda of: of(NUMBERS).random_split({"a": 0.7, "b": 0.3}, seed=1, total_length=23)[1],
    "random_split beyond its length": lambda of: of(NUMBERS).random_split({"a": 1, "b": 1}, seed=1, total_length=6)[0],
    "mux": lambda of: of(NUMBERS).mux(of(rows(9)), of(NUMBERS)),
    "mux_longest": lambda of: of(NUMBERS).mux_longest(of(rows(9)), of(list(range(14)))),
    "zip_longest": lambda of: of(NUMBERS).zip_longest(of(rows(9)), fill_value="-"),
    "zip_with_iter": lambda of: of(NUMBERS).zip_with_iter(of(NUMBERS[::-1]).shuffle(window=4), lambda x: x),
    "zip_with_map": lambda of: of(NUMBERS).zip_with_map([x * 2 for x in NUMBERS], lambda x: x, keep_key=True),
    "to_map_datapipe": lambda of: of(NUMBERS).map(pairs).to_map_datapipe(),
    "to_iter_datapipe": lambda of: Pipe.of(NUMBERS).map(noisy).to_iter_datapipe([3, 1, 2]),
    "in_memory_cache": lambda of: of(NUMBERS).map(noisy).in_memory_cache().map(noisy),
    "in_memory_cache of an order": lambda of: of(NUMBERS).shuffle().in_memory_cache().shuffle(),
    "in_memory_cache too small": lambda of: of(["x" * 100_000] * 13).in_memory_cache(1).map(len),
    "in_memory_cache cycled": lambda of: of(NUMBERS).map(noisy).in_memory_cache().cycle(2),
    "prefetch": lambda of: of(NUMBERS).prefetch(3).map(noisy),
    "fullsync": lambda of: of(NUMBERS).batch(3).fullsync(),
    "dispatch": lambda of: of(NUMBERS).shuffle().sharding_round_robin_dispatch(3).map(noisy),
}


KINDS = ("sequence", "stream")


@pytest.mark.parametrize(
    ("name", "kind", "checkpoint"), [*across(CASES, KINDS, [1]), *across(CASES, KINDS[::-1], [1000])]
)
@pytest.mark.filterwarnings("ignore:in_memory_cache. the samples take more")
def test_an_op_keeps_the_contract(name: str, kind: str, checkpoint: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "CHECKPOINT", checkpoint)
    indexed = Pipe.indexed

    def and_be_there(pipe: Any, seed: int, epoch: int, spot: Any = None, clock: Any = None) -> Any:
        # The checks ask for positions without an engine, which is what tells rng() where it is.
        if spot is None:
            spot = place.spot = Spot()
        return indexed(pipe, seed, epoch, spot, clock)

    monkeypatch.setattr(Pipe, "indexed", and_be_there)
    source = Pipe.of if kind == "sequence" else stream
    check_pipe(CASES[name](source), workers=checkpoint == 1000)


def test_columns_are_copied_not_changed() -> None:
    data = [[1, 2], [3, 4]]
    assert list(Pipe.of(data).map(lambda x: -x, 0)) == [[-1, 2], [-3, 4]]
    assert data == [[1, 2], [3, 4]]


def test_a_sample_with_a_new_column_keeps_its_class() -> None:
    ordered = OrderedDict(a=1, b=2)
    (changed,) = Pipe.of([ordered]).map(lambda x: -x, "a")
    assert type(changed) is OrderedDict
    assert changed == OrderedDict(a=-1, b=2)
    assert ordered["a"] == 1
    array = np.arange(3, dtype=np.int16)
    (doubled,) = Pipe.of([array]).map(lambda x: 2 * x, 2)
    assert doubled.dtype == np.int16
    assert doubled.tolist() == [0, 1, 4]
    assert array.tolist() == [0, 1, 2]
    tensor = torch.arange(3)
    (doubled,) = Pipe.of([tensor]).map(lambda x: 2 * x, 2)
    assert doubled.tolist() == [0, 1, 4]
    assert tensor.tolist() == [0, 1, 2]


def test_a_named_tuple_with_more_or_fewer_columns_is_a_plain_tuple() -> None:
    named = Pipe.of([Point(1, 2)])
    assert list(named.map(lambda x: -x, 0)) == [Point(-1, 2)]
    assert list(named.map(lambda x: -x, 0, -1)) == [(1, 2, -1)]
    assert list(named.map(add, (0, 1))) == [(3,)]
    assert list(named.drop(0)) == [(2,)]
    assert list(named.slice([1])) == [(2,)]
    assert list(Pipe.of([Point(1, (2, 3))]).flatten()) == [(1, 2, 3)]


def test_one_column_in_a_list_is_flattened_as_that_column_alone() -> None:
    pipe = Pipe.of([((1, 2), 3), ((4,), 5)])
    assert list(pipe.flatmap(None, [0])) == list(pipe.flatmap(None, 0)) == [1, 2, 4]
    assert list(pipe.flatmap(None, [1, 0])) == [3, (1, 2), 5, (4,)]


def test_several_input_columns_leave_the_first_and_remove_the_others() -> None:
    assert list(Pipe.of([(1, 2, 3, 4)]).map(lambda a, b, c: a + b + c, (1, 0, 3))) == [(7, 3)]
    assert list(Pipe.of([{"a": 1, "b": 2}]).map(add, ["a", "b"])) == [{"a": 3}]


def test_a_function_with_the_wrong_number_of_arguments_is_refused_at_once() -> None:
    pipe = Pipe.of(rows())
    with pytest.raises(ValueError, match="takes 2 positional parameters, but 1 are required"):
        pipe.map(add, 0)
    with pytest.raises(ValueError, match="takes 2 positional parameters, but 3 are required"):
        pipe.map(add, (0, 1, 2))

    def picky(x: int, *, how: str) -> int:
        return x

    with pytest.raises(ValueError, match="non-default keyword-only"):
        pipe.map(picky, 0)
    with pytest.raises(ValueError, match="`output_col` must be None"):
        pipe.map(str, None, 1)
    with pytest.raises(ValueError, match="single-element"):
        pipe.map(str, 0, [0, 1])
    assert list(pipe.header(1).map(str, 0)) == [("0", 0, "t0")]


def test_a_filter_on_columns_must_say_yes_or_no() -> None:
    with pytest.raises(ValueError, match="Boolean output is required"):
        list(Pipe.of(rows()).filter(lambda x: None, 0))


def test_flatten_of_index_zero_flattens_only_that_field() -> None:
    assert list(Pipe.of([((1, 2), (3, 4))]).flatten(0)) == [(1, 2, (3, 4))]
    assert list(Pipe.of([((1, 2), (3, 4))]).flatten()) == [(1, 2, 3, 4)]


def test_missing_fields_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="not present in the item"):
        assert list(Pipe.of([(1, 2)]).drop(5)) == [(1, 2)]
    with pytest.warns(UserWarning, match="was not an iterable"):
        assert list(Pipe.of([7]).slice(0)) == [7]
    with pytest.warns(UserWarning, match="no filter was done"):
        assert list(Pipe.of([{"a": 1, "b": 2}]).slice(0, 1)) == [{"a": 1, "b": 2}]
    with pytest.warns(UserWarning, match="same key twice"):
        assert list(Pipe.of([{"a": 1, "b": {"a": 2}}]).flatten()) == [{"a": 1}]
    with pytest.raises(NotImplementedError, match="dict type"):
        list(Pipe.of([1]).add_index())


def test_a_group_is_emitted_under_its_own_key_when_the_buffer_is_full() -> None:
    words = ["a1", "a2", "b1", "c1"]
    pipe = Pipe.of(words).groupby(lambda w: w[0], keep_key=True, buffer_size=3)
    assert list(pipe) == [("a", ["a1", "a2"]), ("b", ["b1"]), ("c", ["c1"])]


def test_a_group_that_is_too_small_is_an_error_or_dropped() -> None:
    options: dict[str, Any] = {"buffer_size": 3, "group_size": 3, "guaranteed_group_size": 2}
    with pytest.raises(RuntimeError, match="Failed to group items"):
        list(Pipe.of(range(9)).groupby(lambda x: x, **options))
    kept = list(Pipe.of(range(9)).groupby(lambda x: x, **options, drop_remaining=True))
    assert kept == [[7], [8]]
    with pytest.raises(AssertionError, match="group_size must be > 0"):
        Pipe.of(range(9)).groupby(lambda x: x, group_size=0)


def test_branches_that_drift_apart_are_an_error() -> None:
    a, b = stream(NUMBERS).fork(2, buffer_size=5)
    with pytest.raises(BufferError, match="ForkerIterDataPipe buffer overflow"):
        list(a.concat(b))
    a, b = stream(NUMBERS).demux(2, lambda x: x % 2, buffer_size=5)
    with pytest.raises(BufferError, match="DemultiplexerIterDataPipe buffer overflow"):
        list(a.concat(b))
    with pytest.warns(UserWarning, match="Unlimited buffer size"):
        a, b = stream(NUMBERS).fork(2, buffer_size=-1)
    assert list(a.concat(b)) == NUMBERS * 2


def test_branches_resume_behind_more_samples_than_their_buffer_holds() -> None:
    many = list(range(2500))  # (several blocks of a stream: a snapshot stands at the beginning of one)
    a, b = stream(many).fork(2, buffer_size=3)
    pipe = a.zip(b)
    with Loader(pipe) as first, Loader(pipe) as second:
        reading = iter(first)
        front = [next(reading) for _ in range(2000)]
        second.load_state_dict(first.state_dict())
        assert front + list(second) == [(x, x) for x in many]


def test_branches_read_their_source_once() -> None:
    reads: list[int] = []

    def noted(x: int) -> int:
        reads.append(x)
        return x

    a, b = stream(NUMBERS).map(noted).fork(2)
    assert list(a.zip(b)) == [(x, x) for x in NUMBERS]
    assert reads == NUMBERS
    reads.clear()
    a, b = Pipe.of(NUMBERS).map(noted).fork(2)
    indexed = a.zip(b).indexed(0, 0)
    assert indexed is not None
    assert [indexed.get(i) for i in range(indexed.length)] == [(x, x) for x in NUMBERS]
    assert reads == NUMBERS


def test_a_split_is_exact_disjoint_and_the_same_in_every_epoch() -> None:
    train, test = Pipe.of(range(100)).random_split({"train": 0.8, "test": 0.2}, seed=3)
    assert (len(train), len(test)) == (80, 20)
    assert sorted([*train, *test]) == list(range(100))
    assert list(train) == list(train)
    assert list(Pipe.of(range(100)).random_split({"a": 1, "b": 1}, seed=4, target="b")) != list(
        Pipe.of(range(100)).random_split({"a": 1, "b": 1}, seed=5, target="b")
    )
    with pytest.raises(KeyError, match="does not match any key"):
        Pipe.of(range(10)).random_split({"a": 1}, seed=0, target="c")
    with pytest.raises(TypeError, match="unable to infer it"):
        Pipe.of(lambda: iter(range(10))).random_split({"a": 1}, seed=0)


def test_numbers_that_cannot_be_are_refused() -> None:
    pipe = Pipe.of(NUMBERS)
    for bad in (
        lambda: pipe.map_batches(sorted, 0),
        lambda: pipe.bucketbatch(0),
        lambda: pipe.bucketbatch(1, batch_num=0),
        lambda: pipe.set_length(-1),
        lambda: pipe.shuffled_flatmap(spread, buffer_size=0),
    ):
        with pytest.raises(BadCount):
            bad()
    for bad, text in (
        (lambda: pipe.fork(0), "Expected `num_instances` larger than 0"),
        (lambda: pipe.demux(0, third), "Expected `num_instances` larger than 0"),
        (lambda: pipe.round_robin_demux(0), "Expected `num_instaces` larger than 0"),
        (lambda: pipe.repeat(1), "must be > 1"),
        (lambda: pipe.prefetch(0), "'buffer_size' is required to be a positive integer"),
        (lambda: pipe.threadpool_map(str, scheduled_tasks=0), "'scheduled_tasks'"),
        (lambda: pipe.threadpool_map(str, max_workers=0), "'max_workers'"),
        (lambda: pipe.max_token_bucketize(5, min_len=-1), "min_len"),
        (lambda: pipe.max_token_bucketize(5, max_len=9), "max_token_count"),
        (lambda: pipe.max_token_bucketize(5, buffer_size=0), "'buffer_size'"),
        (lambda: pipe.zip_with_iter(pipe, str, buffer_size=0), "'buffer_size'"),
        (lambda: pipe.fork(2, copy="some"), "Unknown copy method"),
        (lambda: pipe.async_map_batches(str, 2), "corotine"),
    ):
        with pytest.raises(ValueError, match=text):
            bad()


def test_what_a_table_or_a_partner_lacks_is_said() -> None:
    with pytest.raises(KeyError, match="not a valid key"):
        list(Pipe.of([9]).zip_with_map({1: 2}, lambda x: x))
    with pytest.raises(BufferError, match="No matching key"):
        list(Pipe.of([9]).zip_with_iter(Pipe.of([1]), lambda x: x))
    with pytest.raises(ValueError, match="Duplicate key"):
        list(Pipe.of([9]).zip_with_iter(Pipe.of([1, 1]), lambda x: x))
    with pytest.raises(ValueError, match="between 0 and 1"):
        list(Pipe.of([9]).demux(2, lambda x: x)[0])
    with pytest.raises(RuntimeError, match="filtered out"):
        Pipe.of(rows()).unzip(1, columns_to_skip=[0])
    with pytest.warns(UserWarning, match="Found duplicate key"):
        assert list(Pipe.of([(0, 1), (0, 2)]).to_map_datapipe()) == [2]
    with pytest.raises(ValueError, match="length 3, 2 is required"):
        len(Pipe.of([(0, 1, 2)]).to_map_datapipe())
    with pytest.raises(IndexError, match="is invalid for IterToMapConverter"):
        Pipe.of([(0, 1)]).to_map_datapipe()[5]  # type: ignore[index]


def test_a_buffer_of_partners_that_overflows_forgets_the_oldest_with_one_warning() -> None:
    pipe = Pipe.of([4, 3]).zip_with_iter(Pipe.of([0, 1, 2, 3, 4]), lambda x: x, buffer_size=2)
    with pytest.warns(UserWarning, match="Buffer reaches the upper limit") as told:
        assert list(pipe) == [(4, 4), (3, 3)]
    assert len(told) == 1
