"""PT-11, PT-17 to PT-23, PT-25 to PT-29: what the loader delivers, in every mode, whatever happens."""

import traceback
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler, default_collate

import headrace
from headrace import Autosave
from headrace.errors import BadOption, Closed, NoLength, PoisonSample
from headrace.observe.profile import profile
from headrace.plan.world import World
from headrace.replicas import DataLoader, DataLoaderMode, Options, SharingStrategy
from tests.doors.replicas_datasets import (
    Deadly,
    Divided,
    Endless,
    Failing,
    Informed,
    Named,
    Numbers,
    Padded,
    Pair,
    Rows,
    Stream,
    divide,
    tell,
    two_halves,
)

MODES = list(DataLoaderMode)


@pytest.fixture
def made() -> Iterator[list[DataLoader]]:
    """Loaders that are ended with the test."""
    loaders: list[DataLoader] = []
    yield loaders
    for loader in loaders:
        loader.terminate()


def numbers(loader: DataLoader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


# --- the same samples in every mode ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shuffle", "drop_last", "processes"), [(False, True, 1), (True, True, 3), (True, False, 3)])
def test_all_modes_give_the_same_batches(
    made: list[DataLoader], shuffle: bool, drop_last: bool, processes: int
) -> None:
    wanted = None
    for mode in MODES:
        for workers in (0, 2):
            options = Options(world=World(processes - 1, processes)).randomSeed(5).deviceIterations(2)
            loader = DataLoader(options, Numbers(103), 3, shuffle, workers, drop_last, mode=mode)
            made.append(loader)
            found = [numbers(loader), numbers(loader)]
            assert [len(epoch) for epoch in found] == [len(loader)] * 2
            assert wanted is None or found == wanted
            wanted = found


@pytest.mark.parametrize("size", [1, 2, 3, 4, None])
def test_what_a_worker_loads_at_a_time_does_not_change_the_batches(made: list[DataLoader], size: int | None) -> None:
    options = Options(world=World(1, 2)).randomSeed(5)
    loader = DataLoader(
        options, Numbers(50), 4, True, 2, mode=DataLoaderMode.AsyncRebatched, rebatched_worker_size=size
    )
    made.append(loader)
    plain = DataLoader(options, Numbers(50), 4, True)
    assert numbers(loader) == numbers(plain)
    assert numbers(loader) == numbers(plain)


def test_a_worker_loads_the_largest_piece_that_divides_a_step() -> None:
    for size, pieces in ((1, [1, 4]), (3, [2, 2]), (4, [4]), (None, [4])):
        loader = DataLoader(Options(), Numbers(50), 4, mode=DataLoaderMode.AsyncRebatched, rebatched_worker_size=size)
        assert [stage.group for stage in loader.loader.program.stages] == pieces


def test_a_worker_cannot_load_more_than_a_step_at_a_time() -> None:
    for size in (5, 0):
        with pytest.raises(BadOption, match=f"rebatched_worker_size={size} must be between 1 and .*4"):
            DataLoader(Options(), Numbers(50), 4, mode=DataLoaderMode.AsyncRebatched, rebatched_worker_size=size)
    with pytest.raises(BadOption, match="AsyncRebatched"):
        DataLoader(Options(), Numbers(50), 4, rebatched_worker_size=2)


@pytest.mark.parametrize("strategy", list(SharingStrategy))
def test_the_order_of_a_seed_is_the_same_for_every_way_to_start(
    made: list[DataLoader], strategy: SharingStrategy
) -> None:
    loader = DataLoader(
        Options().randomSeed(11), Numbers(40), 4, True, mode="Async", async_options={"sharing_strategy": strategy}
    )
    made.append(loader)
    first = [13, 1, 3, 31]  # frozen: the order of a seed must never change
    assert numbers(loader)[0] == numbers(DataLoader(Options().randomSeed(11), Numbers(40), 4, True))[0] == first


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("samples", "batch", "drop_last", "sizes"),
    [(100, 4, True, [4] * 25), (101, 4, True, [4] * 25), (101, 6, False, [6] * 16 + [5])],
)
def test_the_tail_of_a_stream_is_cut_once_however_many_workers_there_are(
    made: list[DataLoader], mode: DataLoaderMode, samples: int, batch: int, drop_last: bool, sizes: list[int]
) -> None:
    loader = DataLoader(Options(), Stream(samples), batch, num_workers=7, drop_last=drop_last, mode=mode)
    made.append(loader)
    found = numbers(loader)
    assert [len(part) for part in found] == sizes
    assert [s for part in found for s in part] == list(range(sum(sizes)))
    assert len(loader) == len(sizes)


def test_a_stream_without_a_length_has_none_and_is_not_partitioned() -> None:
    loader = DataLoader(Options(), Endless(), 4)
    with pytest.raises(TypeError, match="length"):
        len(loader)
    with pytest.raises(NoLength):
        len(loader)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    assert loader.left_out is None
    with pytest.raises(BadOption, match="iterable data set cannot be partitioned over 2 processes"):
        DataLoader(Options(world=World(0, 2)), Endless(), 4)
    with pytest.raises(BadOption, match="shuffle=True needs"):
        DataLoader(Options(), Endless(), 4, shuffle=True)


def test_a_torch_stream_is_read_exactly_once(made: list[DataLoader]) -> None:
    class Data(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    loader = DataLoader(Options(), Data(), 5, num_workers=2)
    made.append(loader)
    assert numbers(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


# --- samplers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [12]), (False, [12, 8])])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_of_a_sampler_are_combined_and_counted_as_delivered(
    made: list[DataLoader], drop_last: bool, sizes: list[int], workers: int
) -> None:
    sampler = BatchSampler(SequentialSampler(range(20)), 4, False)
    options = Options().deviceIterations(3)
    loader = DataLoader(options, Numbers(20), num_workers=workers, drop_last=drop_last, batch_sampler=sampler)
    made.append(loader)
    assert [len(batch) for batch in loader] == sizes
    assert [s for batch in numbers(loader) for s in batch] == list(range(sum(sizes)))
    assert len(loader) == len(sizes)
    assert loader.combinedBatchSize == 12
    assert loader.left_out == ((2, 0, None) if drop_last else (0, 0, None))


@pytest.mark.parametrize(("mode", "workers"), [("Sync", 0), ("Sync", 2), ("Async", 2), ("AsyncRebatched", 0)])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("form", [dict, Pair])
def test_a_collate_function_sees_one_micro_batch_of_a_batch_sampler_at_a_time(
    made: list[DataLoader], mode: str, workers: int, drop_last: bool, form: Any
) -> None:
    micro_batches = [[0], [1, 2], [3, 4, 5], [6], [7, 8]]
    loader = DataLoader(
        Options().deviceIterations(2), Numbers(9), num_workers=workers, drop_last=drop_last, mode=mode,
        batch_sampler=micro_batches, collate_fn=Padded(form),
    )  # fmt: skip
    made.append(loader)
    wanted = [
        [[0, -1, -1], [1, 2, -1]],
        [[3, 4, 5], [6, -1, -1]],
        *([] if drop_last else [[[7, 8, -1]]]),
    ]
    steps = list(loader)
    assert [type(step) for step in steps] == [form] * len(wanted)
    values = [step["image"] if form is dict else step.image for step in steps]
    assert [value.tolist() for value in values] == [[x for part in step for x in part] for step in wanted]
    labels = [step["label"] if form is dict else step.label for step in steps]
    assert labels == [[f"{len(part) - part.count(-1)} samples" for part in step] for step in wanted]
    assert len(loader) == len(wanted)


def test_fields_of_micro_batches_are_joined_by_name_in_whatever_order_they_come() -> None:
    rows: list[Any] = [{"x": 0, "y": 10}, {"y": 11, "x": 1}]
    options = Options().deviceIterations(2)
    loader = DataLoader(
        options, rows, batch_sampler=[[0], [1]], collate_fn=lambda samples: ([default_collate(samples)],)
    )
    (([step],),) = loader
    assert {name: column.tolist() for name, column in step.items()} == {"x": [0, 1], "y": [10, 11]}
    loader = DataLoader(options, [{"x": 0}, {"y": 1}], batch_sampler=[[0], [1]], collate_fn=default_collate)
    with pytest.raises(BadOption, match=r"micro-batches with the keys \['x'\] and \['y'\] cannot be joined"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("collate", "told"),
    [
        (lambda samples: np.zeros((1, len(samples))), r"of the shapes \(1, 1\), \(1, 2\), which cannot be joined"),
        (lambda samples: len(samples), "a int that has no first extent, which cannot be joined"),
        (lambda samples: torch.tensor(len(samples)), "a Tensor that has no first extent"),
        (lambda samples: tuple(np.zeros(1) for _ in samples), r"different forms \(1, 2 arrays\)"),
    ],
)
def test_micro_batches_that_cannot_be_joined_are_an_error_that_says_why(collate: Any, told: str) -> None:
    options = Options().deviceIterations(2)
    loader = DataLoader(options, Numbers(3), batch_sampler=[[0], [1, 2]], collate_fn=collate)
    with pytest.raises(BadOption, match=told):
        list(loader)
    # One micro-batch a step needs no joining: anything will do.
    assert len(list(DataLoader(Options(), Numbers(3), batch_sampler=[[0], [1, 2]], collate_fn=collate))) == 2


@pytest.mark.parametrize("mode", ["Sync", "Async"])
def test_workers_know_which_they_are_and_are_initialised(made: list[DataLoader], mode: str) -> None:
    loader = DataLoader(Options(), Informed(40), 2, num_workers=2, mode=mode, worker_init_fn=tell)
    made.append(loader)
    rows = [tuple(row) for batch in loader for row in batch.tolist()]
    assert {row[:2] for row in rows} <= {(0, 2), (1, 2)}
    assert all(told == number + 100 for number, _, told, _ in rows)
    assert [sample for *_, sample in rows] == list(range(40))


@pytest.mark.parametrize("mode", MODES)
def test_the_only_reader_of_a_stream_is_worker_0_of_1(made: list[DataLoader], mode: DataLoaderMode) -> None:
    loader = DataLoader(Options(), Divided(101), 4, num_workers=3, mode=mode, worker_init_fn=divide, drop_last=False)
    made.append(loader)
    for _ in range(2):
        assert [sample for batch in numbers(loader) for sample in batch] == list(range(101))


@pytest.mark.parametrize("mode", ["Sync", "Async"])
def test_without_workers_there_is_no_worker_info(made: list[DataLoader], mode: str) -> None:
    loader = DataLoader(Options(), Informed(4), 2, mode=mode, worker_init_fn=tell)
    made.append(loader)
    assert [tuple(row[:3]) for batch in loader for row in batch.tolist()] == [(-1, -1, 0)] * 4


def test_a_sampler_decides_the_order() -> None:
    loader = DataLoader(Options(), Numbers(10), 2, sampler=[5, 3, 1, 7, 9])
    assert (numbers(loader), len(loader), loader.left_out) == ([[5, 3], [1, 7]], 2, (0, 1, 1))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"batch_sampler": [[0]], "batch_size": 2}, "mutually exclusive"),
        ({"batch_sampler": [[0]], "shuffle": True}, "mutually exclusive"),
        ({"sampler": [0], "shuffle": True}, "mutually exclusive"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"batch_size": "4"}, "batch_size must be"),
        ({"mode": "Fast"}, "mode must be one of Sync, Async"),
        ({"async_options": {}}, "async_options need mode"),
        ({"mode": "Async", "async_options": {"buffersize": 3}}, "did you mean 'buffer_size'"),
        ({"mode": "Async", "async_options": {"buffer_size": 0}}, "buffer_size must be"),
        ({"mode": "Async", "async_options": {"sharing_strategy": "Thread"}}, "sharing_strategy must be"),
        ({"worker_init": print}, "did you mean 'worker_init_fn'"),
        ({"pin_memory": True}, "pin_memory"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_once(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        DataLoader(Options(), Numbers(10), **arguments)


@pytest.mark.parametrize("arguments", [{"batch_sampler": [[0]]}, {"sampler": [0]}, {"batch_size": None}])
def test_what_cannot_be_partitioned_is_refused_on_several_processes_only(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="auto_distributed_partitioning=False"):
        DataLoader(Options(world=World(0, 2)), Numbers(10), **arguments)
    DataLoader(Options(world=World(0, 2)), Numbers(10), auto_distributed_partitioning=False, **arguments)


def test_the_options_come_first() -> None:
    with pytest.raises(BadOption, match="takes its Options first, not Numbers"):
        DataLoader(Numbers(10), Numbers(10))  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "meant"), [("batchsize", "batch_size"), ("prefetch_factr", "prefetch_factor")])
def test_a_misspelt_argument_is_answered_with_the_closest(wrong: str, meant: str) -> None:
    with pytest.raises(BadOption, match=f"no argument '{wrong}'; did you mean '{meant}'"):
        DataLoader(Options(), Numbers(10), **{wrong: 2})


def test_torch_arguments_are_understood(made: list[DataLoader]) -> None:
    loader = DataLoader(
        Options(), Numbers(8), 2, num_workers=1, persistent_workers=True, timeout=30, prefetch_factor=4, in_order=True,
        pin_memory=False, multiprocessing_context="spawn", worker_init_fn=abs, generator=torch.Generator(),
    )  # fmt: skip
    made.append(loader)
    assert numbers(loader) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (loader.num_workers, loader.batch_size, loader.drop_last, loader.persistent_workers) == (1, 2, True, True)


def test_a_generator_gives_the_seed_where_the_options_give_none() -> None:
    def order(options: Options, seed: int) -> list[list[int]]:
        return numbers(DataLoader(options, Numbers(50), 5, True, generator=torch.Generator().manual_seed(seed)))

    assert order(Options(), 5) == order(Options(), 5) != order(Options(), 6)
    assert order(Options().randomSeed(1), 5) == order(Options().randomSeed(1), 6)


# --- the form of a batch ----------------------------------------------------------------------------------------------


def test_batches_have_the_form_that_torch_gives_them() -> None:
    samples = [
        {
            "tensor": torch.full((2,), float(i)),
            "array": np.full(3, i, dtype=np.float32),
            "int": i,
            "float": i / 2,
            "bool": i > 1,
            "scalar": np.int16(i),
            "text": f"number {i}",
            "tuple": (i, torch.tensor(i)),
            "pair": Pair(i, [i, i]),
        }
        for i in range(4)
    ]
    (found,) = DataLoader(Options(), samples, 4)
    wanted = default_collate(samples)
    assert found.keys() == wanted.keys()
    for name in ("tensor", "array", "int", "float", "bool", "scalar"):
        assert found[name].dtype is wanted[name].dtype
        assert torch.equal(found[name], wanted[name])
    assert found["text"] == list(wanted["text"])
    assert type(found["tuple"]) is type(wanted["tuple"])
    assert all(map(torch.equal, found["tuple"], wanted["tuple"]))
    assert type(found["pair"]) is type(wanted["pair"])
    assert torch.equal(found["pair"].image, wanted["pair"].image)


def test_dataclasses_keep_their_form_and_anything_else_stays_a_list_but_none() -> None:
    (batch,) = DataLoader(Options(), [Named(i, f"{i}", torch.tensor([i])) for i in range(2)], 2)
    assert isinstance(batch, Named)
    assert (batch.number.tolist(), batch.name, batch.tensor.tolist()) == ([0, 1], ["0", "1"], [[0], [1]])
    unknown = [object(), object()]
    assert list(DataLoader(Options(), unknown, 2)) == [unknown]
    with pytest.raises(TypeError, match="sample 1 of the batch is None"):
        list(DataLoader(Options(), [object(), None], 2))


@pytest.mark.parametrize("workers", [0, 1])
def test_arrays_from_workers_arrive_as_tensors(made: list[DataLoader], workers: int) -> None:
    loader = DataLoader(Options(), Rows(8), 4, num_workers=workers)
    made.append(loader)
    images, labels = next(iter(loader))
    assert isinstance(images, torch.Tensor)
    assert (images.shape, images.dtype, labels.tolist()) == ((4, 256), torch.int64, [0, 1, 2, 3])
    images += 1  # torch's own batches can be written to


def test_what_a_collate_function_gives_arrives_as_it_is(made: list[DataLoader]) -> None:
    for mode in MODES:
        loader = DataLoader(Options(), Numbers(6), 3, collate_fn=two_halves, mode=mode)
        made.append(loader)
        _, batch = loader
        assert batch["names"] == ["sample 3", "sample 4", "sample 5"]
        assert isinstance(batch["values"], np.ndarray)


@pytest.mark.parametrize("mode", MODES)
def test_without_a_batch_size_items_come_as_they_are(made: list[DataLoader], mode: DataLoaderMode) -> None:
    loader = DataLoader(Options(), Rows(3), None, mode=mode)
    made.append(loader)
    assert (loader.combinedBatchSize, len(loader)) == (None, 3)
    items = list(loader)
    assert [label for _, label in items] == [0, 1, 2]
    assert all(isinstance(image, torch.Tensor) and image.shape == (256,) for image, _ in items)
    shuffled = DataLoader(Options(), Numbers(30), None, True)
    assert sorted(shuffled) == list(range(30)) != list(shuffled)
    assert list(DataLoader(Options(), Numbers(30), None, sampler=[3, 1], collate_fn=float)) == [3.0, 1.0]


def test_shapes_that_change_inside_a_batch_are_an_error_and_types_are_promoted() -> None:
    with pytest.raises(ValueError, match=r"sample 0 of the batch has shape .*sample 1 has shape"):
        list(DataLoader(Options(), [torch.zeros(3), torch.zeros(1)], 2))
    (batch,) = DataLoader(Options(), [torch.tensor([1]), torch.tensor([1.75])], 2)
    assert batch.tolist() == [[1.0], [1.75]]
    (batch,) = DataLoader(Options(), [1, 1.75], 2)
    assert batch.tolist() == [1.0, 1.75]


@pytest.mark.parametrize("mode", MODES)
def test_batches_stay_valid_as_long_as_they_are_held(made: list[DataLoader], mode: DataLoaderMode) -> None:
    loader = DataLoader(Options(), Rows(400), 4, num_workers=1, mode=mode)
    made.append(loader)
    kept = list(loader)
    for step, (images, labels) in enumerate(kept):
        assert labels.tolist() == list(range(4 * step, 4 * step + 4))
        assert torch.equal(images, labels[:, None].expand(4, 256))


# --- epochs, ends, trouble --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_after_a_break_the_next_epoch_is_whole(made: list[DataLoader], mode: DataLoaderMode) -> None:
    loader = DataLoader(Options(), Numbers(24), 2, num_workers=2, mode=mode)
    made.append(loader)
    for taken in (1, 5, 12):
        for step, _ in enumerate(loader, 1):
            if step == taken:
                break
        assert numbers(loader) == [[i, i + 1] for i in range(0, 24, 2)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [0, 13])
def test_an_error_of_the_data_set_arrives_as_it_was_raised(
    made: list[DataLoader], mode: DataLoaderMode, bad: int
) -> None:
    taken: list[int] = []
    with pytest.raises(LookupError, match=f"no sample {bad}") as raised:  # noqa: PT012
        # An asynchronous loader loads its first batch here.
        loader = DataLoader(Options(), Failing(20, bad), 2, num_workers=1, mode=mode)
        made.append(loader)
        taken.extend(sample for batch in loader for sample in batch.tolist())
    assert taken == list(range(bad // 2 * 2))
    assert "__getitem__" in "".join(traceback.format_exception(raised.value))


def test_a_killed_worker_does_not_change_the_epoch(made: list[DataLoader], tmp_path: Any) -> None:
    loader = DataLoader(Options(), Deadly(20, 7, tmp_path / "killed"), 2, num_workers=2, mode="Async")
    made.append(loader)
    assert numbers(loader) == [[i, i + 1] for i in range(0, 20, 2)]
    assert (tmp_path / "killed").exists()


def test_a_sample_that_always_kills_its_worker_is_an_error_that_names_it(
    made: list[DataLoader], caplog: pytest.LogCaptureFixture
) -> None:
    loader = DataLoader(Options(), Deadly(20, 7), 2, num_workers=2, mode="Async")
    made.append(loader)
    with pytest.raises(PoisonSample, match="position 7 ended its worker twice"):
        list(loader)
    assert "killed by SIGKILL" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_a_terminated_loader_says_so(mode: DataLoaderMode) -> None:
    loader = DataLoader(Options(), Numbers(20), 2, num_workers=1, mode=mode)
    iterator = iter(loader)
    next(iterator)
    loader.terminate()
    loader.terminate()
    with pytest.raises(Closed, match="closed"):
        iter(loader)
    with pytest.raises(Closed, match="closed"):
        next(iterator)


@pytest.mark.parametrize("taken", [0, 3, 9])
@pytest.mark.parametrize("ends", ["short", "pad"])
def test_an_epoch_goes_on_from_a_snapshot_in_another_mode(made: list[DataLoader], taken: int, ends: Any) -> None:
    def loader(mode: str, workers: int) -> DataLoader:
        options = Options(world=World(1, 2)).randomSeed(3)
        made.append(DataLoader(options, Numbers(77), 4, True, workers, False, mode=mode, ends=ends))
        return made[-1]

    wanted = loader("Sync", 0)
    everything = [(batch.tolist(), wanted.mask) for batch in wanted]
    next_epoch = numbers(wanted)
    first = loader("Async", 1)
    iterator = iter(first)
    delivered = [(next(iterator).tolist(), first.mask) for _ in range(taken)]
    second = loader("Sync", 2)
    second.load_state_dict(first.state_dict())
    delivered += [(batch.tolist(), second.mask) for batch in second]
    assert delivered == everything
    assert numbers(second) == next_epoch


def test_an_epoch_of_pieces_goes_on_from_a_snapshot(made: list[DataLoader]) -> None:
    def loader(workers: int) -> DataLoader:
        options = Options(world=World(1, 2)).randomSeed(3)
        made.append(DataLoader(options, Numbers(77), 4, True, workers, mode="AsyncRebatched", rebatched_worker_size=2))
        return made[-1]

    everything = numbers(loader(1))
    first, second = loader(1), loader(2)
    iterator = iter(first)
    delivered = [next(iterator).tolist() for _ in range(3)]
    second.load_state_dict(first.state_dict())
    assert delivered + numbers(second) == everything


# --- looking at it, as at any loader ----------------------------------------------------------------------------------


def test_a_loader_can_be_looked_at_as_any_other(made: list[DataLoader]) -> None:
    loader = DataLoader(Options(), Numbers(40), 4, num_workers=1)
    made.append(loader)
    assert len(list(loader)) == 10
    stats = loader.stats()
    assert (stats.epochs, stats.batches, stats.workers) == (1, 10, 1)
    assert "Numbers" in loader.explain()
    assert repr(loader.loader) in headrace.dump()
    assert profile(loader.loader, batches=3, seconds=None).breakdown.batches == 3


@pytest.mark.parametrize("mode", ["Sync", "Async"])
def test_a_loader_that_saves_itself_goes_on_after_the_last_batch_it_gave(
    made: list[DataLoader], mode: str, tmp_path: Path
) -> None:
    seen: list[list[int]] = []
    for taken in (0, 3, 2, 9):
        loader = DataLoader(Options(), Numbers(40), 4, mode=mode, autosave=Autosave(tmp_path / "place", every=1))
        batches = iter(loader)
        seen += [batch.tolist() for batch in islice(batches, taken)]
        del batches
        loader.terminate()
    assert seen[:10] == numbers(DataLoader(Options(), Numbers(40), 4))
    assert len(seen) == 10


@pytest.mark.parametrize("divided", [True, False])
def test_several_processes_do_not_save_themselves(divided: bool, tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"one of 2 ranks: .*'loader': loader\.state_dict\(\)\} on rank 0, and load"):
        DataLoader(
            Options(world=World(0, 2)), Numbers(40), 4, auto_distributed_partitioning=divided,
            autosave=tmp_path / "place",
        )  # fmt: skip
    with pytest.raises(BadOption, match=r"no argument 'every'; write autosave=Autosave\(path, every=5\)"):
        DataLoader(Options(), Numbers(40), 4, every=5)


def test_a_sample_that_kills_its_worker_is_told_in_the_words_of_this_loader(made: list[DataLoader]) -> None:
    loader = DataLoader(Options(), Deadly(8, 5), 2, num_workers=1)
    made.append(loader)
    with pytest.raises(PoisonSample, match=r"look at it with num_workers=0$"):
        list(loader)
