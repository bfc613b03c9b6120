"""Video: all frames, or a few of them by seeking to the key frame before each.

torchcodec decodes mp4 and mov where it and FFmpeg are installed, PyAV everything else. A video is opened as the
container of its ending: left to guess, FFmpeg takes text for a playlist or a session description, and then opens the
files and ports that the text names. PyAV can be told the container. torchcodec guesses it, so it gets only data that
begins like an mp4 file, for which no other guess scores as high.
"""

import importlib
import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from headrace.errors import BadOption, TooLarge
from headrace.op import place
from headrace.sources.extra import import_extra
from headrace.sources.limit import LARGEST, check_limit

CONTAINER = {
    **dict.fromkeys(("mp4", "m4v", "mov"), "mov"),
    **dict.fromkeys(("mkv", "webm"), "matroska"),
    **dict.fromkeys(("mpg", "mpeg"), "mpeg"),
    "avi": "avi",
}
VIDEO = frozenset(CONTAINER)
HELD = 8
"""Frames for which there must be room, because a decoder keeps that many for itself."""
PICKS = ("random", "even", "run")
log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class Videos:
    """Decodes video: `(frames, rate)`, uint8, (frames, height, width, 3).

    `frames` of each, or all (None). `pick`: at "random" places, in order; "even"ly spread; a "run" of neighbours.
    A video that has fewer gives some of them several times.
    """

    frames: int | None = None
    pick: str = "random"
    max_bytes: int = LARGEST

    def __post_init__(self) -> None:
        if self.frames is not None and (type(self.frames) is not int or self.frames < 1):
            raise BadOption(f"frames= takes a whole number >= 1, not {self.frames!r}")
        if self.pick not in PICKS:
            raise BadOption(f"pick={self.pick!r} is none of {' '.join(PICKS)}")

    def __call__(self, extension: str, data: Any) -> Any:
        if extension not in VIDEO:
            return None
        if self.frames is None:
            return self._all(extension, data)
        if CONTAINER[extension] == "mov" and data[:1] == b"\0" and data[4:8] == b"ftyp" and (codec := _torchcodec()):
            return self._by_torchcodec(codec, data)
        return self._by_seeking(extension, data)

    def chosen(self, count: int) -> list[int]:
        """The numbers of the frames that are taken, out of `count`."""
        wanted = self.frames
        assert wanted is not None
        if wanted >= count or self.pick == "even":
            return [min(count - 1, (2 * i + 1) * count // (2 * wanted)) for i in range(wanted)]
        rng = place.rng()
        if self.pick == "run":
            first = int(rng.integers(count - wanted + 1))
            return list(range(first, first + wanted))
        return sorted(rng.choice(count, wanted, replace=False).tolist())

    def _by_torchcodec(self, codec: Any, data: Any) -> Any:
        try:
            decoder = codec.VideoDecoder(data, dimension_order="NHWC", num_ffmpeg_threads=1)
            about = decoder.metadata
            self._check(about.width, about.height, self.frames or 1)
            found = decoder.get_frames_at(self.chosen(about.num_frames)).data.numpy()
        except TooLarge:
            raise
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"the video cannot be decoded: {error}") from error
        out = place.row(found.shape, found.dtype)
        out[...] = found
        return out, decoder.metadata.average_fps

    def _check(self, width: int | None, height: int | None, frames: int) -> None:
        """Raise if so many frames of this size, or those that a decoder keeps for itself, are more than they may be."""
        pixels = 3 * (width or 0) * (height or 0)
        check_limit(max(frames, HELD) * pixels, self.max_bytes, f"video of {width} x {height} pixels, {frames} frames,")

    def _stream(self, container: Any) -> Any:
        """The video of a container, whose decoder refuses larger frames than the container tells of."""
        stream = container.streams.video[0]
        self._check(stream.codec_context.width, stream.codec_context.height, self.frames or 1)
        stream.codec_context.options = {"max_pixels": str(self.max_bytes // (3 * HELD))}
        return stream

    def _all(self, extension: str, data: Any) -> Any:
        with _container(extension, data) as container:
            stream = self._stream(container)
            frames: list[Any] = []
            for frame in container.decode(stream):
                self._check(frame.width, frame.height, len(frames) + 1)
                frames.append(frame.to_ndarray(format="rgb24"))
            return (np.stack(frames), _rate(stream)) if frames else _no_frames(stream)

    def _by_seeking(self, extension: str, data: Any) -> Any:
        with _container(extension, data) as container:
            stream = self._stream(container)
            packets = sorted((p.pts, p.is_keyframe) for p in container.demux(stream) if p.pts is not None)
            if not packets:
                return _no_frames(stream)
            keys = [pts for pts, is_key in packets if is_key]
            targets = [packets[i][0] for i in self.chosen(len(packets))]
            out: Any = None
            at, frames, frame = -1, iter(()), None
            for number, target in enumerate(targets):
                key = max((pts for pts in keys if pts <= target), default=keys[0])
                if frame is None or frame.pts > target or key > frame.pts:
                    container.seek(key, stream=stream)
                    frames = container.decode(stream)
                    frame = next(frames)
                while frame.pts is None or frame.pts < target:
                    frame = next(frames)
                if at != target:
                    pixels, at = frame.to_ndarray(format="rgb24"), target
                if out is None:
                    out = place.row((len(targets), *pixels.shape), "u1")
                out[number] = pixels
            return out, _rate(stream)


def _no_frames(stream: Any) -> Any:
    return np.zeros((0, 0, 0, 3), np.uint8), _rate(stream)


def _rate(stream: Any) -> float | None:
    return float(stream.average_rate) if stream.average_rate else None


@contextmanager
def _container(extension: str, data: Any) -> Iterator[Any]:
    av = import_extra("media", "av")
    kind = "mpegts" if CONTAINER[extension] == "mpeg" and data[:1] == b"G" else CONTAINER[extension]
    try:
        with av.open(io.BytesIO(data), format=kind, options={"protocol_whitelist": "none"}) as container:
            yield container
    except (av.FFmpegError, IndexError, StopIteration) as error:
        raise ValueError(
            f"the data is no {extension} video: {error}; what has another container than its ending says needs a "
            "decoder of your own, given to .decode()"
        ) from error


@cache
def _torchcodec() -> Any:
    """torchcodec's decoders, or None where they are not installed, do not fit torch, or find no FFmpeg."""
    try:
        return importlib.import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        hint = "faster with: pip install 'headrace[video]', in a version that fits torch, and FFmpeg's libraries"
        log.info("torchcodec cannot be used (%s): PyAV decodes video; %s", reason or type(error).__name__, hint)
        return None
