"""SPDL: one pipeline for all epochs, whose threads fetch and collate; its own parser of tar files, its own decoders."""

# mypy: disable-error-code="import-not-found, import-untyped"

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spdl import io as spdl_io
from spdl.io import iter_tarfile
from spdl.pipeline import PipelineBuilder

from benchmarks.case import Dataset, Epochs, Start
from benchmarks.collate import Fetch, Positions, stack
from benchmarks.media import FRAMES, RATE, SIDE, WINDOW_SECONDS, Job, random_box
from benchmarks.tarfiles import Decode


class Spdl:
    def batches(self, dataset: Dataset, *, size: int, workers: int, start: Start = "fork") -> Any:
        builder: Any = PipelineBuilder().add_source(Positions(len(dataset), size), continuous=True)
        builder.pipe(Fetch(dataset), concurrency=max(1, workers), output_order="input")
        return running(builder, workers)

    def tar(self, paths: Sequence[str], decode: Decode, *, size: int, workers: int) -> Any:
        builder: Any = PipelineBuilder().add_source(list(paths), continuous=True)
        builder.pipe(Samples(decode), concurrency=workers).aggregate(size).pipe(stack)
        return running(builder, workers + 1)

    def media(self, job: Job, *, size: int, workers: int) -> Any:
        builder: Any = PipelineBuilder().add_source(Reshuffled(job.paths), continuous=True)
        builder.pipe(DECODE[job.kind], concurrency=workers).aggregate(size).pipe(together)
        return running(builder, workers + 1)


class Reshuffled:
    """The files of an epoch, in another order each time."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[str]:
        return iter(random.sample(self.paths, len(self.paths)))


def photo(path: str) -> tuple[str, Any]:
    packets = spdl_io.demux_image(Path(path).read_bytes())
    top, left, height, width = random_box(packets.height, packets.width)
    flip = "hflip," if random.random() < 0.5 else ""
    wanted = f"crop={width}:{height}:{left}:{top},scale={SIDE}:{SIDE}:flags=bilinear,{flip}format=pix_fmts=rgb24"
    return path, spdl_io.to_numpy(spdl_io.convert_frames(spdl_io.decode_packets(packets, filter_desc=wanted)))


def sound(path: str) -> tuple[str, Any]:
    start = random.uniform(0, 7.9)
    wanted = spdl_io.get_audio_filter_desc(sample_fmt="flt", num_frames=WINDOW_SECONDS * RATE)
    packets = spdl_io.demux_audio(Path(path).read_bytes(), timestamp=(start, start + WINDOW_SECONDS + 0.1))
    return path, spdl_io.to_numpy(spdl_io.convert_frames(spdl_io.decode_packets(packets, filter_desc=wanted)))[:, 0]


def clip(path: str) -> tuple[str, Any]:
    packets = spdl_io.demux_video(Path(path).read_bytes())
    places = sorted(random.sample(range(len(packets)), FRAMES))
    frames = spdl_io.sample_decode_video(packets, places, filter_desc="format=pix_fmts=rgb24")
    return path, spdl_io.to_numpy(spdl_io.convert_frames(frames))


def together(samples: list[tuple[str, Any]]) -> tuple[list[str], Any]:
    return [path for path, _ in samples], stack([array for _, array in samples])


DECODE: dict[str, Callable[[str], tuple[str, Any]]] = {"photos": photo, "sound": sound, "clips": clip}


class Samples:
    """The samples of one tar file."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode

    def __call__(self, path: str) -> Iterator[Any]:
        with open(path, "rb") as file:
            content = b""
            for name, value in iter_tarfile(file):
                if name.endswith(".bin"):
                    content = value
                else:
                    yield self.decode(content, value)


@contextmanager
def running(builder: Any, threads: int) -> Iterator[Epochs]:
    pipeline = builder.add_sink(8).build(num_threads=max(1, threads))
    with pipeline.auto_stop():
        yield pipeline


SUBJECT = Spdl()
