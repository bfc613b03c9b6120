"""Functions over graphs: look, search, change, seed, check, draw."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Pipe
from headrace.datapipes import IterDataPipe
from headrace.datapipes.adapter import Adapter, CacheTimeout, Shuffle
from headrace.datapipes.graph import (
    apply_sharding,
    find_dps,
    lint,
    list_dps,
    remove_dp,
    replace_dp,
    set_graph_random_seed,
    shuffled_before_sharding,
    traverse_dps,
)
from headrace.datapipes.iter import Batcher, IterableWrapper, Mapper, ShardingFilter, Shuffler, Zipper
from headrace.datapipes.utils import to_graph, to_text
from headrace.doors.dataloader2.seeds import SeedGenerator


class Both(IterDataPipe[Any]):
    """Holds two pipes, one of them in a list, and something large that nobody may pickle."""

    def __init__(self, one: Any, others: list[Any]) -> None:
        self.one = one
        self.others = others
        self.payload = Unpicklable()

    def __iter__(self) -> Iterator[Any]:
        yield from self.one
        for other in self.others:
            yield from other


class Unpicklable:
    def __reduce__(self) -> Any:
        raise AssertionError("looking at a graph must not pickle what pipes hold")


def source() -> Any:
    return IterableWrapper(range(10))


def test_a_graph_is_nested_dicts_and_payloads_are_not_looked_into() -> None:
    one, other = source(), source().map(str)
    both = Both(one, [other])
    graph = traverse_dps(both)
    assert list(graph) == [id(both)]
    top, below = graph[id(both)]
    assert top is both
    assert list(below) == [id(one), id(other)]
    with pytest.raises(RuntimeError, match="Expected `IterDataPipe` or `MapDataPipe`"):
        traverse_dps([1])


def test_a_way_that_comes_back_is_cut() -> None:
    both = Both(source(), [])
    both.others.append(both)
    assert list_dps(traverse_dps(both)) == [both, both.one]
    both.others.clear()
    assert list(both.map(str)) == list("0123456789")


def test_pipes_are_found_by_exact_class_and_listed_from_the_end() -> None:
    first = source()
    mapped = first.map(str)
    top = mapped.shuffle().zip(first).batch(2)
    graph = traverse_dps(top)
    assert find_dps(graph, Mapper) == [mapped]
    assert find_dps(graph, IterDataPipe) == []
    assert [type(dp) for dp in list_dps(graph)] == [Batcher, Zipper, Shuffler, IterableWrapper, Mapper]
    assert [type(dp) for dp in list_dps(graph, exclude_dps=mapped)] == [Batcher, Zipper, Shuffler]


def test_a_pipe_is_replaced_wherever_it_feeds() -> None:
    first = source()
    mapped = first.map(str)
    top = mapped.zip(mapped.map(len))
    other = source().map(float)
    graph = replace_dp(traverse_dps(top), mapped, other.map(str))
    assert list(top)[:2] == [("0.0", 3), ("1.0", 3)]
    assert mapped not in list_dps(graph)


def test_the_new_pipe_may_be_built_on_the_old_one() -> None:
    mapped = source().map(float)
    top = Both(mapped, [])
    replace_dp(traverse_dps(top), mapped, mapped.header(2))
    assert list(top) == [0.0, 1.0]


def test_a_pipe_is_removed_and_its_source_takes_its_place() -> None:
    first = source()
    mapped = first.map(str)
    top = mapped.batch(5)
    graph = remove_dp(traverse_dps(top), mapped)
    assert list(top) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    (removed_top,) = remove_dp(graph, top).values()
    assert removed_top[0] is first
    with pytest.raises(RuntimeError, match="Cannot remove the source DataPipe"):
        remove_dp(traverse_dps(top), first)
    joined = first.zip(source())
    with pytest.raises(RuntimeError, match="multiple sending DataPipes"):
        remove_dp(traverse_dps(joined.map(str)), joined)


def test_a_plain_pipe_does_not_change() -> None:
    plain = Pipe.of([1])
    with pytest.raises(TypeError, match="a plain Pipe does not change"):
        replace_dp(traverse_dps(plain.map(str).map(len)), plain, source())


def test_seeds_are_shared_before_a_shard_point_and_own_after_it() -> None:
    def seeded(worker: int) -> tuple[list[Any], list[Any]]:
        top = source().shuffle().sharding_filter().batch(5).in_batch_shuffle()
        (mark,) = find_dps(traverse_dps(top), ShardingFilter)
        delivered = []
        for node in (mark, top):  # a seed holds for one iteration
            set_graph_random_seed(top, SeedGenerator(7).spawn(worker))
            delivered.append(list(node))
        return delivered[0], delivered[1]

    (before_a, after_a), (before_b, after_b) = seeded(0), seeded(1)
    assert before_a == before_b
    assert after_a != after_b
    assert seeded(0) == (before_a, after_a)


def test_set_seed_holds_for_the_next_iteration() -> None:
    pipe = source().shuffle()
    first = list(pipe.set_seed(3))
    assert list(pipe) != first
    assert list(pipe.set_seed(3)) == first
    assert list(pipe.set_shuffle(False)) == list(range(10))
    assert sorted(pipe.set_shuffle(True)) == list(range(10))


def test_shards_by_hand() -> None:
    pipe = source().sharding_filter()
    pipe.apply_sharding(3, 1)
    assert list(pipe) == [1, 4, 7]
    assert len(pipe) == 3
    with pytest.raises(ValueError, match=r"instance_id\(3\) should be smaller than num_of_instances\(3\)"):
        pipe.apply_sharding(3, 3)
    with pytest.raises(RuntimeError, match="cannot mix DEFAULT and non DEFAULT"):
        pipe.apply_sharding(2, 0, 3)
    both = source().sharding_filter()
    apply_sharding(both, 2, 1, 2)
    apply_sharding(both, 2, 0, 3)
    assert list(both) == [2, 6]
    with pytest.raises(RuntimeError, match="Sharding twice on a single pipeline"):
        apply_sharding(source().sharding_filter().map(str).sharding_filter(), 2, 0)


def test_the_lint_names_what_is_missing_and_what_to_write() -> None:
    assert lint(source().shuffle().sharding_filter(), 2) == []
    (no_mark,) = lint(source().shuffle(), 2)
    assert "put .sharding_filter() after .shuffle()" in no_mark
    assert lint(source().shuffle(), 1) == []
    late = source().sharding_filter().shuffle()
    assert not shuffled_before_sharding(late)
    (wrong,) = lint(late, 2)
    assert "put .shuffle() before .sharding_filter()" in wrong
    assert lint(source().sharding_filter().batch(2).in_batch_shuffle(), 2) == []


def test_the_shuffle_adapter_switches_shuffles() -> None:
    pipe = source().shuffle().map(str).shuffle()
    assert list(Shuffle(False)(pipe)) == list("0123456789")
    assert list(Shuffle(True)(pipe)) != list("0123456789")
    assert Shuffle(None)(pipe) is pipe
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`. Adding one at the end"):
        added = Shuffle(True)(source())
    assert type(added) is Shuffler
    with pytest.raises(ValueError, match="timeout should be integer"):
        CacheTimeout(None)
    with pytest.raises(NotImplementedError):
        Adapter()(source())


def test_the_cache_timeout_adapter_reaches_every_cache() -> None:
    pipe = IterableWrapper(["a"]).on_disk_cache(filepath_fn=str).map(lambda x: (x, b"")).end_caching()
    CacheTimeout(7)(pipe)
    assert pipe.op.timeout == 7


def test_a_graph_is_drawn_as_text() -> None:
    left, right = source().fork(2)
    text = to_text(left.map(str).zip(right))
    assert text.splitlines()[0].startswith("Zipper(")
    assert text.count("IterableWrapper(range(0, ") == 1
    assert "(above)" in text
    assert "Both" in to_text(Both(source(), []))


def test_drawing_for_graphviz_names_the_package() -> None:
    try:
        import graphviz  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModuleNotFoundError, match="pip install graphviz"):
            to_graph(source())
        return
    left, right = source().fork(2)
    drawn = to_graph(left.zip(right)).source
    assert drawn.count("Forker") == 1
    assert drawn.count("lightblue") == 1


def test_texts_about_lengths_are_those_that_programs_look_for() -> None:
    pairs = IterableWrapper([("a", 1)])
    for pipe, text in (
        (pairs.filter(bool), "object of type 'FilterIterDataPipe' has no len"),
        (pairs.readlines(), "has no len"),
        (pairs.filter(bool).open_files(), "FileOpenerIterDataPipe instance doesn't have valid length"),
        (pairs.filter(bool).map(str), "MapperIterDataPipe instance doesn't have valid length"),
        (pairs.filter(bool).enumerate(), "object of type 'FilterIterDataPipe' has no len"),
        (pairs.flatmap(), "FlatMapperIterDataPipe's length relies on the output of its function."),
        (pairs.shuffled_flatmap(list), "length relies on the output of its function."),
        (pairs.cycle(), "This CyclerIterDataPipe instance cycles forever"),
        (pairs.filter(bool).in_memory_cache(), "doesn't have valid length until the cache is loaded"),
        (Swap(pairs.filter(bool)), "object of type 'Swap' has no len"),
    ):
        with pytest.raises(TypeError, match=text):
            len(pipe)
    assert len(pairs.shuffled_flatmap()) == 2
    cached = IterableWrapper(range(9)).filter(lambda x: x > 3).in_memory_cache()
    assert (len(list(cached)), len(cached)) == (5, 5)
    table = IterableWrapper(range(9)).filter(lambda x: x > 3).to_map_datapipe(lambda x: (x, x))
    with pytest.warns(UserWarning, match="Data from prior DataPipe are loaded"):
        assert len(table) == 5


class Swap(IterDataPipe[Any]):
    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        return iter(self.source)


def test_branches_have_a_node_in_common() -> None:
    first, second = IterableWrapper(range(4)).demux(2, lambda x: x % 2)
    assert first.main_datapipe is second.main_datapipe
    assert first.main_datapipe in list_dps(traverse_dps(first.zip(second)))
    with pytest.raises(AttributeError):
        _ = IterableWrapper(range(4)).map(str).main_datapipe


def test_a_shuffle_is_looked_for_on_every_way_to_a_shard_point() -> None:
    source = IterableWrapper([(i, i) for i in range(4)])
    assert not shuffled_before_sharding(source.sharding_filter())
    assert not shuffled_before_sharding(source.sharding_filter().shuffle())
    assert shuffled_before_sharding(source.shuffle().map(str).sharding_filter())
    left, right = source.unzip(2)
    assert not shuffled_before_sharding(left.shuffle().zip(right).sharding_filter())
    assert shuffled_before_sharding(left.shuffle().zip(right.shuffle()).sharding_filter())


def test_pauses_and_drawings() -> None:
    for pipe in (IterableWrapper(range(3)).prefetch(2), IterableWrapper(range(3)).fullsync()):
        samples = iter(pipe)
        assert next(samples) == 0
        pipe.pause()
        assert list(pipe) == [0, 1, 2]
        pipe.resume()
    if importlib.util.find_spec("graphviz") is not None:
        assert "Mapper" in str(to_graph(dp=IterableWrapper(range(3)).map(str)))
