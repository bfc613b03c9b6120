"""Typical mistakes: the message names the cure, and what is printed fits at one glance.

Each is a small program, run as a script is. Its traceback is what Python would print.
"""

import linecache
import traceback
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

LINES = 12


@dataclass(frozen=True)
class Mistake:
    """A program, and words that its error must contain."""

    name: str
    program: str
    cure: tuple[str, ...]


def of(name: str, program: str, *cure: str) -> Mistake:
    return Mistake(name, dedent(program).strip() + "\n", cure)


MISTAKES = [
    of("batch_size of a Loader", "Loader(Pipe.of(range(8)), batch_size=4)", "batch_size", ".batch(4)"),
    of("shuffle of a Loader", "Loader(Pipe.of(range(8)), shuffle=True)", "shuffle", ".shuffle()"),
    of("num_workers of a Loader", "Loader(Pipe.of(range(8)), num_workers=2)", "num_workers", "write workers=2"),
    of("collate_fn of a Loader", "Loader(Pipe.of(range(8)), collate_fn=list)", "collate_fn", ".collate("),
    of("drop_last of a Loader", "Loader(Pipe.of(range(8)), drop_last=True)", "drop_last", "batch("),
    of("a misspelt option", "Loader(Pipe.of(range(8)), worker=2)", "worker", "workers"),
    of("an option nobody has", "Loader(Pipe.of(range(8)), turbo=True)", "turbo", "workers", "prefetch", "autosave"),
    of("a dataset for a pipe", "Loader([1, 2, 3])", "Pipe.of("),
    of("a misspelt verb", "Pipe.of([1]).shufle()", "shufle", "shuffle"),
    of("a misspelt keyword of a verb", "Pipe.of([1]).batch(2, drop_lst=True)", "drop_lst", "drop_last"),
    of("a batch of nothing", "Pipe.of([1]).batch(0)", "batch(size)", "positive whole number"),
    of("no function for map", "Pipe.of([1]).map(3)", "map() needs a function"),
    of("one string as samples", "Pipe.of('train.csv')", "Pipe.files", "Pipe.csv"),
    of("a generator for several epochs", """
        loader = Loader(Pipe.of(x for x in [1]))
        list(loader), list(loader)
    """, "a function that makes a new iterator"),
    of("files that are not there", "list(Pipe.files('nowhere/*.tar'))", "nowhere/*.tar"),
    of("s3 without its package", "list(Pipe.lines('s3://bucket/a.txt'))", "headrace["),
    of("samples of different shapes", """
        import numpy as np
        samples = [{"image": np.zeros((2, 3))}, {"image": np.zeros((2, 4))}]
        list(Loader(Pipe.of(samples).batch(2).collate()))
    """, "image", "(2, 3)", "(2, 4)", "pad"),
    of("samples with different fields", """
        list(Loader(Pipe.of([{"x": 1}, {"y": 1}]).batch(2).collate()))
    """, "'x'", "'y'"),
    of("an error in a map", """
        def augment(x):
            return x / 0
        list(Loader(Pipe.of([1, 2]).map(augment), workers=0))
    """, "division by zero", "map(", "position 0", "return x / 0"),
    of("an error in a map in a worker", """
        def augment(x):
            return x / 0
        with Loader(Pipe.of([1, 2]).map(augment), workers=1) as loader:
            list(loader)
    """, "division by zero", "map(", "position 0", "worker 0", "return x / 0"),
    of("something that cannot travel", """
        import threading
        lock = threading.Lock()
        def locked(x):
            with lock:
                return x
        with Loader(Pipe.of([1, 2]).map(locked), workers=1) as loader:
            list(loader)
    """, "lock", "map"),
    of("a snapshot of another pipe", """
        state = Loader(Pipe.of(range(8)).batch(2)).state_dict()
        Loader(Pipe.of(range(8)).map(str).batch(2)).load_state_dict(state)
    """, "map", "load it with the pipe"),
    of("a snapshot of another seed", """
        state = Loader(Pipe.of(range(8)), seed=1).state_dict()
        Loader(Pipe.of(range(8)), seed=2).load_state_dict(state)
    """, "seed=1"),
    of("something that is no snapshot", """
        Loader(Pipe.of(range(8))).load_state_dict({"epoch": 3})
    """, "snapshot", "state_dict() returned"),
    of("the length of a stream", "len(Pipe.of(lambda: iter([1])))", "set_length"),
    of("a closed loader", """
        loader = Loader(Pipe.of(range(8)))
        loader.close()
        list(loader)
    """, "closed", "new one"),
    of("negative workers", "Loader(Pipe.of(range(8)), workers=-1)", "workers", "-1"),
    of("an unknown kind of workers", "Loader(Pipe.of(range(8)), kind='proces', workers=1)", "proces", "process"),
    of("weights that do not fit", "Pipe.of([1]).mix(Pipe.of([2]), weights=[1])", "2 pipes", "1 weight", "one for each"),
    of("columns that are not there", """
        import numpy as np
        list(Pipe.of({"x": np.arange(3)}).select("y"))
    """, "'y'", "'x'"),
    of("a join on a column that is not there", """
        import numpy as np
        list(Pipe.of({"x": np.arange(3)}).join({"id": np.arange(3)}, on="id"))
    """, "'id'", "'x'"),
    of("images opened as text", """
        from pathlib import Path
        Path("a.jpg").write_bytes(bytes([255, 216]))
        list(Loader(Pipe.files("a.jpg").open_files().decode()))
    """, "a.jpg", '.open_files("rb")'),
    of("decode of what is no file", "list(Loader(Pipe.of([1]).decode()))", "(path, data)", '.open_files("rb")'),
    of("shuffle with a positional number", "Pipe.of([1]).shuffle(1000)", "by name", "buffer_size="),
]  # fmt: skip


def printed(mistake: Mistake) -> str:
    """What a script with this program prints on its way out."""
    from headrace import Loader, Pipe

    file = f"<{mistake.name}>.py"
    linecache.cache[file] = (len(mistake.program), None, mistake.program.splitlines(keepends=True), file)
    try:
        exec(compile(mistake.program, file, "exec"), {"Loader": Loader, "Pipe": Pipe, "__name__": "__main__", "np": np})
    except Exception as error:
        outside = error.__traceback__  # this function
        return "".join(traceback.format_exception(type(error), error, outside and outside.tb_next))
    raise AssertionError("no error at all")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_told_with_its_cure_in_a_few_lines(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = printed(mistake)
    missing = [word for word in mistake.cure if word not in said]
    assert not missing, said
    assert len(said.strip().splitlines()) <= LINES, said
