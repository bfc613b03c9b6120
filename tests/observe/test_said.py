"""What a loader says in the log about things that are allowed and easily overlooked."""

import logging

import numpy as np
import pytest

import headrace
from headrace import Loader, Pipe, World


def test_a_mixture_whose_shares_will_change_says_when_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    mixture = Pipe.of(range(30)).mix(Pipe.of(range(5)), weights=[1, 1])
    with Loader(mixture.shuffle().batch(4)):
        pass
    assert "input 1 (counted from 0) ends after 10 of 35 samples" in caplog.text
    assert 'ends="first"' in caplog.text
    caplog.clear()
    with Loader(mixture, world=World(rank=1, ranks=2)):  # one line a job, not one a rank
        pass
    assert not caplog.records


@pytest.mark.parametrize("ends", ["first", "all", "forever"])
def test_a_mixture_that_keeps_its_shares_says_nothing(ends: str, caplog: pytest.LogCaptureFixture) -> None:
    short = Pipe.of(range(5))
    with Loader(Pipe.of(range(30)).mix(short, weights=[1, 1], ends=ends)):  # type: ignore[arg-type]
        pass
    with Loader(Pipe.of(range(301)).mix(Pipe.of(range(100)), weights=[3, 1])):  # both end at the end
        pass
    with Loader(Pipe.of(range(30)).mix(short, weights=[0.6, 0.1])):
        pass
    assert not caplog.records


def test_a_stream_that_ends_before_the_others_of_a_mixture_is_said_when_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mixture = Pipe.of(lambda: iter(range(30))).mix(Pipe.of(lambda: iter(range(5))), weights=[1, 1])
    with Loader(mixture) as loader:
        assert not caplog.records
        assert len(list(loader)) == 35
    assert [record.levelno for record in caplog.records] == [logging.WARNING]  # the last one that ends ends it all
    assert "input 1 (counted from 0) ends after" in caplog.text


def test_collate_says_once_that_arrays_of_objects_stay_a_list(caplog: pytest.LogCaptureFixture) -> None:
    sample = {"odd field": np.array([None, "x"], dtype=object)}
    with Loader(Pipe.of([sample] * 8).batch(2).collate()) as loader:
        assert all(type(batch["odd field"]) is list for batch in loader)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "field ['odd field']" in said
    assert "astype" in said


def test_progress_is_a_public_name() -> None:
    assert "progress" in headrace.__all__
    with Loader(Pipe.of(range(4))) as loader:
        assert list(headrace.progress(loader)) == [0, 1, 2, 3]
