"""The page docs/errors.md tells the truth: its messages are in the source, and are what the errors really say."""

import ast
import io
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Budget, IterableWrapper, Loader, Pipe, World, errors
from headrace.errors import HeadraceError, missing
from headrace.ranks.detect import explain

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text()
SECTIONS: dict[str, str] = dict(re.findall(r"^## (\w.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
MESSAGES = {text: name for name, body in SECTIONS.items() for text in re.findall(r"^### `(.+)`$", body, re.MULTILINE)}
"""Message, with ... for what differs -> the section that it stands in."""
GAP = "\0"


# --- the source -------------------------------------------------------------------------------------------------------


def test_every_error_has_a_section() -> None:
    tree = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, HeadraceError)}
    assert tree - {"HeadraceError"} == set(SECTIONS) - {"Warnings and the log"}


def texts() -> Iterator[str]:
    """Every text of the source, with a gap for each value that is put into it."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%[ds]", GAP, node.value).replace("\n", "")
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
                yield "".join(map(str, parts)).replace("\n", "")


def test_every_message_of_the_page_is_in_the_source() -> None:
    known = list(texts())
    for message in MESSAGES:
        # "..." is a gap, except where the text itself says "(...)" or ", ..." as in DataLoader(..., shard='auto').
        pieces = [re.escape(piece) for piece in message.split("...")]
        pattern = re.compile(f"(?:{GAP}|\\.\\.\\.)*".join(pieces).replace("\\ ", " "))
        assert any(pattern.fullmatch(text.removesuffix(GAP)) or pattern.fullmatch(text) for text in known), message


# --- the errors themselves --------------------------------------------------------------------------------------------


class Locked:
    """A dataset that cannot travel."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


def read(pipe: Pipe[Any], **options: Any) -> list[Any]:
    with Loader(pipe, **options) as loader:
        return list(loader)


def closed() -> Any:
    loader = Loader(Pipe.of([1]))
    loader.close()
    return list(loader)


def resumed(state: dict[str, Any], **options: Any) -> Any:
    pipe = Pipe.of(lambda: iter(range(10))) if "strands" in options else Pipe.of(range(10))
    with Loader(pipe.batch(2), seed=1) as before:
        next(iter(before))
        whole = {**before.state_dict(), **state}
    with Loader(pipe.batch(2), **{"seed": 1, **options}) as loader:
        loader.load_state_dict(whole)
        return list(loader)


def without_version() -> Any:
    return Loader(Pipe.of([1])).load_state_dict({"seed": 0})


def other_batches() -> None:
    loader = Loader(Pipe.of(range(20)).batch(2).enumerate())
    next(iter(loader))
    Loader(Pipe.of(range(20)).batch(5).enumerate()).load_state_dict(loader.state_dict())


def shorter() -> Any:
    with Loader(Pipe.of(range(10)).batch(2), seed=1) as before:
        batches = iter(before)
        for _ in range(4):
            next(batches)
        state = before.state_dict()
    with Loader(Pipe.of(range(5)).batch(2), seed=1) as loader:
        loader.load_state_dict(state)
        return list(loader)


def other_length() -> Any:
    state = Loader(Pipe.of([1]).batch(2)).state_dict()
    return Loader(Pipe.of([1])).load_state_dict(state)


def other_op() -> Any:
    state = Loader(Pipe.of([1]).shuffle()).state_dict()
    return Loader(Pipe.of([1]).batch(2)).load_state_dict(state)


def used_up() -> Any:
    pipe = IterableWrapper(iter([1, 2]))
    return list(pipe), list(pipe)


def other_columns() -> Any:
    ages, sizes = Pipe.of({"age": np.ones(1)}), Pipe.of({"size": np.ones(1)})
    return read(ages.concat(sizes).batch(2))


def dies(x: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def deadly() -> Iterator[int]:
    yield dies(0)


def in_a_copy() -> None:
    """What a forked copy of this process is told when it goes on reading."""
    with Loader(Pipe.of(range(100)), **FORK) as loader:
        batches = iter(loader)
        next(batches)
        ours, theirs = os.pipe()
        copy = os.fork()
        if copy == 0:
            try:
                list(batches)  # what had arrived before is still there
            except BaseException as error:
                os.write(theirs, f"{type(error).__name__} {error}".encode())
            finally:
                os._exit(0)
        os.close(theirs)
        os.waitpid(copy, 0)
        kind, _, text = os.read(ours, 1000).decode().partition(" ")
        os.close(ours)
        raise getattr(errors, kind)(text)


def hangs(x: int) -> int:
    threading.Event().wait()
    return x


def fails(x: int) -> int:
    raise ValueError("bad")


def locked(x: int) -> Any:
    return threading.Lock()


def large_image() -> Any:
    pytest.importorskip("PIL")
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "PNG")
    return list(Pipe.of([("a.png", file.getvalue())]).decode(max_bytes=1000))


FORK: dict[str, Any] = {"workers": 1, "start_method": "fork"}
STREAM = Pipe.of(lambda: iter(range(4)))
TWO = World(rank=0, ranks=2)

RAISED: dict[str, Callable[[], Any]] = {
    "kind=... needs workers >= 1": lambda: Loader(Pipe.of([1]), kind="thread"),
    "Pipe.of() takes samples, not one string; for files there are": lambda: Pipe.of("data.csv"),
    "Pipe.of() takes a sequence (with len() and [i]), an iterable, or": lambda: Pipe.of(3),
    "Loader() takes a Pipe, not ...; write Loader(Pipe.of(...))": lambda: Loader([1]),  # type: ignore[arg-type]
    "...() needs a function, not ...": lambda: Pipe.of([1]).map(3),  # type: ignore[call-overload]
    "quarantine= is for samples that are left out": lambda: Loader(Pipe.of([1]), quarantine="bad.jsonl"),
    "autosave=...: there is no folder": lambda: Loader(Pipe.of([1]), autosave="/nowhere/at/all.json"),
    "autosave: no file can be written to": lambda: Loader(Pipe.of([1]), autosave="/proc/self/all.json"),
    "autosave= is for one process": lambda: Loader(Pipe.of([1, 2]), world=TWO, autosave="all.json"),
    "batch(as_=...) needs rows of a frame": lambda: Pipe.of([1]).batch(2, as_="torch"),
    "... is set, so ... has started this process": lambda: explain({"FLUX_TASK_RANK": "1"}, {}),
    "... samples cannot be shared among ... ranks": lambda: read(Pipe.of([1]).batch(1), world=TWO),
    "IterableWrapper holds an iterator": used_up,
    "weighted() needs random access": lambda: list(STREAM.weighted([1.0] * 4)),
    "ops after the division decide": lambda: read(Pipe.of(range(9)).filter(bool).batch(2), world=TWO),
    "collate() takes lists of samples": lambda: read(Pipe.of([1]).collate()),
    "these tables do not have the same columns": other_columns,
    "... cannot be sent to a worker process": lambda: read(Pipe.of(Locked()), workers=1),
    "a sample of type ... cannot travel": lambda: read(Pipe.of([1]).map(locked), **FORK),
    "... takes ... bytes of memory or more": large_image,
    "... is not installed; it comes with": lambda: _raise(missing("arrow", "pyarrow")),
    "the length of this loader is not known": lambda: len(Loader(STREAM)),
    "the length of this pipe is not known": lambda: len(STREAM),
    "this loader is closed": closed,
    "this iterator belongs to process": in_a_copy,
    "worker ... (process ...) ...;": lambda: read(Pipe.of([1]).map(dies), restarts=0, **FORK),
    "the sample at position ... ended its worker twice": lambda: read(Pipe.of([1]).map(dies), **FORK),
    "an op on a whole batch ended its worker twice": lambda: read(Pipe.of([1]).batch(1).map(dies), **FORK),
    "the worker that reads a stream": lambda: read(Pipe.of(deadly), **FORK),
    "nothing arrived within ... seconds": lambda: read(Pipe.of([1]).map(hangs), timeout=0.3, **FORK),
    "... samples have failed": lambda: read(Pipe.of([1, 2]).map(fails), on_error=Budget(count=1)),
    "this snapshot is of another pipe: op": other_op,
    "this snapshot is of another pipe: it had": other_length,
    "the snapshot was taken with seed=": lambda: resumed({}, seed=2),
    "the snapshot was taken with strands=": lambda: resumed({}, strands=3),
    "the snapshot counts batches of": other_batches,
    "the snapshot stands at sample": shorter,
    "this is not a whole snapshot": without_version,
    "snapshot version ... is not known": lambda: resumed({"version": 99}),
}
"""The beginning of a message of the page -> something that raises it."""

# What it takes to see these is more than a line: (test, what it looks for).
ELSEWHERE = {
    "this loader was closed while it was being read": ("faults/test_lifecycle.py", "closed while"),
    "workers end while they start": ("faults/test_crashes.py", "while they start"),
    "DataLoader timed out after": ("doors/test_torch_contract.py", "timed out after"),
    "no step of this epoch can be made": ("ranks/test_uneven.py", "no step of this epoch can be made"),
    "... samples are left after the ops": ("plan/test_counted.py", "samples are left"),
    "position ... has ...": ("ranks/test_counted_rows.py", "decide by the sample alone"),
    "the snapshot is of headrace 0.2": ("cli/test_snapshot.py", "on several ranks"),
    "rank ... was given another": ("ranks/test_ranks.py", "RanksDisagree"),
}


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("beginning", list(RAISED))
def test_a_message_of_the_page_is_what_the_error_says(beginning: str) -> None:
    (message,) = [m for m in MESSAGES if m.startswith(beginning)]
    kind = getattr(errors, MESSAGES[message])
    pattern = "(.|\n)*".join(map(re.escape, message.split("...")))
    with pytest.raises(kind) as caught:
        RAISED[beginning]()
    assert re.fullmatch(pattern, str(caught.value)), str(caught.value)


def test_every_message_of_an_error_is_raised_by_a_test() -> None:
    seen = [*RAISED, *ELSEWHERE]
    for message, section in MESSAGES.items():
        if section != "Warnings and the log":
            assert sum(message.startswith(beginning) for beginning in seen) == 1, message
    for path, words in ELSEWHERE.values():
        assert words in (ROOT / "tests" / path).read_text()
