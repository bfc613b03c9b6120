"""Typical mistakes: the message names the cure, and what is printed fits at one glance.

Each is a small program, run as a script is. Its traceback is what Python would print.
"""

import linecache
import re
import traceback
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import headrace

LINES = 12
HOUSE = str(Path(headrace.__file__).parent)


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
    of("a store without its package", "list(Pipe.lines('sftp://host/a.txt'))", "sftp://", "needs another package"),
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
    of("a join", 'Pipe.of({"x": np.arange(3)}).join({"x": np.arange(3)}, on="x")', "Pipe.of(frame)", "polars"),
    of("images opened as text", """
        from pathlib import Path
        Path("a.jpg").write_bytes(bytes([255, 216]))
        list(Loader(Pipe.files("a.jpg").open_files().decode()))
    """, "a.jpg", '.open_files("rb")'),
    of("decode of what is no file", "list(Loader(Pipe.of([1]).decode()))", "(path, data)", '.open_files("rb")'),
    of("shuffle with a positional number", "Pipe.of([1]).shuffle(1000)", "by name", "buffer_size="),
    of("an unknown end of an epoch", "Loader(Pipe.of(range(8)), ends='truncate')", "ends must be", "'short'"),
    of("data for an op", "Pipe([1, 2, 3])", "Pipe.of(data)"),
    of("a folder that is not there", "Pipe.csv('nowhere')", "there is no file or folder 'nowhere'"),
    of("the length of what is filtered", "len(Loader(Pipe.of(range(8)).filter(bool)))", "filter(bool)", "set_length"),
]  # fmt: skip
OF_DOORS = [
    of("a misspelt argument", "DataLoader([1], batchsize=2)", "did you mean 'batch_size'"),
    of("a Pipe for a dataset", "DataLoader(Pipe.of([1]), 2)", "headrace.Loader(pipe", "pipe.batch("),
    of("half a state", "DataLoader([1]).load_state_dict({'epoch': 1})", "it has no 'version', 'style'"),
    of("None in a field", """
        list(DataLoader([{"x": 1, "y": [1, None]}, {"x": 2, "y": [2, 2]}], 2))
    """, "field ['y'][1] of sample 0 of the batch is None", "indices [0, 1]"),
    of("None in a field, in a worker", """
        list(DataLoader([{"x": 1, "y": 1}, {"x": 2, "y": None}], 2, num_workers=1))
    """, "field ['y'] of sample 1 of the batch is None", "indices [0, 1]"),
    of("tensors of unlike shapes", """
        list(DataLoader([{"x": torch.zeros(2)}, {"x": torch.zeros(3)}], 2))
    """, "field ['x'] of sample 0 has shape (2,), of sample 1 (3,)"),
    of("a field that one lacks", 'list(DataLoader([{"x": 1}, {}], 2))', "sample 1 of the batch has no 'x'"),
    of("lists of unlike lengths", "list(DataLoader([[1, 2], [1]], 2))", "sample 0 has 2 parts, sample 1 has 1"),
    of("an iterable that is none", """
        class Broken(torch.utils.data.IterableDataset):
            def __iter__(self):
                return 5
        list(DataLoader(Broken()))
    """, "non-iterator of type 'int'"),
    of("a lock in a dataset", """
        import threading
        class Locked:
            lock = property(lambda self: None)
            def __init__(self):
                self.held = threading.Lock()
            def __len__(self):
                return 1
        list(DataLoader(Locked(), num_workers=1, multiprocessing_context="spawn"))
    """, "held (lock) in DataLoader over Locked cannot be sent", "multiprocessing_context='fork'"),
    of("a misspelt argument of a DataPipe", "IterableWrapper([1]).map(func=str)", "map() got", "did you mean 'fn'"),
    of("a DataPipe without __iter__", """
        class Mine(IterDataPipe):
            pass
        list(Mine())
    """, "Mine must define __iter__()"),
    of("a DataPipe without __iter__ in a loader", """
        class Mine(IterDataPipe):
            pass
        list(DataLoader2(Mine()))
    """, "Mine must define __iter__()"),
    of("a MapDataPipe without __getitem__", """
        class Mine(MapDataPipe):
            pass
        Mine()[0]
    """, "Mine must define __getitem__()"),
    of("the length of a filtered DataPipe", "len(IterableWrapper([1]).filter(bool))", "has no len()"),
    of("a service in the wrong place", """
        DataLoader2(IterableWrapper([1]), MultiProcessingReadingService(2))
    """, "reading_service=..."),
    of("a service that is none", """
        DataLoader2(IterableWrapper([1]), reading_service=2)
    """, "MultiProcessingReadingService("),
    of("a service of less than no workers", "MultiProcessingReadingService(-1)", "num_workers", ">= 0"),
    of("a closed DataLoader2", """
        loader = DataLoader2(IterableWrapper([1]))
        loader.shutdown()
        list(loader)
    """, "already been shut down"),
    of("no state of a DataLoader2", """
        DataLoader2(IterableWrapper([1])).load_state_dict({})
    """, "not a state of DataLoader2"),
    of("a misspelt argument of a SwiftLoader", """
        SwiftLoader(list, {}, batchsize=2, nb_consumer=1, worker_per_consumer=1)
    """, "did you mean 'batch_size'"),
    of("arrays of unlike shapes in a SwiftLoader", """
        class Ragged:
            def __len__(self):
                return 2
            def __getitem__(self, index):
                return np.zeros(index)
        SwiftLoader(Ragged, {}, batch_size=2, nb_consumer=1, worker_per_consumer=1)
    """, "(0,)", "(1,)", "let collate_fn fill them up", "stage 'collate'"),
    of("a SwiftLoader that was not started", """
        class Numbers:
            def __len__(self):
                return 2
            def __getitem__(self, index):
                return index
        list(SwiftLoader(Numbers, {}, batch_size=2, nb_consumer=1, worker_per_consumer=1))
    """, "before start(consumer_index)"),
    of("a misspelt argument of replicas", "Replicas(Options(), [1], num_worker=2)", "did you mean 'num_workers'"),
    of("a mode of replicas in small letters", "Replicas(Options(), [1], mode='async')", "did you mean 'Async'"),
]  # fmt: skip


def names() -> dict[str, object]:
    """What the programs have imported."""
    import headrace

    found: dict[str, object] = {"Loader": headrace.Loader, "Pipe": headrace.Pipe, "__name__": "__main__", "np": np}
    if find_spec("torch") is None:
        return found
    import torch

    from headrace import replicas

    doors = (
        "DataLoader", "DataLoader2", "IterableWrapper", "IterDataPipe", "MapDataPipe", "MultiProcessingReadingService",
        "SwiftLoader",
    )  # fmt: skip
    found |= {name: getattr(headrace, name) for name in doors}
    return found | {"torch": torch, "Replicas": replicas.DataLoader, "Options": replicas.Options}


def printed(mistake: Mistake) -> str:
    """What a script with this program prints on its way out."""
    file = f"<{mistake.name}>.py"
    linecache.cache[file] = (len(mistake.program), None, mistake.program.splitlines(keepends=True), file)
    try:
        exec(compile(mistake.program, file, "exec"), names())
    except Exception as error:
        outside = error.__traceback__  # this function
        return "".join(traceback.format_exception(type(error), error, outside and outside.tb_next))
    raise AssertionError("no error at all")


def needs_torch(mistake: Mistake) -> Any:
    return pytest.param(mistake, marks=pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"))


@pytest.mark.parametrize("mistake", [*MISTAKES, *map(needs_torch, OF_DOORS)], ids=lambda mistake: mistake.name)
def test_a_mistake_is_told_with_its_cure_in_a_few_lines(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = printed(mistake)
    missing = [word for word in mistake.cure if word not in said]
    assert not missing, said
    assert len(said.strip().splitlines()) <= LINES, said
    assert f'File "{HOUSE}' not in said, said
    assert len(re.findall("did you mean", said, re.IGNORECASE)) <= 1, said
