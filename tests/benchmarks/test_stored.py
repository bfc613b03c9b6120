"""Data sets as files: what is stored comes back as the sample that it was."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.case import Dataset
from benchmarks.data import HeavyTail, Images, Pairs, Stamped
from benchmarks.stored import Files, Storage, prepare


@pytest.mark.parametrize("dataset", [Pairs(5), Images(3, np.float32, side=4), HeavyTail(200, 0.0)], ids=repr)
def test_a_sample_comes_back_as_it_was(dataset: Dataset) -> None:
    storage = Storage(dataset)
    elsewhere: Storage = pickle.loads(pickle.dumps(storage))
    np.testing.assert_array_equal(elsewhere.sample(storage.fields(2)), dataset[2])


def test_only_what_is_stored_is_written_and_the_rest_is_done_when_it_is_read() -> None:
    storage = Storage(Stamped(4, seconds=0.0))
    assert storage.fields(3) == {"x0": 3}
    index, _process = storage.sample({"x0": 3})
    assert index == 3


def test_fields_are_plain_values() -> None:
    assert {type(value) for value in Storage(Pairs(5)).fields(2).values()} == {int, float}


def test_files_are_written_once_for_a_data_set() -> None:
    written: list[str] = []
    files = Files(lambda folder, storage: written.append(folder))

    class Subject:
        pass

    subject: Any = Subject()
    subject.files = files
    dataset = Pairs(5)
    prepare(subject, dataset)
    folder, _ = files.of(dataset)
    assert written == [folder]
    assert Path(folder).is_dir()
    files.of(Pairs(5))
    assert len(written) == 2
    files.close()
    assert not Path(folder).exists()
