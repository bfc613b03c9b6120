"""Report: one line that lives while a loader runs.

    for batch in progress(loader): train(batch)

    epoch 0  120/5 000  3 840 samples/s  waiting 71 %  the loader sets the pace: map(decode)

The line is drawn by rich on a terminal, by tqdm in a notebook or where rich is not installed, plainly where neither
is, and not at all where nobody looks: then the loader is iterated as it is. It is drawn between batches, at most four
times a second, without a thread. Names of ops that are too long lose their beginning.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TextIO, TypeVar

from headrace.loader import Loader, Stats
from headrace.observe.units import WAITING, count, group_of, op_of

T = TypeVar("T")
EVERY = 0.25
NAME = 40
"""Columns for the name of an op."""


class ProgressLine(Protocol):
    """Something that shows a text in place of the last one."""

    def show(self, text: str) -> None: ...
    def close(self) -> None: ...


def progress(loader: Loader[T], *, file: TextIO | None = None, every: float = EVERY) -> "Progress[T]":
    """Iterates `loader`, epoch by epoch, with a line that says how it goes."""
    return Progress(loader, file or sys.stderr, every)


class Progress(Generic[T]):
    """A loader with a line."""

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
        size, total = group_of(loader.pipe), known(loader)
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


def known(loader: Loader[Any]) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def text(before: Stats, after: Stats, seconds: float, taken: int, total: int | None, size: int) -> str:
    """What happened between two looks, `seconds` apart."""
    rate = (after.batches - before.batches) / seconds if seconds > 0 else 0.0
    waiting = min(1.0, (after.waited - before.waited) / seconds) if seconds > 0 else 0.0
    of = "" if total is None else f"/{count(total)}"
    unit = f"{count(rate * size)} samples/s" if rate * size >= 10 else f"{rate * size:.2f} samples/s"
    return f"{count(taken)}{of}  {unit}  waiting {waiting:.0%}  {verdict(before, after, waiting)}".replace("%", " %")


def verdict(before: Stats, after: Stats, waiting: float) -> str:
    """Who sets the pace."""
    if waiting < WAITING:
        return "the training loop sets the pace"
    spent = {name: seconds - before.ops.get(name, 0.0) for name, seconds in after.ops.items()}
    busy = sum(after.busy.values()) - sum(before.busy.values())
    if spent:
        spent["transport"] = busy - sum(spent.values())
    worst = max(spent, key=spent.__getitem__, default=None)
    # Few tickets are timed: right after the start nobody knows yet.
    return "the loader sets the pace" + ("" if worst is None or spent[worst] <= 0 else f": {_end_of(op_of(worst))}")


def _end_of(name: str) -> str:
    """A long name without its beginning: what tells two functions of one module apart stands at the end."""
    return name if len(name) <= NAME else f"…{name[1 - NAME :]}"


# --- where the line is drawn ------------------------------------------------------------------------------------------


def choose(file: TextIO) -> ProgressLine | None:
    """The best line for this place, or None where nobody looks."""
    if "ipykernel" in sys.modules:
        return _first(lambda: TqdmLine(None))
    if not file.isatty():
        return None
    return _first(lambda: RichLine(file), lambda: TqdmLine(file), lambda: PlainLine(file))


def _first(*makers: Any) -> ProgressLine | None:
    for make in makers:
        try:
            line: ProgressLine = make()
            return line
        except ModuleNotFoundError:
            continue
    return None


class RichLine:
    """A line of rich's."""

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
    """A line of tqdm's: in a file, or in the notebook that runs this."""

    def __init__(self, file: TextIO | None) -> None:
        from tqdm import auto, tqdm

        self._bar: Any = (auto.tqdm if file is None else tqdm)(bar_format="{desc}", file=file, leave=True)

    def show(self, text: str) -> None:
        self._bar.set_description_str(text, refresh=True)

    def close(self) -> None:
        self._bar.close()


class PlainLine:
    """A line of a terminal that is written over, without any package."""

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
