"""Files that are replaced: a new pipe reads what is there now; one made before says that its file has changed.

Whatever a process keeps of a file between two pipes (handles, footers, tables of lengths, unpacked members) must not
outlive the file, also where the new one has the same name, size and time of change.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Loader, Pipe
from headrace.sources.bytes import DamagedFile
from tests.conftest import RunScript
from tests.depth import depth
from tests.sources.stored import writers

COUNT = 40
KINDS: list[dict[str, Any]] = [{"workers": 0}, {"workers": 2, "kind": "thread"}, {"workers": 2, "kind": "process"}]


@dataclass(frozen=True)
class Case:
    """Writes files of one format whose samples all hold `value`; `pipe` delivers that number for each of them."""

    write: Callable[[Path, int], None]
    pipe: Callable[[Path], Pipe[Any]]


def _table(value: int) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.table({"n": np.full(COUNT, value)})


def _parquet(path: Path, value: int) -> None:
    table = _table(value)
    import pyarrow.parquet as pq

    pq.write_table(table, path, row_group_size=COUNT // 4)


def _arrow(path: Path, value: int) -> None:
    table = _table(value)
    import pyarrow as pa

    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, COUNT // 4)


def _stream(path: Path, value: int) -> None:
    table = _table(value)
    import pyarrow as pa

    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, COUNT // 4)


def _mds(folder: Path, value: int) -> None:
    rows = [{"n": value.to_bytes(8, "little", signed=True)}] * COUNT
    writers.mds(folder, {"n": ("int", 8)}, [rows])


def _tokens(path: Path, value: int) -> None:
    # Lengths differ as well: what is planned from them must not be kept.
    sizes = [2 + (i + value) % 3 for i in range(COUNT)]
    writers.megatron(path, [np.full(size, value, np.uint16) for size in sizes], 8)


def _n(sample: Any) -> int:
    return int(sample["n"])


def _first(columns: Any) -> int:
    return _all_one(columns["n"])


def _all_one(tokens: Any) -> int:
    (value,) = set(np.asarray(tokens).tolist())
    return int(value)


def _in_row(row: Any) -> int:
    return int(max(row["tokens"]))  # (the rest of a row is filled up with 0)


def _cls(sample: Any) -> int:
    return int(sample[".cls"])


CASES: dict[str, Case] = {
    "parquet": Case(_parquet, lambda path: Pipe.parquet(path).map(_n)),
    "parquet filtered": Case(_parquet, lambda path: _filtered(Pipe.parquet(path)).map(_n)),
    "parquet columns": Case(_parquet, lambda path: Pipe.parquet(path).batch(4, as_="numpy").map(_first)),
    "arrow": Case(_arrow, lambda path: Pipe.arrow(path).map(_n)),
    "arrow stream": Case(_stream, lambda path: Pipe.arrow(path).map(_n)),
    "a.jsonl": Case(lambda p, v: _ignore(writers.jsonl(p, [{"n": v}] * COUNT)), lambda p: Pipe.stored(p).map(_n)),
    "a.tar": Case(
        lambda p, v: _ignore(writers.tar(p, [{".cls": str(v).encode()}] * COUNT)), lambda p: Pipe.stored(p).map(_cls)
    ),
    "shards.tar": Case(
        lambda p, v: _ignore(writers.tar(p, [{".cls": str(v).encode()}] * COUNT)), lambda p: Pipe.shards(p).map(_cls)
    ),
    "m": Case(_mds, lambda path: Pipe.stored(path).map(_n)),
    "a.bin": Case(_tokens, lambda path: Pipe.stored(path).map(_all_one)),
    "tokens.bin": Case(_tokens, lambda path: Pipe.tokens(path).map(_all_one)),
    "packed.bin": Case(_tokens, lambda path: Pipe.tokens(path).pack(8, how="fit", long="drop").map(_in_row)),
}


def _filtered(pipe: Pipe[Any]) -> Pipe[Any]:
    import pyarrow.compute as pc

    return pipe.filter(pc.field("n") >= 0)


def _ignore(_: Path) -> None:
    return None


def _replace(case: Case, path: Path, value: int) -> None:
    """Other content under the same names, with the same times of change as before."""
    times = {found: os.stat(found).st_mtime_ns for found in _files(path)}
    aside = path.with_name("aside")
    aside.mkdir()
    for found in (path, path.with_suffix(".idx")):
        if found.exists():
            os.rename(found, aside / found.name)  # (kept, so that its inode is not given to the new file)
    case.write(path, value)
    for found, time in times.items():
        if found.exists():
            os.utime(found, ns=(time, time))


def _files(path: Path) -> Iterator[Path]:
    yield from (found for found in path.parent.rglob("*") if found.is_file())


@pytest.mark.parametrize("options", KINDS, ids=["inline", "thread", "process"])
@pytest.mark.parametrize("name", CASES)
def test_a_new_pipe_reads_the_files_that_are_there_now(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    if options.get("kind") == "process" and name not in depth(["parquet", "packed.bin"], list(CASES)):
        pytest.skip("new processes keep nothing of files: tried in full in the deep run")
    case, path = CASES[name], tmp_path / name.replace(" ", ".")
    case.write(path, 1)
    with Loader(case.pipe(path), **options) as loader:
        assert set(loader) == {1}
    _replace(case, path, 2)
    with Loader(case.pipe(path), **options) as loader:
        rows = list(loader)
    assert set(rows) == {2}
    assert len(rows) == COUNT or name in ("packed.bin", "parquet columns")


WRITTEN_OVER = ["parquet", "parquet filtered", "arrow", "a.jsonl", "a.tar"]


@pytest.mark.parametrize("options", KINDS[:2], ids=["inline", "thread"])
@pytest.mark.parametrize("name", WRITTEN_OVER)
def test_a_file_that_is_written_over_while_it_is_read_is_an_error_that_names_it(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    case, path = CASES[name], tmp_path / name.replace(" ", ".")
    case.write(path, 1)
    before = os.stat(path)
    with Loader(case.pipe(path).batch(4), prefetch=1, **options) as loader:
        batches = iter(loader)
        assert next(batches) == [1] * 4
        content = path.read_bytes()
        with path.open("r+b") as stream:
            stream.write(content.replace(b"1", b"2"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
        rest, said = [], ""
        try:
            for batch in batches:
                rest += batch
        except DamagedFile as error:
            said = str(error)
        # (Threads may have read everything before it was written over.)
        assert f"{path.name} has changed since the pipe was made" in said or options.get("kind") == "thread"
        assert set(rest) <= {1}


@pytest.mark.parametrize("options", KINDS[:2], ids=["inline", "thread"])
def test_a_new_pipe_reads_the_remote_files_that_are_there_now(tmp_path: Path, options: dict[str, Any]) -> None:
    fsspec: Any = pytest.importorskip("fsspec")
    for value in (1, 2):
        _parquet(tmp_path / "a.parquet", value)
        with fsspec.open("memory://replaced/a.parquet", "wb") as remote:
            remote.write((tmp_path / "a.parquet").read_bytes())
        with Loader(Pipe.parquet("memory://replaced/a.parquet").map(_n), **options) as loader:
            assert list(loader) == [value] * COUNT
    fsspec.filesystem("memory").rm("/replaced", recursive=True)


@pytest.mark.parametrize("name", ["tokens.bin", "packed.bin", "a.bin", "m"])
@pytest.mark.parametrize("part", ["data", "index"])
def test_a_pipe_whose_file_was_written_over_between_epochs_says_so(tmp_path: Path, name: str, part: str) -> None:
    case, path = CASES[name], tmp_path / name.replace(" ", ".")
    case.write(path, 1)
    written = path / "shard.00000.mds" if path.is_dir() else path
    if part == "index":
        written = path.with_suffix(".idx")
        if not written.exists():
            pytest.skip("its index is looked at when the pipe is made, or is our own")
    with Loader(case.pipe(path)) as loader:
        assert set(loader) == {1}
        about = os.stat(written)
        with written.open("r+b") as stream:
            stream.write(written.read_bytes()[:64])
        os.utime(written, ns=(about.st_atime_ns, about.st_mtime_ns + 10**9))
        with pytest.raises(DamagedFile, match=f"{written.name} has changed since the pipe was made"):
            list(loader)


CUTS: list[list[int]] = [[100, 500], [10, 20, 900, 950]]
"""Two ways to cut the same 1000 tokens into documents."""


def _cut(path: Path, cuts: list[int]) -> Path:
    return writers.megatron(path, np.split(np.arange(1000, dtype=np.uint16), cuts), 8)


def _pieces(cuts: list[int]) -> list[int]:
    return np.diff([0, *cuts, 1000]).tolist()


@pytest.mark.parametrize("make", [Pipe.stored, Pipe.tokens], ids=["stored", "tokens"])
@pytest.mark.parametrize("options", KINDS, ids=["inline", "thread", "process"])
def test_an_index_of_tokens_that_is_replaced_alone_is_noticed(
    tmp_path: Path, make: Callable[[Path], Pipe[Any]], options: dict[str, Any]
) -> None:
    """The tokens themselves, their size and their time stay as they were."""
    path = _cut(tmp_path / "a.bin", CUTS[0])
    before = make(path).map(len)
    with Loader(before, **options) as loader:
        assert list(loader) == _pieces(CUTS[0])
    (tmp_path / "new").mkdir()
    _cut(tmp_path / "new" / "a.bin", CUTS[1])
    os.replace(tmp_path / "new" / "a.idx", tmp_path / "a.idx")
    with Loader(make(path).map(len), **options) as loader:
        assert list(loader) == _pieces(CUTS[1])
    with (
        pytest.raises(DamagedFile, match=r"a\.idx has changed since the pipe was made"),
        Loader(before, **options) as loader,
    ):
        list(loader)


def test_an_index_of_tokens_that_is_shortened_while_it_is_read_is_an_error_or_does_no_harm(
    tmp_path: Path, run_script: RunScript
) -> None:
    """In a process of its own: what was mapped and is cut off ends it by a signal."""
    writers.megatron(tmp_path / "a.bin", np.split(np.arange(100_000, dtype=np.uint16), range(10, 100_000, 10)), 8)
    code = """
        import sys
        from headrace import Loader, Pipe
        from headrace.sources.bytes import DamagedFile

        rows = iter(Loader(Pipe.stored(sys.argv[1])))
        assert next(rows).tolist() == list(range(10))
        with open(sys.argv[1].replace(".bin", ".idx"), "r+b") as index:
            index.truncate(64)
        try:
            for number, row in enumerate(rows, 1):
                assert row[0] == number * 10 % 65536 and len(row) == 10
            assert number == 9999
        except DamagedFile as error:
            assert "a.idx has changed since the pipe was made" in str(error)
    """
    done = run_script(code, tmp_path / "a.bin")
    assert done.returncode == 0, done.stderr


def test_a_lance_data_set_that_is_made_anew_is_read_anew(tmp_path: Path, run_script: RunScript) -> None:
    if find_spec("lance") is None:
        pytest.skip("lance is not installed")
    # In a process of its own: lance has threads, and minds every fork that comes after it.
    code = """
        import shutil, sys
        import lance, pyarrow
        from headrace import Loader, Pipe

        for value in (1, 2):
            shutil.rmtree(sys.argv[1], ignore_errors=True)
            lance.write_dataset(pyarrow.table({"n": [value] * 40}), sys.argv[1], max_rows_per_file=20)
            assert [row["n"] for row in Loader(Pipe.stored(sys.argv[1]))] == [value] * 40
    """
    done = run_script(code, tmp_path / "a.lance")
    assert done.returncode == 0, done.stderr
