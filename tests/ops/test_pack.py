"""Pack: the worked examples, rows that depend on neither workers nor ranks, known and unknown lengths, what is lost."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe, World
from headrace.errors import BadOption
from headrace.ops.text import tokens
from headrace.ops.text.tokens import StoredTokens
from headrace.sources.bytes import DamagedFile
from tests.ops.text_data import write_tokens

D = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]]
EXAMPLES = {
    "PackWindows": lambda of, at: of(D * 3).pack(4, window=5),
    "PackRows": lambda of, at: Pipe.of(D).sized([3, 2, 4, 1]).pack(4, how="fit", window=2),
    "StoredTokens": lambda of, at: Pipe.tokens(write_tokens(at.folder / "tokens", D)),
    "Sized": lambda of, at: Pipe.of(D).sized([3, 2, 4, 1]),
}


def rows(pipe: Pipe[Any], name: str = "tokens") -> list[list[int]]:
    return [row[name].tolist() for row in Loader(pipe)]


def documents(count: int, seed: int = 0, longest: int = 40) -> list[Any]:
    chance = np.random.default_rng(seed)
    return [chance.integers(1, 1000, n).astype(np.int32) for n in chance.integers(0, longest, count)]


def known(of: list[Any]) -> Pipe[Any]:
    return Pipe.of(of).sized([len(document) for document in of])


# --- worked examples of the specification (the plan's own stand in tests/plan/test_packing.py) ------------------------


@pytest.mark.parametrize("pipe", [Pipe.of(D), known(D)], ids=["unknown lengths", "known lengths"])
def test_splitting_as_it_is_worked_out_by_hand(pipe: Pipe[Any]) -> None:
    assert rows(pipe.pack(4, form="flat")) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    ended = pipe.pack(4, separator=0, form="flat")
    assert rows(ended) == [[1, 2, 3, 0], [4, 5, 0, 6], [7, 8, 9, 0], [10, 0]]
    assert rows(ended, "positions")[:3] == [[0, 1, 2, 3], [0, 1, 2, 0], [0, 1, 2, 3]]
    assert rows(ended, "cu_seqlens")[1] == [0, 3, 4]
    assert [row["max_seqlen"] for row in Loader(ended)][1] == 3
    by_document = pipe.pack(4, separator=0, form="flat", positions="document")
    assert rows(by_document, "positions")[2] == [1, 2, 3, 4]
    overlapping = pipe.pack(4, separator=0, overlap=1, form="flat")
    assert rows(overlapping) == [[1, 2, 3, 0, 4], [4, 5, 0, 6, 7], [7, 8, 9, 0, 10], [10, 0]]


def test_tails_as_they_are_worked_out_by_hand() -> None:
    padded = Pipe.of(D).pack(4, separator=0, pad=77)
    assert rows(padded)[3] == [10, 0, 77, 77]
    assert rows(padded, "mask")[3] == [True, True, False, False]
    assert rows(padded, "documents")[1] == [1, 1, 1, 2]
    assert rows(padded, "documents")[3] == [1, 1, 0, 0]
    dropped = Pipe.of(D).pack(4, separator=0, drop_tail=True)
    assert len(rows(dropped)) == 3
    assert sum(row["left_out"][1] for row in Loader(dropped)) == 2


@pytest.mark.parametrize("drop_tail", [False, True])
@pytest.mark.parametrize("made", ["unknown", "known", "stored"])
def test_what_rows_share_is_in_a_row_and_never_counted_as_lost(made: str, drop_tail: bool, tmp_path: Path) -> None:
    for number, sizes in enumerate([[1], [3, 2], [4, 4, 1], [4, 4, 2]]):
        of = [[100 * n + i + 1 for i in range(size)] for n, size in enumerate(sizes)]
        pipe = {
            "unknown": lambda of=of: Pipe.of(of),
            "known": lambda of=of: known(of),
            "stored": lambda of=of, number=number: Pipe.tokens(write_tokens(tmp_path / str(number), of)),
        }[made]()
        packed = list(Loader(pipe.pack(4, overlap=1, drop_tail=drop_tail)))
        seen = {token for row in packed for token in row["tokens"].tolist() if token}
        lost = sum(row["left_out"][1] for row in packed) if drop_tail else 0
        if packed or not drop_tail:  # (only rows can say what was lost)
            assert len(seen) + lost == sum(sizes), sizes


@pytest.mark.parametrize("made", ["unknown", "known", "shuffled", "stream"])
@pytest.mark.parametrize("count", [320, 333])
def test_concat_and_split_loses_at_most_the_last_row(made: str, count: int) -> None:
    of = documents(count)
    source = {
        "unknown": lambda: Pipe.of(of).shuffle(),
        "known": lambda: known(of),
        "shuffled": lambda: known(of).shuffle(),
        "stream": lambda: Pipe.of(lambda: iter(of)),
    }[made]()
    rows = list(Loader(source.pack(32, window=64, drop_tail=True)))
    kept = sum(int(row["mask"].sum()) for row in rows)
    lost = sum(map(len, of)) - kept
    assert 0 <= lost < 32
    assert sum(int(row["left_out"][1]) for row in rows) == lost


@pytest.mark.integrations
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bins", [64, 256])
@pytest.mark.parametrize(
    ("length", "drawn"),
    [
        (1024, lambda chance: chance.lognormal(4.2, 1, 8192)),
        (4096, lambda chance: chance.lognormal(6, 1, 8192)),
        (2048, lambda chance: chance.integers(1, 2048, 8192)),
    ],
    ids=["short", "lognormal", "uniform"],
)
def test_no_more_is_padding_than_with_grains_best_fit(length: int, drawn: Any, bins: int) -> None:
    grain: Any = pytest.importorskip("grain")
    lengths = np.clip(drawn(np.random.default_rng(1)), 1, length).astype(int).tolist()
    of = [np.ones(n, np.int32) for n in lengths]
    theirs = grain.experimental.BestFitPackIterDataset(
        grain.MapDataset.source(of).map(lambda tokens: {"tokens": tokens}).to_iter_dataset(),
        length_struct={"tokens": length}, num_packing_bins=bins, shuffle_bins=False,
    )  # fmt: skip
    ours = list(Loader(Pipe.of(of).pack(length, how="fit")))
    assert sum(int(row["mask"].sum()) for row in ours) == sum(lengths)
    assert len(ours) <= sum(1 for _ in theirs)


def test_fitting_as_it_is_worked_out_by_hand() -> None:
    of = [[10 * i + t for t in range(n)] for i, n in enumerate([3, 5, 2, 4, 1, 6])]
    made = sorted(rows(Pipe.of(of).pack(8, how="fit", form="flat")))
    assert made == sorted([of[5] + of[2], of[1] + of[0], of[3] + of[4]])
    long = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10], [11]]
    assert sorted(rows(Pipe.of(long).pack(4, how="fit", long="truncate", form="flat"))) == sorted(
        [[1, 2, 3, 4], [8, 9, 10, 11], [6, 7]]
    )
    assert sorted(rows(Pipe.of(long).pack(4, how="fit", form="flat"))) == sorted(
        [[1, 2, 3, 4], [8, 9, 10, 5], [6, 7, 11]]
    )


def test_concat_and_split_has_the_segments_that_grain_has() -> None:
    of = [[9] * n for n in (14, 7, 5, 2, 3)]
    assert rows(Pipe.of(of).pack(8), "documents") == [
        [1] * 8, [1] * 6 + [2] * 2, [1] * 5 + [2] * 3, [1, 1, 2, 2, 3, 3, 3, 0]
    ]  # fmt: skip


def test_an_empty_document_has_no_piece_and_a_long_one_is_never_lost_without_a_word() -> None:
    assert rows(Pipe.of([[], [1, 2], []]).pack(4, separator=0, form="flat")) == [[1, 2, 0]]
    long = [[1] * 9, [2], [3] * 6]
    for policy, lost in (("drop", [2, 0]), ("truncate", [0, 7]), ("split", None)):
        made = list(Loader(Pipe.of(long).pack(4, how="fit", long=policy)))  # type: ignore[arg-type]
        if lost is None:
            assert sum(int(row["mask"].sum()) for row in made) == 16
            assert "left_out" not in made[0]
        else:
            assert np.sum([row["left_out"] for row in made], axis=0).tolist() == lost
    with pytest.raises(BadOption, match="document 0 has 9 tokens"):
        list(Loader(Pipe.of(long).pack(4, how="fit", long="error")))


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["split", "fit"])
def test_known_and_unknown_lengths_give_the_same_rows(how: Any, tmp_path: Path) -> None:
    of = documents(300)
    options: Any = {"how": how, "window": 64, "separator": 5}
    unknown = rows(Pipe.of(of).pack(32, **options))
    assert sorted(rows(known(of).pack(32, **options))) == sorted(unknown)
    stored = Pipe.tokens(write_tokens(tmp_path / "a", of))
    assert sorted(rows(stored.pack(32, **options))) == sorted(unknown)


def test_stored_tokens_are_cut_without_a_plan_and_lose_at_most_the_last_row(tmp_path: Path) -> None:
    of = documents(300)
    one, two = write_tokens(tmp_path / "a", of[:120]), write_tokens(tmp_path / "b", of[120:], 8, "<u2")
    pipe = Pipe.tokens([one, two[:-4]]).pack(32, drop_tail=True)
    everything = np.concatenate(of)
    whole = len(everything) // 32
    assert len(pipe) == whole
    assert np.array_equal(np.concatenate(rows(pipe)), everything[: whole * 32])
    shuffled = list(Loader(pipe.shuffle(), seed=1))
    assert sorted(row["tokens"].tolist() for row in shuffled) == sorted(rows(pipe))
    assert sum(row["left_out"][1] for row in shuffled) == len(everything) - whole * 32
    assert "nothing is planned" in pipe.explain()


def job(pipe: Pipe[Any], ranks: int, steps: int, state: str | None = None) -> tuple[list[Any], str]:
    """The first steps of a job, all its ranks in turn, and where it stands then."""
    delivered, states = [], []
    for rank in range(ranks):
        with Loader(pipe, seed=3, world=World(rank=rank, ranks=ranks), ends="drop") as loader:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            delivered.append([list(batch) for batch in islice(iter(loader), steps)])
            states.append(json.dumps(loader.state_dict()))
    assert len(set(states)) == 1
    return [row["tokens"].tolist() for step in zip(*delivered, strict=True) for one in step for row in one], states[0]


@pytest.mark.parametrize("how", ["split", "fit"])
def test_rows_of_known_lengths_come_in_one_order_on_any_number_of_ranks(how: Any) -> None:
    def pipe(ranks: int) -> Pipe[Any]:
        return known(documents(500)).shuffle().pack(32, how=how, window=64).batch(8 // ranks)

    whole, _ = job(pipe(1), 1, 1000)
    assert job(pipe(4), 4, 1000)[0] == whole
    first, state = job(pipe(2), 2, 9)
    rest, _ = job(pipe(4), 4, 1000, state)
    assert first + rest == whole


def even(document: Any) -> bool:
    return len(document) % 2 == 0


def test_rows_of_unknown_lengths_are_the_same_for_any_kind_and_number_of_workers_and_resume_anywhere() -> None:
    pipe = Pipe.of(documents(400)).shuffle().filter(even).pack(32, how="fit", window=50).batch(3)
    whole = [json.dumps([row["tokens"].tolist() for row in batch]) for batch in Loader(pipe, seed=3)]
    for workers, kind in ((2, "thread"), (2, "process")):
        with Loader(pipe, seed=3, workers=workers, kind=kind) as loader:  # type: ignore[arg-type]
            assert [json.dumps([row["tokens"].tolist() for row in batch]) for batch in loader] == whole
    for at in (1, 7, len(whole) - 1):
        loader = Loader(pipe, seed=3)
        samples = iter(loader)
        for _ in range(at):
            next(samples)
        other = Loader(pipe, seed=3, workers=1, kind="thread")
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        with other:
            assert [json.dumps([row["tokens"].tolist() for row in batch]) for batch in other] == whole[at:]


def test_a_stream_is_packed_window_by_window() -> None:
    of = documents(90)
    pipe = Pipe.of(lambda: iter(of)).pack(32, window=20, form="flat")
    assert np.array_equal(np.concatenate([row["tokens"] for row in Loader(pipe)]), np.concatenate(of))


def test_fields_of_a_document_are_packed_beside_its_tokens() -> None:
    of = [{"input_ids": [1, 2, 3], "loss": [0, 1, 1]}, {"input_ids": [4, 5], "loss": [1, 0]}]
    (row,) = Loader(Pipe.of(of).pack(6))
    assert row["tokens"].tolist() == [1, 2, 3, 4, 5, 0]
    assert row["loss"].tolist() == [0, 1, 1, 1, 0, 0]
    with pytest.raises(BadOption, match="'loss' of a document has another length"):
        list(Loader(Pipe.of([{"tokens": [1, 2], "loss": [1]}]).pack(6)))
    with pytest.raises(BadOption, match="must be under"):
        list(Loader(Pipe.of([{"text": [1, 2]}]).pack(6)))
    with pytest.raises(BadOption, match="tokenize"):
        list(Loader(Pipe.of(["text"]).pack(6)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 0}, "length="),
        ({"length": 4, "how": "best"}, "how='best'"),
        ({"length": 4, "long": "drop"}, "is for how='fit'"),
        ({"length": 4, "how": "fit", "overlap": 1}, "overlap="),
        ({"length": 4, "form": "round"}, "form='round'"),
        ({"length": 4, "window": True}, "window="),
        ({"length": 4, "positions": "x"}, "positions='x'"),
        ({"length": 4, "how": "fit", "long": "cut"}, "long='cut'"),
    ],
)
def test_bad_options_are_refused_at_once(options: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Pipe.of(D).pack(**options)
    with pytest.raises(BadOption, match="lengths for"):
        Pipe.of(D).sized([1]).pack(4)


# --- stored tokens ----------------------------------------------------------------------------------------------------


def test_token_files_are_read_as_they_are(tmp_path: Path) -> None:
    of = documents(50)
    path = write_tokens(tmp_path / "a", of)
    pipe = Pipe.tokens(tmp_path)
    assert all(np.array_equal(a, b) for a, b in zip(Loader(pipe), of, strict=True))
    assert pipe.op.length(()) == 50
    with pytest.raises(BadOption, match="headrace tokenize"):
        Pipe.tokens(tmp_path / "missing")
    source = StoredTokens((path,))
    with open(path, "ab") as file:
        file.write(b"1234")
    tokens._store.cache_clear()  # as in another process
    with pytest.raises(DamagedFile, match="make the pipe anew"):
        StoredTokens(source.paths, source.states).size()


class Ends:
    """The ends of 1.4 billion simulated documents: looked up, never held."""

    count = 1_400_000_000

    def __init__(self) -> None:
        self.looked = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> int:
        self.looked += 1
        number = number + self.count if number < 0 else number
        return 715 * (number + 1) + number % 97  # lengths around 715


def test_a_row_among_a_trillion_tokens_is_found_by_looking_at_a_few_ends() -> None:
    import tracemalloc

    from headrace.op import Here, Indexed, Lengths
    from headrace.ops.text.pack import PackRows
    from headrace.ops.text.rows import RowLayout
    from headrace.plan.order import Shuffled
    from headrace.plan.packing import Packing

    ends = Ends()

    def document(number: int) -> Any:
        length = ends[number] - (ends[number - 1] if number else 0)
        return np.full(length, number % 30_000, np.int32)

    source = Indexed(ends.count, document)
    tokens = ends[-1]
    assert tokens > 10**12
    source.lengths = Lengths(lambda some: some, tokens, ("simulated",), ends=ends)  # type: ignore[arg-type]
    tracemalloc.start()
    rows = PackRows(Packing(4096), RowLayout()).index((source,), Here(0, 0, 0))
    assert rows is not None
    order = Shuffled(rows.length, 7)
    for number in order(np.arange(200)).tolist():
        ends.looked = 0
        row = rows.get(number)
        assert ends.looked < 80
        assert len(row["tokens"]) == 4096
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024 * 1024


def test_the_first_of_known_documents_are_known_and_a_mixture_without_an_end_is_packed_in_windows() -> None:
    of = documents(200)
    endless = known(of).mix(known(of), ends="forever")
    first = endless.header(300).pack(32, how="fit", window=64)
    assert first.indexed(0, 0) is not None
    again = endless.pack(32, how="fit", window=64)
    assert "in any worker" in again.explain()
    seen = islice(iter(Loader(again, seed=5)), 40)
    whole = [row["tokens"].tolist() for row in Loader(first, seed=5)]
    assert sum(row["tokens"].tolist() in whole for row in seen) == 40
