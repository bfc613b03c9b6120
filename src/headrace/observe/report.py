"""A line of progress while a loader runs.

    for batch in progress(loader): train(batch)

    epoch 0  120/5 000  3 840 samples/s  waiting 71 %  the loader sets the pace: map(decode)

The line is drawn by rich on a terminal, by tqdm in a notebook or where rich is not installed, plainly where neither
is. Where the output is a log file there is no line, and the loader is iterated as it is. It is drawn between batches,
at most four times a second, without a thread. Names of ops that are too long lose their beginning.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, Protocol, TextIO, TypeVar

from headrace.loader import Loader, Stats
from headrace.observe.units import WAITING, count, group_of, op_of

T = TypeVar("T")
EVERY = 0.25
NAME = 40
"""Columns for the name of an op."""


class ProgressLine(Protocol):
    """Shows a text in place of the one before."""

    def show(self, text: str) -> None: ...
    def close(self) -> None: ...


def progress(loader: Loader[T], *, file: TextIO | None = None, every: float = EVERY) -> "Progress[T]":
    """Iterates `loader`, epoch by epoch, with a line that says how it goes."""
    return Progress(loader, file or sys.stderr, every)


class Progress(Generic[T]):
    """Iterates a loader and shows how it goes."""

    def __init__(self, loader: Loader[T], file: TextIO, every: float) -> None:
        self._loader = loader
        self._file = file
        self._every = every

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[T]:
        line = choose(self._file)
        return iter(self._loader) if line is None else self._shown(line)

    def _shown(self, line: ProgressLine) -> Iterator[T]:
        loader = self._loader
        size, total = group_of(loader.pipe), length(loader)
        epoch = loader.epoch
        began = shown = time.perf_counter()
        first = before = loader.stats()
        taken = 0
        try:
            for batch in loader:
                taken += 1
                now = time.perf_counter()
                if now - shown >= self._every:
                    after = loader.stats()
                    line.show(f"epoch {epoch}  {text(before, after, now - shown, taken, total, size)}")
                    before, shown = after, now
                yield batch
            seconds = time.perf_counter() - began
            line.show(f"epoch {epoch}  {text(first, loader.stats(), seconds, taken, total, size)}")
        finally:
            line.close()


def length(loader: Loader[Any]) -> int | None:
    """Batches of an epoch, if that is known in advance."""
    try:
        return len(loader)
    except TypeError:
        return None


def text(before: Stats, after: Stats, seconds: float, taken: int, total: int | None, size: int) -> str:
    """What happened between two `stats()` that were taken `seconds` apart."""
    rate = (after.batches - before.batches) / seconds if seconds > 0 else 0.0
    waiting = min(1.0, (after.waited - before.waited) / seconds) if seconds > 0 else 0.0
    of = "" if total is None else f"/{count(total)}"
    unit = f"{count(rate * size)} samples/s" if rate * size >= 10 else f"{rate * size:.2f} samples/s"
    return f"{count(taken)}{of}  {unit}  waiting {100 * waiting:.0f} %  {verdict(before, after, waiting)}"


def verdict(before: Stats, after: Stats, waiting: float) -> str:
    """Which side sets the pace, the training loop or the loader; of the loader, the op that takes longest."""
    if waiting < WAITING:
        return "the training loop sets the pace"
    spent = {name: seconds - before.ops.get(name, 0.0) for name, seconds in after.ops.items()}
    busy = sum(after.busy.values()) - sum(before.busy.values())
    if spent:
        spent["transport"] = busy - sum(spent.values())
    worst = max(spent, key=spent.__getitem__, default=None)
    # One ticket in sixteen is timed: right after the start no op has a time yet.
    return "the loader sets the pace" + ("" if worst is None or spent[worst] <= 0 else f": {_end_of(op_of(worst))}")


def _end_of(name: str) -> str:
    """A long name without its beginning: two functions of one module differ at the end."""
    return name if len(name) <= NAME else f"…{name[1 - NAME :]}"


# --- where the line is drawn ------------------------------------------------------------------------------------------


def choose(file: TextIO) -> ProgressLine | None:
    """The best line that can be shown here; None where the output is no terminal and no notebook."""
    notebook = "ipykernel" in sys.modules
    if not notebook and not file.isatty():
        return None
    kinds: list[Callable[[], ProgressLine]] = [lambda: RichLine(file), lambda: TqdmLine(file), lambda: PlainLine(file)]
    for make in [lambda: TqdmLine(None)] if notebook else kinds:
        with suppress(ModuleNotFoundError):
            return make()
    return None


class RichLine:
    """A line drawn by rich."""

    def __init__(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=file), auto_refresh=False, transient=False)
        self._started = False

    def show(self, text: str) -> None:
        from rich.text import Text

        if not self._started:
            self._live.start()
            self._started = True
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        if self._started:
            self._live.stop()


class TqdmLine:
    """A line drawn by tqdm: in a terminal, or with `file` None in the notebook that runs this."""

    def __init__(self, file: TextIO | None) -> None:
        from tqdm import auto, tqdm

        self._bar: Any = (auto.tqdm if file is None else tqdm)(bar_format="{desc}", file=file, leave=True)

    def show(self, text: str) -> None:
        self._bar.set_description_str(text, refresh=True)

    def close(self) -> None:
        self._bar.close()


class PlainLine:
    """A line in a terminal that is written over; needs no package."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._shown = False

    def show(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._file.write(f"\r{text[:width]:{width}}")
        self._file.flush()
        self._shown = True

    def close(self) -> None:
        if self._shown:
            self._file.write("\n")
            self._file.flush()
