"""A change of weights in a running job changes nothing before it, wherever sources end or planned stages begin."""

from itertools import islice
from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.errors import BadOption


def three(lengths: list[int], ends: Any, stages: Any = None) -> Pipe[Any]:
    first, *others = (Pipe.of([(name, i) for i in range(length)]) for name, length in enumerate(lengths))
    return first.mix(*others, weights=[1] * len(lengths), ends=ends, stages=stages)


def changed(pipe: Pipe[Any], at_sample: int, after: int, weights: list[float]) -> tuple[list[Any], int]:
    """All samples of an epoch whose weights are changed when so many were delivered, and from where on."""
    with Loader(pipe, seed=1) as loader:
        samples = iter(loader)
        seen = list(islice(samples, after))
        start = loader.reweight(weights, at_sample=at_sample)
        return seen + list(samples), start


@pytest.mark.parametrize(
    ("lengths", "stages", "wanted", "border"),
    [([200, 3000, 3000], None, 590, 598), ([3000, 3000, 3000], {1061: [1, 2, 1]}, 1050, 1061)],
    ids=["a source ends", "a stage begins"],
)
def test_a_change_begins_where_a_source_ends_or_a_stage_begins_and_later_it_is_refused(
    lengths: list[int], stages: Any, wanted: int, border: int
) -> None:
    pipe = three(lengths, "drop", stages)
    seen, start = changed(pipe, wanted, 500, [1, 5, 1])
    assert start == border
    assert sorted(seen) == [(name, i) for name, length in enumerate(lengths) for i in range(length)]
    assert changed(pipe, border, 20, [1, 5, 1]) == (seen, border), "the number that it said gives the same again"
    with pytest.raises(BadOption, match=f"delivered already.* cannot change at sample {border};"):
        changed(pipe, wanted, border + 200, [1, 5, 1])


def documents(name: int, count: int) -> Pipe[Any]:
    made = [[1000 * name + i] * (1 + (i * 7919 + name) % 13) for i in range(count)]
    return Pipe.of(made).sized([len(one) for one in made]).shuffle()


@pytest.mark.parametrize("seed", range(4))
def test_packed_sources_whose_rows_nobody_told_end_where_the_change_may_begin(seed: int) -> None:
    pipe = documents(1, 300).pack(20, how="fit", window=16).mix(documents(2, 3000).pack(20), weights=[1, 1])
    whole = list(Loader(pipe, seed=seed))
    with Loader(pipe, seed=seed) as loader:
        samples = iter(loader)
        seen = list(islice(samples, 100))
        start = loader.reweight([1, 3], at_sample=190)
        seen += samples
    assert start < 300, "where the small source ends"
    assert len(seen) == len(whole)
    given = [[row["tokens"].tolist() for row in rows] for rows in (seen, whole)]
    assert given[0][:start] == given[1][:start]
    assert sorted(given[0]) == sorted(given[1])


@pytest.mark.parametrize("by", ["samples", "tokens"])
def test_a_change_that_would_take_the_place_of_a_stage_that_has_begun_early_is_refused(by: str) -> None:
    later = [documents(20, 9000), documents(40, 9000)]
    pipe = documents(1, 600).mix(*later, weights=[1, 0, 0], stages={5000: [1, 1, 1]}, by=by)
    with Loader(pipe, seed=1) as loader:
        samples = iter(loader)
        seen = [next(samples)[0] for _ in range(700)]
        assert max(seen) > 2000, "the stage of 5000 has begun"
        with pytest.raises(BadOption, match="begun before its time"):
            loader.reweight([1, 3, 1], at_sample=2000)
        seen += [document[0] for document in samples]
    assert len(seen) == len(set(seen)) == 18600
