"""Pipes beside torch: its generator rules their order, its DataLoader and its graph functions see them as its own."""

import json
import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headrace import DataLoader2, InProcessReadingService, MultiProcessingReadingService
from headrace.datapipes import IterDataPipe, MapDataPipe, SequenceWrapper
from headrace.datapipes.graph import list_dps, replace_dp, traverse_dps
from headrace.datapipes.iter import Batcher, IterableWrapper, Mapper, SampleMultiplexer, Shuffler
from tests.conftest import RunScript

torch = pytest.importorskip("torch")
data = pytest.importorskip("torch.utils.data")
settings = pytest.importorskip("torch.utils.data.graph_settings")


class Through(IterDataPipe[Any]):
    """A class of the user's around another pipe."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        yield from self.source


class Numbers(MapDataPipe[int]):
    def __getitem__(self, index: int) -> int:
        return index * index

    def __len__(self) -> int:
        return 10


class TorchThrough(data.IterDataPipe):  # type: ignore[misc, name-defined]
    """The same, of torch's class."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        yield from self.source


# --- torch.manual_seed rules ------------------------------------------------------------------------------------------

RANDOM: list[Any] = [
    lambda: IterableWrapper(range(50)).shuffle(),
    lambda: IterableWrapper(iter_of_50).shuffle(buffer_size=20),
    lambda: SequenceWrapper(range(50)).shuffle(),
    lambda: IterableWrapper(range(50)).batch(25).in_batch_shuffle().unbatch(),
    lambda: IterableWrapper([range(25), range(25, 50)]).shuffled_flatmap(),
    lambda: SampleMultiplexer({IterableWrapper(range(25)): 0.5, IterableWrapper(range(25, 50)): 0.5}),
    lambda: Through(IterableWrapper(range(50)).shuffle()),
]


def iter_of_50() -> Iterator[int]:
    return iter(range(50))


@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_a_bare_pipe_draws_its_order_from_torchs_generator(number: int) -> None:
    pipe = RANDOM[number]()
    passes = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        passes.append([list(pipe), list(pipe)])
    assert passes[0] == passes[1]
    assert passes[0] != passes[2]
    assert passes[0][0] != passes[0][1]
    assert sorted(passes[0][0]) == list(range(50))


def test_a_pipe_without_chance_draws_nothing() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert list(IterableWrapper(range(5)).map(str).batch(2)) == [["0", "1"], ["2", "3"], ["4"]]
    assert list(IterableWrapper(range(5)).shuffle().set_shuffle(False)) == list(range(5))
    assert list(IterableWrapper(range(5)).shuffle().set_seed(1)) != []
    assert torch.equal(before, torch.get_rng_state())


def test_a_seed_told_by_hand_is_used_once() -> None:
    pipe = IterableWrapper(range(50)).shuffle()
    torch.manual_seed(0)
    pipe.set_seed(5)
    first, after = list(pipe), list(pipe)
    torch.manual_seed(0)
    assert list(pipe) == after
    pipe.set_seed(5)
    assert list(pipe) == first


@pytest.mark.parametrize("service", [None, InProcessReadingService, lambda: MultiProcessingReadingService(2)])
def test_every_epoch_of_dataloader2_draws_its_seed_from_torch(service: Any) -> None:
    epochs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with DataLoader2(RANDOM[0]().sharding_filter(), reading_service=service and service()) as dl:
            epochs.append([list(dl), list(dl)])
    assert epochs[0] == epochs[1] != epochs[2]
    assert epochs[0][0] != epochs[0][1]


def test_the_number_that_an_epoch_drew_is_in_its_state() -> None:
    torch.manual_seed(1)
    with DataLoader2(RANDOM[0]().batch(5)) as dl:
        whole, following = list(dl), list(dl)
    torch.manual_seed(1)
    with DataLoader2(RANDOM[0]().batch(5)) as dl:
        batches = iter(dl)
        begun = [next(batches) for _ in range(3)]
        state = json.loads(json.dumps(dl.state_dict()))
    drawn = torch.get_rng_state()
    torch.manual_seed(99)
    with DataLoader2(RANDOM[0]().batch(5)) as dl:
        dl.load_state_dict(state)
        assert begun + list(dl) == whole
        torch.set_rng_state(drawn)
        assert list(dl) == following


# --- torch's own DataLoader -------------------------------------------------------------------------------------------


def loaded(pipe: Any, workers: int = 2, loader: Any = None, **options: Any) -> list[Any]:
    make = loader or data.DataLoader
    if workers:
        options["multiprocessing_context"] = "fork"
    return [x for batch in make(pipe, batch_size=4, num_workers=workers, **options) for x in batch.tolist()]


def shard(number: int) -> None:
    info = data.get_worker_info()
    settings.apply_sharding(info.dataset, info.num_workers, number)


def headraces() -> Any:
    from headrace import DataLoader

    return DataLoader


LOADERS = [lambda: data.DataLoader, headraces]


@pytest.mark.parametrize("loader", LOADERS)
def test_each_sample_comes_once_however_the_graph_is_sharded(loader: Any) -> None:
    numbers = IterableWrapper(range(20))
    for pipe, options in (
        (numbers.sharding_filter(), {}),
        (numbers.sharding_filter().map(int), {"worker_init_fn": shard}),
        (Through(numbers.sharding_filter()), {}),
        (Through(Through(numbers).sharding_filter()), {}),
        (TorchThrough(numbers.sharding_filter()), {}),
    ):
        assert sorted(loaded(pipe, loader=loader(), **options)) == list(range(20))
    with pytest.warns(UserWarning, match="each sample arrives 2 times") if loader is headraces else nullcontext():
        assert sorted(loaded(numbers, loader=loader())) == sorted([*range(20)] * 2)  # nobody has divided it


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_shuffle_says_whether_the_graph_shuffles(loader: Any, workers: int) -> None:
    def pipe() -> Any:
        return IterableWrapper(range(100)).shuffle().sharding_filter()

    torch.manual_seed(0)
    for shuffle, shuffled in ((None, True), (True, True), (False, False)):
        order = loaded(pipe(), workers, loader(), shuffle=shuffle)
        assert sorted(order) == list(range(100))
        assert (loaded(pipe(), workers, loader(), shuffle=shuffle) != order) is shuffled
    if loader is not headraces:
        return  # torch's says that it adds a shuffle, and forgets it
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`"):
        order = loaded(IterableWrapper(range(100)), 0, loader(), shuffle=True)
    assert order != sorted(order) == list(range(100))


@pytest.mark.parametrize("loader", LOADERS)
def test_the_same_seed_gives_the_same_order_in_every_worker_and_each_epoch_another(loader: Any) -> None:
    pipe = IterableWrapper(range(100)).shuffle().sharding_filter()
    made = loader()(pipe, batch_size=4, num_workers=2, multiprocessing_context="fork")
    torch.manual_seed(7)
    first, second = [[x for b in made for x in b.tolist()] for _ in range(2)]
    assert first != second
    assert sorted(first) == sorted(second) == list(range(100))
    torch.manual_seed(7)
    assert [x for b in made for x in b.tolist()] == first


@pytest.mark.parametrize("loader", LOADERS)
def test_a_table_is_a_map_style_dataset(loader: Any) -> None:
    for table in (Numbers(), SequenceWrapper(range(10)).map(lambda x: x * x)):
        made = loader()(table, batch_size=2, num_workers=2, multiprocessing_context="fork")
        assert isinstance(table, data.MapDataPipe)
        assert not isinstance(table, data.IterableDataset)
        assert [b.tolist() for b in made] == [[0, 1], [4, 9], [16, 25], [36, 49], [64, 81]]
        order = [x for b in loader()(table, batch_size=2, shuffle=True) for x in b.tolist()]
        assert sorted(order) == [x * x for x in range(10)]


def test_our_loader_keeps_our_pipes_on_our_engine() -> None:
    from headrace.doors.torch.iteration import Iteration

    loader = headraces()
    for pipe in (IterableWrapper(range(9)).shuffle().sharding_filter(), Through(IterableWrapper(range(9))), Numbers()):
        assert isinstance(iter(loader(pipe)), Iteration)


@pytest.mark.parametrize("workers", [0, 2])
def test_our_loader_goes_on_in_the_middle_of_a_graph(workers: int) -> None:
    def made() -> Any:
        pipe = IterableWrapper(range(40)).shuffle().sharding_filter()
        return headraces()(pipe, 4, num_workers=workers, multiprocessing_context="fork" if workers else None)

    loader = made()
    batches = iter(loader)
    begun = [next(batches).tolist() for _ in range(3)]
    state = loader.state_dict()
    rest = [b.tolist() for b in batches]
    torch.manual_seed(99)
    again = made()
    again.load_state_dict(state)
    assert [b.tolist() for b in again] == rest
    assert sorted(x for b in begun + rest for x in b) == list(range(40))


def test_torchs_graph_functions_see_our_graphs() -> None:
    source = IterableWrapper(range(9))
    shuffled = source.shuffle()
    marked = Through(shuffled).sharding_filter()
    top = Through([marked, Through(source)])
    graph = data.graph.traverse_dps(top)
    assert graph.keys() == {id(top)}
    assert set(graph[id(top)][1]) == {id(marked), *(id(d) for d in top.source[1:])}
    nodes = settings.get_all_graph_pipes(graph)
    assert {id(node) for node in nodes} == {id(node) for node in list_dps(traverse_dps(top))}
    settings.apply_sharding(marked, 3, 1)
    settings.apply_shuffle_settings(marked, False)
    assert list(marked) == [1, 4, 7]
    settings.apply_shuffle_settings(marked, True)
    generator = torch.Generator()
    for _ in range(2):
        settings.apply_random_seed(marked, generator.manual_seed(4))
        assert len(list(marked)) == 3
    with pytest.raises(RuntimeError, match="Sharding twice"):
        settings.apply_sharding(marked.sharding_filter(), 2, 0)


def test_looking_at_a_graph_never_pickles_what_it_holds() -> None:
    class Heavy:
        def __reduce__(self) -> Any:
            raise AssertionError("a payload was pickled")

    source = IterableWrapper([Heavy()], deepcopy=False)
    assert len(settings.get_all_graph_pipes(data.graph.traverse_dps(source.map(id)))) == 2


@pytest.mark.parametrize("first", ["torch.utils.data", "headrace.datapipes"])
def test_whatever_is_imported_first_the_classes_answer(first: str, run_script: RunScript) -> None:
    done = run_script(
        """
import importlib, sys
importlib.import_module(sys.argv[1])
import headrace.datapipes
assert ("torch" in sys.modules) == (sys.argv[1] == "torch.utils.data")
from headrace.datapipes.iter import IterableWrapper
from headrace.datapipes.map import SequenceWrapper
stream, table = IterableWrapper(range(4)).sharding_filter(), SequenceWrapper(range(4))
assert list(stream) == [0, 1, 2, 3]
import torch.utils.data as data
from torch.utils.data.graph_settings import apply_sharding
assert isinstance(stream, data.IterDataPipe) and isinstance(stream, data.IterableDataset)
assert isinstance(table, data.MapDataPipe) and not isinstance(table, data.IterableDataset)
apply_sharding(stream, 2, 1)
assert list(stream) == [1, 3]
""",
        first,
        warm=first == "torch.utils.data",
    )
    assert done.returncode == 0, done.stderr


# --- classes of torch's in our graphs ---------------------------------------------------------------------------------


def test_a_class_of_torchs_stands_anywhere_in_our_graphs() -> None:
    numbers = IterableWrapper(range(6))
    own = TorchThrough(numbers.map(lambda x: x * 10))
    assert list(numbers.zip(own)) == [(i, i * 10) for i in range(6)]
    assert list(numbers.concat(own)) == [*range(6), *range(0, 60, 10)]
    assert list(numbers.mux(own))[:4] == [0, 0, 1, 10]
    assert list(Batcher(own, 3)) == [[0, 10, 20], [30, 40, 50]]
    assert [type(n) for n in list_dps(traverse_dps(Batcher(own, 3)))] == [
        Batcher,
        TorchThrough,
        Mapper,
        IterableWrapper,
    ]


def test_a_class_of_torchs_is_replaced_and_replaces() -> None:
    source = IterableWrapper(range(6))
    shuffled = source.shuffle()
    top = TorchThrough(shuffled).map(str)
    assert type(top).__module__.startswith("torch.")  # a verb of torch's class makes a pipe of torch's
    graph = replace_dp(traverse_dps(top), shuffled, TorchThrough(source))
    assert list(top) == list("012345")
    assert [n for n in list_dps(graph) if isinstance(n, Shuffler)] == []
    dl: DataLoader2[Any] = DataLoader2(top, reading_service=MultiProcessingReadingService(2))
    with pytest.warns(UserWarning, match="no sharding_filter"), dl:
        assert list(dl) == list("012345")


def test_torchs_shard_points_and_shuffles_are_obeyed_by_dataloader2() -> None:
    pipe = TorchThrough(IterableWrapper(range(40))).shuffle().sharding_filter().batch(4)
    runs = []
    for workers in (0, 1, 2):
        service = MultiProcessingReadingService(workers) if workers else None
        with DataLoader2(pipe, reading_service=service) as dl:
            dl.seed(3)
            runs.append([list(dl), list(dl)])
    assert runs[1] == runs[2]
    assert [len(batch) for batch in runs[0][0]] == [4] * 10  # in process it is one copy
    for run in runs:
        first, second = [[x for b in epoch for x in b] for epoch in run]
        assert first != second
        assert sorted(first) == sorted(second) == list(range(40))


def test_a_verb_registered_with_torch_works_on_our_pipes() -> None:
    @data.functional_datapipe("only_even_numbers_of_this_test")
    class Even(data.IterDataPipe):  # type: ignore[misc, name-defined]
        def __init__(self, source: Any) -> None:
            self.source = source

        def __iter__(self) -> Iterator[int]:
            return (x for x in self.source if x % 2 == 0)

    assert list(IterableWrapper(range(6)).only_even_numbers_of_this_test()) == [0, 2, 4]


# --- files ------------------------------------------------------------------------------------------------------------


def test_folders_out_of_a_pipe_are_listed(tmp_path: Path) -> None:
    from headrace.datapipes.iter import FileLister, FSSpecFileLister

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    folders = IterableWrapper([str(tmp_path / "a"), str(tmp_path / "b")])
    for files in (
        folders.list_files(), FileLister(folders), folders.list_files("*.txt"), folders.list_files_by_fsspec(),
        FSSpecFileLister(folders, masks="*.txt"), FileLister([str(tmp_path / "a"), str(tmp_path / "b")]),
    ):  # fmt: skip
        assert [Path(p).name for p in files] == ["a.txt", "b.txt"]
    assert list(pickle.loads(pickle.dumps(folders.list_files()))) == list(folders.list_files())


def test_a_cache_that_was_filled_before_its_graph_is_divided_gives_each_share_its_own_samples() -> None:
    pipe = IterableWrapper(list(range(6))).sharding_filter().in_memory_cache()
    assert list(pipe) == list(range(6))
    for number in range(2):
        settings.apply_sharding(pipe, 2, number)
        assert list(pipe) == list(range(number, 6, 2))
