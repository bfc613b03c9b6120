"""The words of a benchmark: a case asks one question, a target says which answer would be good enough.

A module in `cases/` holds `CASE` and `measure(subject, effort)`. `measure` runs in a process of its own and answers
with figures by name; a figure that several subjects give is compared within one round. A wrong stream (a lost batch,
another order) raises: a fast wrong answer is no answer.

A case needs one method of a subject (`needs`); `roster.py` lists which subject has which. The methods:
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from benchmarks.media import Job

Figures = dict[str, float]
Start = Literal["fork", "spawn", "clean"]  # clean: what the subject itself does for a process that is not safe to fork


class Dataset(Sized, Protocol):
    """Map-style data: the one object that every subject is given."""

    def __getitem__(self, index: int, /) -> Any: ...


class Epochs(Protocol):
    """A running loader: every `iter()` is one epoch, and the workers live from the first to the last."""

    def __iter__(self) -> Iterator[Any]: ...


class Resumable(Epochs, Protocol):
    """A running loader that says where it stands."""

    def state(self) -> Any: ...


class Subject(Protocol):
    """A loader under test; few have all of this."""

    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]: ...

    def filtered(
        self, dataset: Dataset, keep: Callable[[Any], bool], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]: ...

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        """Shuffled batches of a frame; `whole`: fetched as batches, by whatever way the subject has for that."""
        ...

    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Epochs]:
        """Shuffled batches of Parquet files, with about `memory` bytes, which are `rows` rows, to shuffle in."""
        ...

    def tar(
        self, paths: Sequence[str], decode: Callable[[bytes, bytes], Any], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        """Batches of `decode(bin, num)`, for samples that are neighbours `KEY.bin`, `KEY.num` of a tar file."""
        ...

    def media(self, job: "Job", *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        """Batches of `(paths, arrays)` of a job of `benchmarks.media`, every file once an epoch, in random order."""
        ...

    def resumable(
        self, dataset: Dataset, *, size: int, workers: int, state: Any = None
    ) -> AbstractContextManager[Resumable]:
        """Shuffled batches, from the start or from a state taken between two batches."""
        ...

    def stored(self, name: str, path: str, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        """Batches of the samples of a stored format (`benchmarks.formats`), shuffled where its readers can."""
        ...

    def graph(
        self, name: str, paths: Sequence[str], body: Callable[[Any], Any], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        """A graph of DataPipes by its name in `benchmarks.graphs`."""
        ...

    def packed(
        self, sources: Sequence[list[str]], weights: Sequence[float] | None, tokenizer: Any, *, length: int, size: int,
        workers: int, how: Literal["split", "fit"] = "split",
    ) -> AbstractContextManager[Epochs]:  # fmt: skip
        """Batches of rows of `length` tokens: `tokens`, and `mask` where rows are filled up. Of one source in its
        order, or of several, each shuffled, mixed by weight. With `how="fit"` documents stay whole."""
        ...


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: timed epochs go on for `seconds`, and data sets are `scale` times their usual length."""

    seconds: float = 2.0
    scale: float = 1.0

    def count(self, usual: int, least: int = 1) -> int:
        return max(least, round(usual * self.scale))


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table: a figure, or the ratio of two subjects' figures, and the bound that it should keep."""

    label: str
    figure: str
    unit: str
    ratio: tuple[str, str] | None = None  # (numerator, denominator); None: the figure of Headrace itself
    at_least: float | None = None
    at_most: float | None = None
    less: bool = False  # a time or a size: the smaller is the better
    ranked: bool = True  # False: says something of the machine, or of one subject only

    def keeps(self, value: float) -> bool | None:
        """Is the bound kept? None where the row has no bound."""
        if self.at_least is not None:
            return value >= self.at_least
        if self.at_most is not None:
            return value <= self.at_most
        return None


FASTER = ("headrace", "torch")  # a rate: how many times as fast
OF_TIME = ("headrace", "torch")  # a time: which part of torch's time
TIMES_LESS = ("torch", "headrace")  # a time: how many times less


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    question: str
    targets: tuple[Target, ...]
    subjects: tuple[str, ...] = ()  # empty: every subject that has what the case needs
    needs: str = "batches"
    peers: bool = True  # False: of interest beside torch only
    door: bool = False  # True: `headrace.DataLoader` should keep the bounds too
    deadline: float = 120.0
    why: Mapping[str, str] = field(default_factory=dict)  # why that subject ("*": any) is faster here, where it is


ONE_PROCESS = dict.fromkeys(
    ("spdl", "grain_threads", "nodes_threads"),
    "Its threads make a batch in the process that uses it, so that nothing crosses a boundary; work that holds the "
    "interpreter's lock gains nothing from them.",
)
