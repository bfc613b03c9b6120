"""A subject without workers: a loop that stacks samples, so that the cases can be tried without any loader."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from benchmarks.case import Dataset, Epochs, Start
from benchmarks.collate import stack
from benchmarks.media import FileSet, Job
from benchmarks.tarfiles import Decode, read
from benchmarks.text import Encode, Joined


class Loop:
    def __init__(self, samples: Callable[[], Iterator[Any]], size: int) -> None:
        self.samples = samples
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        group: list[Any] = []
        for sample in self.samples():
            group.append(sample)
            if len(group) == self.size:
                yield stack(group)
                group = []


class PlainLoop:
    share = staticmethod(list)

    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return nullcontext(Loop(lambda: (dataset[index] for index in range(len(dataset))), size))

    def filtered(
        self, dataset: Dataset, keep: Callable[[Any], bool], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        samples = lambda: (dataset[index] for index in range(len(dataset)) if keep(dataset[index]))  # noqa: E731
        return nullcontext(Loop(samples, size))

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return nullcontext(_Slices(data, size))

    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Epochs]:
        import pyarrow.parquet as pq

        table = pq.read_table(paths)
        return nullcontext(_Slices({name: table.column(name).to_numpy() for name in table.column_names}, size))

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        samples = lambda: (decode(*pair) for path in paths for pair in read(path))  # noqa: E731
        return nullcontext(Loop(samples, size))

    def media(self, job: Job, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        return self.batches(FileSet(job), size=size, workers=workers)

    @contextmanager
    def resumable(self, dataset: Dataset, *, size: int, workers: int, state: Any = None) -> Iterator[Any]:
        yield _Counted(dataset, size, state or 0)

    def packed(
        self, sources: Sequence[list[str]], weights: Any, tokenizer: Any, *, length: int, size: int, workers: int,
        how: str = "split",
    ) -> AbstractContextManager[Epochs]:  # fmt: skip
        encode = Encode(tokenizer)
        of = [encode(text)["tokens"] for texts in sources for text in texts]
        if how == "fit":  # one document a row
            alone = [np.pad(tokens, (0, length - len(tokens)), constant_values=-1) for tokens in of]
            return nullcontext(Loop(lambda: iter([{"tokens": row, "mask": row >= 0} for row in alone]), size))
        rows = Joined(length)({"tokens": of})
        return nullcontext(Loop(lambda: iter([{"tokens": np.array(row)} for row in rows["tokens"]]), size))

    def graph(
        self, name: str, paths: Sequence[str], body: Callable[[Any], Any], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        def samples() -> Iterator[Any]:
            if name == "range":
                yield from range(int(paths[0]))
                return
            for path in paths:
                with open(path, newline="", encoding="utf-8") as file:
                    yield from map(body, csv.reader(file))

        return nullcontext(Loop(samples, size))

    def stored(self, name: str, path: str, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        """Nobody but us reads all formats."""
        from benchmarks.subjects.headrace_loader import SUBJECT as OURS

        return OURS.stored(name, path, size=size, workers=0)

    def resumes(self, name: str, path: str, *, size: int, workers: int) -> float:
        from benchmarks.subjects.headrace_loader import SUBJECT as OURS

        return OURS.resumes(name, path, size=size, workers=0)


class _Counted:
    """A loop that knows how many batches it gave."""

    def __init__(self, dataset: Dataset, size: int, given: int) -> None:
        self.dataset, self.size, self.given = dataset, size, given

    def __iter__(self) -> Iterator[Any]:
        while self.given * self.size < len(self.dataset):
            start = self.given * self.size
            self.given += 1
            yield stack([self.dataset[index] for index in range(start, start + self.size)])

    def state(self) -> int:
        return self.given


class _Slices:
    def __init__(self, data: Any, size: int) -> None:
        self.data = data
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.data["key"]), self.size):
            yield {"key": np.asarray(self.data["key"])[start : start + self.size]}


SUBJECT = PlainLoop()
