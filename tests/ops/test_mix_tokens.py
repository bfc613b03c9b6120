"""Mix by tokens: at the end of every block each source has its share of tokens to within a document."""

import json
import os
import signal
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Loader, Pipe, World
from headrace.errors import BadOption
from headrace.plan.mixture import BLOCK, WeightStage
from headrace.plan.token_mixture import TokenMixture
from tests.depth import depth


def drawn_sizes(count: int, seed: int, mean: float = 4.0) -> Any:
    return np.clip(np.random.default_rng(seed).lognormal(mean, 1, count), 0, 2000).astype(np.int64)


def planned(sizes: list[Any], stages: dict[int, tuple[int, ...]], ends: Any = "forever", key: int = 7) -> TokenMixture:
    made = tuple(WeightStage(start, weights) for start, weights in sorted(stages.items()))

    def tokens_of(source: int, turn: int, rows: Any) -> Any:
        return np.roll(sizes[source], turn)[rows]  # another order in every turn

    return TokenMixture(tuple(map(len, sizes)), made, key, ends, tokens_of)


def borders(made: TokenMixture, most: int) -> list[int]:
    found = [0]
    while found[-1] < most and (after := made.next_border(found[-1] + 1)) > found[-1]:
        found.append(after)
    return found


def tokens_by_source(made: TokenMixture, sizes: list[Any], first: int, last: int) -> Any:
    drawn = made(np.arange(first, last))
    given = np.zeros(len(sizes), np.int64)
    for source, number in zip(drawn.source.tolist(), drawn.number.tolist(), strict=True):
        turn, row = divmod(number, len(sizes[source]))
        given[source] += np.roll(sizes[source], turn)[row]
    return given


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Any], dict[int, tuple[int, ...]]]:
    count = draw(st.integers(2, 6))
    sizes = [
        drawn_sizes(draw(st.integers(20, 3000)), draw(st.integers(0, 99)), draw(st.floats(1, 6))) for _ in range(count)
    ]
    weights = st.lists(st.integers(0, 20), min_size=count, max_size=count).filter(lambda some: sum(map(bool, some)) > 1)
    starts = {0} | draw(st.sets(st.integers(1, 4 * BLOCK), max_size=3))
    return sizes, {start: tuple(draw(weights)) for start in starts}


@given(cases())
def test_every_block_ends_with_each_source_within_a_document_of_its_share(case: Any) -> None:
    sizes, stages = case
    made = planned(sizes, stages)
    ideal, real = np.zeros(len(sizes)), np.zeros(len(sizes), np.int64)
    for first, last in pairwise(borders(made, 6 * BLOCK)):
        given = tokens_by_source(made, sizes, first, last)
        weights = np.array(stages[max(start for start in stages if start <= first)])
        ideal += weights / weights.sum() * given.sum()
        real += given
        assert np.abs(real - ideal).max() < max(int(one.max()) for one in sizes)
        assert BLOCK // 2 < last - first <= 3 * BLOCK // 2


@pytest.mark.parametrize("ends", ["drop", "first", "all"])
def test_each_source_gives_its_documents_in_turn_and_ends_as_told(ends: Any) -> None:
    sizes = [drawn_sizes(900, 1), drawn_sizes(2500, 2, 5.0), drawn_sizes(400, 3)]
    made = planned(sizes, {0: (5, 3, 2)}, ends)
    drawn = made(np.arange(made.length))
    counts = np.bincount(drawn.source, minlength=3).tolist()
    for source in range(3):
        assert drawn.number[drawn.source == source].tolist() == list(range(counts[source]))
    if ends == "drop":
        assert counts == [900, 2500, 400]
    elif ends == "first":
        assert any(count == len(one) for count, one in zip(counts, sizes, strict=True))
        assert all(count <= len(one) for count, one in zip(counts, sizes, strict=True))
    else:
        assert all(count >= len(one) for count, one in zip(counts, sizes, strict=True))
        assert any(count == len(one) for count, one in zip(counts, sizes, strict=True))
    with pytest.raises(IndexError):
        made.block_at(made.length)


def test_an_empty_source_ends_what_draws_from_it_and_nothing_else() -> None:
    sizes = [drawn_sizes(900, 1), drawn_sizes(0, 1)]
    assert planned(sizes, {0: (1, 1)}, "first").length == 0
    assert planned(sizes, {0: (1, 0)}, "first").length == 900
    assert planned(sizes, {0: (1, 0)}, "all").length == 900
    assert planned(sizes, {0: (1, 1), 100: (0, 1), 200: (1, 1)}, "drop").length == 900
    assert planned(sizes, {0: (0, 1)}, "drop").length == 0


def test_a_later_stage_changes_nothing_before_it_and_places_are_found_in_any_order() -> None:
    sizes = [drawn_sizes(900, 1), drawn_sizes(700, 2, 5.0)]
    plain = planned(sizes, {0: (1, 1)})
    start = plain.next_border(3000)
    changed = planned(sizes, {0: (1, 1), start: (1, 4)})
    backwards = [changed(np.array([p]))[0][0] for p in range(start + 500, -1, -500)]
    whole = changed(np.arange(start + 501))
    assert backwards == whole.source[np.arange(start + 500, -1, -500)].tolist()
    assert whole.source[:start].tolist() == plain(np.arange(start)).source.tolist()
    with pytest.raises(BadOption, match="source 1 has weight 0"):
        _ = planned(sizes, {0: (1, 0)}, "all").length


def test_the_order_by_tokens_is_frozen() -> None:
    """Snapshots store a position and rely on what comes there: these numbers must never change."""
    made = planned([np.array([6, 1, 3] * 9), np.array([2] * 40)], {0: (2, 1)}, "first")
    drawn = made(np.arange(12))
    assert "".join(map(str, drawn.source)) == FROZEN


FROZEN = "011010010011"


# --- through the pipe -------------------------------------------------------------------------------------------------

SIZES = [drawn_sizes(300, 1, 3.0).tolist(), drawn_sizes(200, 2, 4.0).tolist(), drawn_sizes(250, 3, 2.0).tolist()]
LONGEST = max(max(one) for one in SIZES)


def sources() -> Pipe[Any]:
    made = [Pipe.of([(s, n) for n in one]).sized(one).shuffle() for s, one in enumerate(SIZES)]
    return made[0].mix(*made[1:], weights=[5, 3, 2], by="tokens", ends="forever")


def test_shares_of_tokens_stay_exact_while_weights_change_workers_die_and_ranks_change() -> None:
    turns = depth(3, 30)
    seen: list[tuple[int, int]] = []
    state: Any = None
    changes: list[tuple[int, list[int]]] = [(0, [5, 3, 2])]
    for turn in range(turns):
        ranks = (1, 2)[turn % 2]
        states, parts, starts = [], [], set()
        new = [1 + turn % 4, 2, turn % 3]
        for rank in range(ranks):
            world = World(rank=rank, ranks=ranks)
            with Loader(sources().batch(16 // ranks), seed=4, world=world, workers=1, kind="process") as loader:
                if state is not None:
                    loader.load_state_dict(json.loads(state))
                samples = iter(loader)
                mine = [list(next(samples)) for _ in range(20)]
                starts.add(loader.reweight(new, at_step=(turn + 1) * 100))
                os.kill(loader.worker_pids()[0], signal.SIGKILL)
                mine += [list(batch) for batch in islice(samples, 80)]
                states.append(json.dumps(loader.state_dict()))
                parts.append(mine)
        assert len(set(states)) == len(starts) == 1  # all ranks agree
        state = states[0]
        assert len(state) <= 1024 + 40 * 3 + (turn + 1) * (16 + 2 * 3)
        seen += [sample for step in zip(*parts, strict=True) for one in step for sample in one]
        changes.append((starts.pop(), new))
    assert len(seen) == turns * 1600
    ideal, real = np.zeros(3), np.zeros(3, np.int64)
    for (first, weights), (last, _) in pairwise(changes):
        part = seen[first:last]
        if last > len(seen):
            break
        real += np.bincount([s for s, _ in part], [n for _, n in part], minlength=3).astype(np.int64)
        ideal += np.array(weights) / sum(weights) * sum(n for _, n in part)
        assert np.abs(real - ideal).max() < LONGEST
    for name, size in enumerate(map(len, SIZES)):
        rows = [n for s, n in seen if s == name]
        assert all(sorted(rows[at : at + size]) == sorted(SIZES[name]) for at in range(0, len(rows) - size, size))


def test_packed_rows_of_a_mixture_by_tokens_are_the_same_in_any_world() -> None:
    made = [Pipe.of([np.full(n, s + 1) for n in one]).sized(one).shuffle() for s, one in enumerate(SIZES)]
    pipe = made[0].mix(*made[1:], weights=[1, 1, 1], by="tokens").pack(128, how="fit", window=100)
    whole = [row["tokens"].tolist() for row in Loader(pipe, seed=3)]
    shares = []
    for rank in range(2):
        with Loader(pipe.batch(4), seed=3, world=World(rank=rank, ranks=2), workers=2, kind="thread") as loader:
            shares.append([[row["tokens"].tolist() for row in batch] for batch in loader])
    steps = [row for step in zip(*shares, strict=False) for batch in step for row in batch]
    assert steps[: len(steps) // 8 * 8] == whole[: len(steps) // 8 * 8]


def test_a_source_without_tokens_has_no_share_of_them() -> None:
    empty: Pipe[Any] = Pipe.of([[], []]).sized([0, 0])
    with pytest.raises(BadOption, match="input 1 are empty"):
        sources().mix(empty, weights=[1, 1], by="tokens")
