"""The contract of torch's DataLoader, row by row: arguments, defaults, refusals, attributes, iterators, ends."""

import gc
import inspect
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, SequentialSampler, get_worker_info

from headrace import rng
from headrace.doors.torch.loader import DataLoader, TorchLoader
from headrace.errors import BadOption, NotPicklable, WorkerStuck
from tests import warm
from tests.conftest import RunScript
from tests.depth import across, depth
from tests.doors import torch_datasets as data

OURS = {"reproducible": False, "shard": None, "shuffle_window": None, "world": None, "autosave": None}

stream = data.Span(0, 4)
REFUSED: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"prefetch_factor": 0},
    {"num_workers": 1, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"multiprocessing_context": "fork"},
    {"num_workers": 1, "multiprocessing_context": "bad"},
    {"num_workers": 1, "multiprocessing_context": object},
    {"dataset": stream, "shuffle": True},
    {"dataset": stream, "shuffle": 3},
    {"dataset": stream, "sampler": [0]},
    {"dataset": stream, "batch_sampler": [[0]]},
    {"sampler": [0], "shuffle": True},
    {"sampler": [0], "shuffle": True, "batch_sampler": [[0]]},
    {"batch_sampler": [[0]], "batch_size": 2},
    {"batch_sampler": [[0]], "shuffle": True},
    {"batch_sampler": [[0]], "sampler": [0]},
    {"batch_sampler": [[0]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": True},
    {"batch_size": np.int64(2)},
    {"batch_size": 1.5},
    {"drop_last": 1},
    {"drop_last": np.bool_(True)},
    {"dataset": [], "shuffle": True},
    {"num_workers": None},
    {"dataset": object(), "shuffle": True},
]


def refusal(make: Callable[[], Any]) -> tuple[type[BaseException], str]:
    with pytest.raises(BaseException) as caught:
        make()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("wrong", REFUSED, ids=str)
def test_what_torch_refuses_is_refused_in_the_same_words(wrong: dict[str, Any]) -> None:
    arguments = {"dataset": range(4), **wrong}
    assert refusal(lambda: DataLoader(**arguments)) == refusal(lambda: TorchLoader(**arguments))


def test_a_misspelt_argument_is_refused_in_torchs_words_and_says_which_was_meant() -> None:
    kind, words = refusal(lambda: TorchLoader(range(4), num_worker=1))
    assert refusal(lambda: DataLoader(range(4), num_worker=1)) == (kind, f"{words}; did you mean 'num_workers'?")


@pytest.mark.parametrize("wrong", [{"num_workers": 1, "prefetch_factor": 0}, {"timeout": 3}], ids=str)
def test_what_torch_refuses_only_at_iter_is_refused_there(wrong: dict[str, Any]) -> None:
    ours = DataLoader(range(4), **wrong)
    with pytest.raises(AssertionError) as caught:
        iter(ours)
    wanted = "requires timeout == 0" if "timeout" in wrong else "prefetch_factor must be greater than 0"
    assert wanted in str(caught.value)


def test_the_signature_is_torchs_with_our_keywords_behind() -> None:
    theirs = inspect.signature(TorchLoader.__init__).parameters
    ours = inspect.signature(DataLoader.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert all(ours[name].default == theirs[name].default and ours[name].kind == theirs[name].kind for name in theirs)
    assert {name: ours[name].default for name in list(ours)[len(theirs) :]} == OURS
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OURS)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"batch_size": 3, "drop_last": True, "num_workers": 2, "timeout": 5, "prefetch_factor": 3},
        {"batch_sampler": [[0]]},
        {"batch_size": None},
        {"num_workers": 2, "persistent_workers": True, "in_order": False, "multiprocessing_context": "fork"},
        {"pin_memory": True, "pin_memory_device": "", "collate_fn": str, "worker_init_fn": print},
        {"dataset": stream},
    ],
    ids=str,
)
def test_every_argument_is_an_attribute(given: dict[str, Any]) -> None:
    arguments = {"dataset": range(4), "generator": torch.Generator(), **given}
    theirs, ours = TorchLoader(**arguments), DataLoader(**arguments)
    for name in [*inspect.signature(TorchLoader.__init__).parameters][1:]:
        if name == "shuffle":
            continue  # torch does not keep it
        mine, its = getattr(ours, name), getattr(theirs, name)
        if name in ("sampler", "batch_sampler") and its is not given.get(name):
            assert type(mine) is type(its)
        elif name == "multiprocessing_context" and its is not None:
            assert mine.get_start_method() == its.get_start_method()
        else:
            assert mine is its or mine == its, name
    assert {name: getattr(ours, name) for name in OURS} == OURS
    for name in ("_auto_collation", "_dataset_kind", "_iterator", "_IterableDataset_len_called"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert set(vars(theirs)) <= set(vars(ours))


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_is_fixed_cannot_be_set(name: str) -> None:
    loader = DataLoader(range(3))
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
        setattr(loader, name, None)


def test_everything_else_may_be_set_and_counts_from_the_next_epoch() -> None:
    loader = DataLoader(range(4), 2)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3]]
    loader.collate_fn = len
    loader.num_workers = 1
    loader.prefetch_factor = 2
    assert list(loader) == [2, 2]


def test_it_is_a_torch_loader_and_can_be_subscripted() -> None:
    assert issubclass(DataLoader, TorchLoader)
    assert DataLoader.__name__ == "DataLoader"
    assert DataLoader[list[torch.Tensor]]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"reproducible": 1}, "reproducible must be True or False"),
        ({"shard": "yes"}, "shard must be None or 'auto'"),
        ({"shuffle_window": 0}, "shuffle_window must be None or a whole number"),
        ({"shard": "auto"}, "range is read by index"),
        ({"shuffle_window": 10}, "range is read by index"),
        ({"world": 3, "shard": "auto"}, "must be a headrace.World"),
    ],
    ids=str,
)
def test_our_own_arguments_are_checked_too(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        DataLoader(range(3), **wrong)


def test_a_refused_shuffle_names_the_window() -> None:
    with pytest.raises(ValueError, match="expected unspecified shuffle option") as caught:
        DataLoader(stream, shuffle=True)
    assert any("shuffle_window=" in note for note in caught.value.__notes__)


# --- iterators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_are_independent(workers: int) -> None:
    loader = DataLoader(range(4), batch_size=None, num_workers=workers)
    first, second = iter(loader), iter(loader)
    assert first is not second
    assert [next(first), next(second), next(first), *second, *first] == [0, 0, 1, 1, 2, 3, 2, 3]


def test_persistent_workers_have_one_iterator() -> None:
    loader = DataLoader(range(4), batch_size=None, num_workers=1, persistent_workers=True)
    first = iter(loader)
    assert next(first) == 0
    second = iter(loader)
    assert second is first
    assert list(second) == [0, 1, 2, 3]


def test_persistent_workers_stay_and_others_do_not() -> None:
    loader = DataLoader(Pids(), batch_size=None, num_workers=2, persistent_workers=True)
    assert len({*loader, *loader}) == 2
    loader = DataLoader(Pids(), batch_size=None, num_workers=2)
    assert len({*loader, *loader}) == 4


class Pids:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return psutil.Process().pid


@pytest.mark.parametrize("persistent", [False, True])
def test_each_epoch_sees_the_dataset_as_it_is_unless_workers_persist(persistent: bool) -> None:
    dataset = data.Told(2)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=persistent)
    assert [s[0] for s in loader] == [0, 1]
    dataset.offset = 10
    assert [s[0] for s in loader] == ([0, 1] if persistent else [10, 11])


def test_an_iterator_tells_the_length_of_the_epoch() -> None:
    it = iter(DataLoader(range(10), 3))
    next(it)
    assert len(it) == 4
    assert iter(it) is it
    with pytest.raises(TypeError):
        len(iter(DataLoader(stream)))


def test_a_loader_can_be_pickled_and_an_iterator_cannot() -> None:
    loader = DataLoader(range(6), 2, generator=torch.Generator().manual_seed(1), shuffle=True)
    it = iter(loader)
    next(it)
    again = pickle.loads(pickle.dumps(loader))
    assert sorted(i for b in again for i in b.tolist()) == list(range(6))
    with pytest.raises(NotImplementedError):
        pickle.dumps(it)


def test_the_length_follows_a_growing_dataset() -> None:
    growing = [1, 2, 3]
    loader = DataLoader(growing, batch_size=2)
    assert len(loader) == 2
    growing += [4, 5]
    assert len(loader) == 3
    assert [b.tolist() for b in loader] == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize("workers", [0, 2])
def test_more_than_was_promised_is_warned_about(workers: int) -> None:
    loader = DataLoader(Promises(), batch_size=None, num_workers=workers)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match=r"was reported to be 1\(when accessing len\(dataloader\)\), but 2 samples"):
        assert sum(1 for _ in loader) == 2


class Promises(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        yield from range(2 if info is None else info.id * 2)

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("workers", "kind"), [(0, "_SingleProcessDataLoaderIter"), (1, "_MultiProcessingDataLoaderIter")]
)
def test_profilers_find_it_under_its_name(workers: int, kind: str) -> None:
    loader = DataLoader(range(3), num_workers=workers)
    with torch.profiler.profile() as profile:
        list(loader)
    names = {event.name for event in profile.events()}
    assert f"enumerate(DataLoader)#{kind}.__next__" in names


def test_torchs_own_pipes_run_on_torchs_own_workers() -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    pipe = IterableWrapper(range(6)).sharding_filter()
    assert sorted(int(i) for b in DataLoader(pipe, num_workers=2) for i in b) == list(range(6))
    with pytest.raises(ValueError, match="DataLoader2"):
        DataLoader(pipe).state_dict()


# --- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_every_start_method_takes_lambdas_and_classes_of_main(method: str, run_script: RunScript) -> None:
    workers = depth(2 if method == "fork" else 1, 2)  # (new interpreters import torch)
    done = run_script(
        """
        import sys, torch
        from headrace.doors.torch.loader import DataLoader

        class Mine:
            def __len__(self): return 5
            def __getitem__(self, i): return Sample(i, torch.utils.data.get_worker_info().num_workers)

        class Sample:
            def __init__(self, i, n): self.i, self.n = i, n

        print("started")
        loader = DataLoader(Mine(), 2, num_workers=int(sys.argv[2]), multiprocessing_context=sys.argv[1],
                            collate_fn=lambda s: s, worker_init_fn=lambda w: None)
        for batch in loader:
            assert all(type(s) is Sample for s in batch)
            print([(s.i, s.n) for s in batch])
        """,
        method,
        workers,
        warm=True,
    )
    assert done.returncode == 0, done.stderr
    samples = [(index, workers) for index in range(5)]
    assert done.stdout == f"started\n{samples[:2]}\n{samples[2:4]}\n{samples[4:]}\n"


def test_worker_info_is_there_in_workers_only() -> None:
    assert get_worker_info() is None
    loader = DataLoader(Informed(), batch_size=None, num_workers=2, generator=torch.Generator().manual_seed(2))
    base = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(2)))
    infos = list(loader)
    assert [(i["id"], i["num_workers"], i["seed"]) for i in infos] == [(k % 2, 2, base + k % 2) for k in range(4)]
    assert all(i["own"] and i["threads"] == 1 and i["frozen"] for i in infos)
    assert get_worker_info() is None
    assert list(DataLoader(Informed(), batch_size=None)) == [None] * 4


class Informed(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is None:
            return None
        try:
            info.id = 7  # type: ignore[misc]
            frozen = False
        except (AttributeError, RuntimeError):
            frozen = True
        own = info.dataset is self
        return {**{n: getattr(info, n) for n in ("id", "num_workers", "seed")}, "own": own, "frozen": frozen,
                "threads": torch.get_num_threads()}  # fmt: skip


@pytest.mark.parametrize("style", ["map", "iterable"])
def test_an_error_keeps_its_type_and_names_the_sample(style: str) -> None:
    dataset: Any = data.Ends([3], Odd) if style == "map" else data.Breaks(5, [3])
    for workers in (0, 1):
        it = iter(DataLoader(dataset, 2, num_workers=workers))
        assert next(it).tolist() == [0, 1]
        with pytest.raises(Odd if style == "map" else KeyError) as caught:
            next(it)
        notes = "\n".join(caught.value.__notes__)
        if style == "map":
            assert caught.value.args == ("bad sample 3", 42)
            assert "headrace: dataset[3] raised this, in the batch of indices [2, 3]" in notes
        else:
            assert "headrace: in DataLoader over Breaks, at position 3" in notes
        calls = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert Path(calls[-1]).name == "torch_datasets.py", "the user's own code is shown, from a worker too"
        assert next(it).tolist() == ([4, 5] if style == "map" else [4])


class Odd(Exception):
    """Its constructor takes other arguments than `args`."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 42)


def test_an_error_of_a_sampler_comes_in_its_place() -> None:
    class Fails:
        def __iter__(self) -> Iterator[int]:
            yield from range(5)
            raise LookupError("no more")

    for workers in (0, 2):
        it = iter(DataLoader(range(9), batch_size=None, sampler=Fails(), num_workers=workers))
        assert [next(it) for _ in range(5)] == list(range(5))
        with pytest.raises(LookupError, match="no more"):
            next(it)
        assert list(it) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_of_user_code_does_not_end_the_epoch_in_silence(workers: int) -> None:
    for dataset in (data.Ends([2], StopIteration), data.Span(0, 5)):
        it = iter(DataLoader(dataset, batch_size=None, num_workers=workers, collate_fn=stops_at_two))
        assert [next(it), next(it)] == [0, 1]
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            next(it)
        assert list(it)[:2] == [3, 4]


class Noting:
    """A batch sampler that counts what it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(20):
            self.asked += 1
            yield [number]


@pytest.mark.parametrize("ahead", [None, 1, 2, 3])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_sampler_is_asked_at_the_moments_at_which_torch_asks_it(workers: int, ahead: int | None) -> None:
    def moments(kind: Any) -> list[int]:
        noting = Noting()
        ahead_of = {"prefetch_factor": ahead} if workers else {}
        it = iter(kind(range(20), batch_sampler=noting, num_workers=workers, **ahead_of))
        return [noting.asked, *(noting.asked for _ in zip(range(5), it, strict=False))]

    assert moments(DataLoader) == moments(TorchLoader)


def stops_at_two(sample: int) -> int:
    if sample == 2:
        raise StopIteration
    return sample


class Fed(IterableDataset[int]):
    """Is its own iterator, as one that is fed by a queue: it ends at a mark, and goes on behind it when asked again."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at % 4 == 0:
            raise StopIteration
        return self.at


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{"batch_size": None}, {"batch_size": 2}, {"batch_size": 2, "drop_last": True}])
def test_an_iterator_that_has_ended_is_not_asked_again(options: dict[str, Any], workers: int) -> None:
    def epochs(kind: Any, **more: Any) -> list[list[Any]]:
        loader = kind(Fed(), num_workers=workers, persistent_workers=workers > 0, **options, **more)
        return [[np.asarray(batch).tolist() for batch in loader] for _ in range(3)]

    assert epochs(DataLoader) == epochs(TorchLoader) == epochs(DataLoader, shard="auto")
    assert [len(epoch) for epoch in epochs(DataLoader, shuffle_window=2)] == list(map(len, epochs(TorchLoader)))


class Rounds:
    """Is its own iterator, and starts again when it has ended."""

    at = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.at = (self.at + 1) % 6
        if not self.at:
            raise StopIteration
        return self.at


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_end_of_a_sampler_is_the_end_of_the_epoch_also_where_it_starts_again(workers: int) -> None:
    """With workers, torch goes on with the next round in the same epoch."""
    expected = list(TorchLoader(range(9), batch_size=None, sampler=Rounds()))
    loader = DataLoader(range(9), batch_size=None, sampler=Rounds(), num_workers=workers)
    assert list(loader) == list(loader) == expected


def test_an_error_of_worker_init_fn_is_raised() -> None:
    loader = DataLoader(range(4), num_workers=2, worker_init_fn=fails)
    with pytest.raises(ZeroDivisionError) as caught:
        list(loader)
    assert any("was starting" in note for note in caught.value.__notes__)


def fails(worker: int) -> None:
    raise ZeroDivisionError


def test_a_time_out_is_torchs_error() -> None:
    loader = DataLoader(Stuck(), num_workers=1, timeout=0.3)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.3 seconds") as caught:
        list(loader)
    assert isinstance(caught.value, WorkerStuck)
    assert "Stuck" in str(caught.value) or "__getitem__" in str(caught.value)


class Stuck:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        time.sleep(100)
        return index


@pytest.mark.parametrize(("how", "persistent"), across(["del", "break", "error", "shutdown"], [False, True]))
def test_leaving_in_the_middle_ends_the_workers_at_once(how: str, persistent: bool) -> None:
    before = {p.pid for p in psutil.Process().children()}
    loader = DataLoader(Busy(), num_workers=2, persistent_workers=persistent, prefetch_factor=4)
    it = iter(loader)
    next(it)
    mine = [p for p in psutil.Process().children() if p.pid not in before]
    assert len(mine) == 2
    if how == "shutdown":
        it._shutdown_workers()
        assert list(it) == []
    elif how == "error":
        with pytest.raises(ZeroDivisionError):
            use(it)
    del it
    if persistent:
        del loader
    gc.collect()
    _, alive = psutil.wait_procs(mine, timeout=5)
    assert not alive


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import time\n"
        "from headrace.doors.torch.loader import DataLoader\n"
        "class Busy:\n"
        "    def __len__(self): return 20\n"
        "    def __getitem__(self, index):\n"
        "        if index > 3: time.sleep(100)\n"
        "        return index\n"
        "for batch in DataLoader(Busy(), num_workers=2): print(int(batch), flush=True)\n"
    )
    process = warm.start(program, [], tmp_path)
    assert [process.stdout.readline() for _ in range(4)] == ["0\n", "1\n", "2\n", "3\n"]
    workers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert said.strip().endswith("KeyboardInterrupt")
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive


def test_without_torch_the_extra_is_named(run_script: RunScript) -> None:
    done = run_script(
        """
        import sys
        sys.modules["torch"] = None
        for module in ("loader", "install"):
            try:
                __import__(f"headrace.doors.torch.{module}")
            except ModuleNotFoundError as error:
                print(type(error).__name__, error)
        """
    )
    assert done.stdout == "MissingExtra torch is not installed; it comes with: pip install 'headrace[torch]'\n" * 2


def use(it: Any) -> None:
    for _ in it:
        raise ZeroDivisionError


class Busy:
    """Its samples come quickly at first; later ones never."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index > 3:
            time.sleep(100)
        return index


def test_nothing_is_left_open_after_many_epochs(no_new_fds: Callable[[], None]) -> None:
    def epoch() -> None:
        assert len(list(DataLoader(data.Tree(), 2, num_workers=2))) == 4

    epoch()
    no_new_fds()
    for _ in range(depth(2, 4)):
        epoch()


# --- what is ours -----------------------------------------------------------------------------------------------------


def drawn(workers: int, **more: Any) -> list[Any]:
    torch.manual_seed(1)
    loader = DataLoader(data.Told(11), 3, shuffle=True, num_workers=workers, reproducible=True, **more)
    # index, then worker, count and seed, which may differ, then three random values
    return [[[s[0].tolist(), *(v.tolist() for v in s[4:])] for s in loader] for _ in range(2)]


def test_reproducible_values_do_not_depend_on_the_workers() -> None:
    wanted = drawn(0)
    assert drawn(1) == wanted
    assert drawn(2) == wanted
    assert wanted[0] != wanted[1]


def test_reproducible_values_leave_the_callers_generators_alone() -> None:
    torch.manual_seed(1)
    loader = DataLoader(data.Told(6), 3, reproducible=True, generator=torch.Generator())
    before = torch.get_rng_state()
    list(loader)
    assert torch.equal(torch.get_rng_state(), before)


class Keyed(Dataset[float]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        return float(rng().random())


def test_keyed_numbers_do_not_depend_on_workers_or_batches() -> None:
    def values(size: int | None, workers: int) -> list[float]:
        loader = DataLoader(
            Keyed(), size, num_workers=workers, generator=torch.Generator().manual_seed(3), reproducible=True
        )
        return [v for batch in loader for v in torch.as_tensor(batch, dtype=torch.float64).reshape(-1).tolist()]

    wanted = values(4, 0)
    assert len(set(wanted)) == 12
    assert values(4, 2) == wanted
    assert values(3, 1) == wanted
    assert values(None, 2) == wanted


def test_replicas_of_a_stream_draw_different_reproducible_values() -> None:
    def values() -> list[Any]:
        loader = DataLoader(
            data.Stream(4, 4),
            batch_size=None,
            num_workers=2,
            reproducible=True,
            generator=torch.Generator().manual_seed(3),
        )
        return [s[-3:] for s in loader]

    first = values()
    assert values() == first
    assert len({tuple(v) for v in first}) == 8


def test_a_window_shuffles_inside_itself() -> None:
    def order(workers: int) -> list[int]:
        loader = DataLoader(
            data.Span(0, 20), batch_size=None, num_workers=workers, shuffle_window=8, shard="auto",
            generator=torch.Generator().manual_seed(3),
        )  # fmt: skip
        return list(loader)

    once = order(2)
    assert once == order(0)
    for start in (0, 8, 16):
        window = range(start, min(start + 8, 20))
        assert sorted(once[start : start + 8]) == list(window)
        assert once[start : start + 8] != list(window)


def test_anything_that_can_be_iterated_can_be_divided() -> None:
    assert list(DataLoader((i * i for i in range(5)), batch_size=None, num_workers=2, shard="auto")) == [0, 1, 4, 9, 16]
    assert [b.tolist() for b in DataLoader({5, 6, 7}, 2, shuffle_window=1)] == [[5, 6], [7]]


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_a_stream_that_is_read_by_every_worker_is_warned_about_once(workers: int) -> None:
    loader = DataLoader(data.Span(0, 9), 2, num_workers=workers)
    with pytest.warns(
        UserWarning, match=rf"the {workers} workers all read the same samples of Span.*shard='auto'"
    ) as seen:
        twice(loader)
    assert sum("same samples" in str(w.message) for w in seen) == 1
    assert all(w.filename == __file__ for w in seen if "same samples" in str(w.message))


def test_a_stream_that_divides_itself_is_not_warned_about() -> None:
    dataset = data.Span(0, 9)
    assert len(list(DataLoader(dataset, 2, num_workers=2, worker_init_fn=dataset.cut))) == 4
    assert len(list(DataLoader(data.Stream(9, 9), 2, num_workers=2))) == 10


def twice(loader: Any) -> None:
    for _ in range(2):
        for _ in loader:
            pass


def test_samplers_of_torch_are_the_defaults() -> None:
    loader = DataLoader(range(4), 2)
    assert type(loader.sampler) is SequentialSampler
    assert type(loader.batch_sampler) is BatchSampler


class Locked(Dataset[Any]):
    """Holds what cannot travel."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.lock


def test_what_cannot_travel_is_told_in_the_words_of_this_loader() -> None:
    with pytest.raises(NotPicklable, match=r"dataset\.lock .*worker_init_fn\), or use multiprocessing_context='fork'$"):
        iter(DataLoader(Locked(), num_workers=1, multiprocessing_context="spawn"))
    loader = DataLoader(Locked(), num_workers=1, collate_fn=list, multiprocessing_context="fork")
    with pytest.raises(NotPicklable, match="arrays or tensors from the dataset or collate_fn"):
        list(loader)
