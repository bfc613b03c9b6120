"""Headrace's own Loader, and its DataLoader2 for graphs, with nothing set that a user would not set."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from benchmarks import graphs
from benchmarks.case import Dataset, Epochs, Resumable, Start
from benchmarks.media import FRAMES, SIDE, Job
from benchmarks.tarfiles import Decode, FromDict
from headrace import (
    DataLoader2,
    InProcessReadingService,
    IterableWrapper,
    Loader,
    MultiProcessingReadingService,
    Pipe,
    share,
)
from headrace.sources.stream import StreamWrapper

METHOD: dict[Start, Literal["fork", "spawn"] | None] = {"fork": "fork", "spawn": "spawn", "clean": None}


class Saved:
    """A Loader, with the name that cases have for its state."""

    def __init__(self, loader: "Loader[Any]") -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def state(self) -> Any:
        return self.loader.state_dict()


class Decoded:
    """`(path, open file)` as `(path, array)`, by the job's own function."""

    def __init__(self, job: Job) -> None:
        self.sample = job.sample

    def __call__(self, file: tuple[str, StreamWrapper]) -> tuple[str, Any]:
        path, stream = file
        with stream:
            return path, self.sample(stream.read())


class HeadraceLoader:
    share = staticmethod(share)

    def batches(
        self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return self._loader(Pipe.of(dataset).batch(size).collate(), workers, start)

    def filtered(
        self, dataset: Dataset, keep: Callable[[Any], bool], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        return self._loader(Pipe.of(dataset).filter(keep).batch(size).collate(), workers, "fork")

    def columns(
        self, data: Any, *, size: int, workers: int, whole: bool, start: Start = "fork"
    ) -> AbstractContextManager[Epochs]:
        return self._loader(Pipe.of(data).shuffle().batch(size), workers, start)

    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> AbstractContextManager[Epochs]:
        # The memory has room for a tenth: 4 % of the row groups stand open, and as many again where they change.
        pipe = Pipe.parquet(paths, memory=memory).shuffle(quality=0.04)
        return Loader(pipe.batch(size), workers=2, kind="thread")

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        pipe = Pipe.stored(list(paths)).map(FromDict(decode)).batch(size).collate()
        return self._loader(pipe, workers, "fork")

    def media(self, job: Job, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        files = Pipe.files(job.paths).shuffle().open_files("rb")
        if job.kind == "photos":
            samples: Pipe[Any] = files.decode().random_resized_crop(SIDE, resize="torch").random_flip()
        elif job.kind == "clips":
            samples = files.decode(frames=FRAMES)
        else:
            samples = files.map(Decoded(job))
        return self._loader(samples.batch(size).collate(), workers, "fork")

    @contextmanager
    def resumable(self, dataset: Dataset, *, size: int, workers: int, state: Any = None) -> Iterator[Resumable]:
        pipe = Pipe.of(dataset).shuffle().batch(size).collate()
        with Loader(pipe, workers=workers, seed=7, start_method="fork") as loader:
            if state is not None:
                loader.load_state_dict(state)
            yield Saved(loader)

    def stored(self, name: str, path: str, *, size: int, workers: int) -> AbstractContextManager[Epochs]:
        return self._loader(self._stored(name, path, size), workers, "clean")

    def resumes(self, name: str, path: str, *, size: int, workers: int) -> float:
        """Seconds that the first batch after a snapshot in the middle takes longer than the first of all."""
        pipe = self._stored(name, path, size)
        with Loader(pipe, workers=workers) as loader:
            steps = sum(1 for _ in loader)
            batches = iter(loader)
            for _ in range(steps // 2):
                next(batches)
            middle = loader.state_dict()
        over = []
        for _ in range(5):
            seconds = []
            for state in (None, middle):
                began = time.perf_counter()
                with Loader(self._stored(name, path, size), workers=workers) as again:
                    if state is not None:
                        again.load_state_dict(state)
                    next(iter(again))
                    seconds.append(time.perf_counter() - began)
            over.append(seconds[1] - seconds[0])
        return sorted(over)[2]

    def _stored(self, name: str, path: str, size: int) -> Any:
        from benchmarks.formats import DECODERS, from_columns
        from benchmarks.tarfiles import decode

        if name == "tar":
            return Pipe.stored(path).map(FromDict(decode)).batch(size).collate()
        if name == "lance":
            return Pipe.stored(path).shuffle().batch(size).map(from_columns)
        return Pipe.stored(path).shuffle().map(DECODERS[name]).batch(size).collate()

    def graph(
        self, name: str, paths: Sequence[str], body: Callable[[Any], Any], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        service = MultiProcessingReadingService(num_workers=workers) if workers else InProcessReadingService()
        return DataLoader2(graphs.build(name, IterableWrapper, paths, body, size), reading_service=service)

    def packed(
        self, sources: Sequence[list[str]], weights: Sequence[float] | None, tokenizer: Any, *, length: int, size: int,
        workers: int, how: Literal["split", "fit"] = "split",
    ) -> AbstractContextManager[Epochs]:  # fmt: skip
        first, *others = (Pipe.of(texts) if weights is None else Pipe.of(texts).shuffle() for texts in sources)
        texts: Pipe[Any] = first.mix(*others, weights=weights, ends="first") if others else first
        return Loader(texts.tokenize(tokenizer).pack(length, how=how).batch(size).collate(), workers=workers)

    def _loader(self, pipe: Any, workers: int, start: Start) -> AbstractContextManager[Epochs]:
        if workers == 0:
            return Loader(pipe)
        return Loader(pipe, workers=workers, kind="process", start_method=METHOD[start])


SUBJECT = HeadraceLoader()
