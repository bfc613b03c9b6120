"""Decoders: content by the end of its file's name.

A decoder is a function `(extension, data) -> value`, with None for "not mine". Text, numbers and JSON need nothing;
images need Pillow, audio other than wav soundfile, video PyAV (all in the extra `media`). Everything arrives as
Python values and numpy arrays. Pickles are never loaded: opening a data file must not be able to run code.
"""

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from headrace.errors import BadOption
from headrace.sources.extra import need

Decoder = Callable[[str, Any], Any]

TEXT = frozenset(("txt", "text", "transcript"))
NUMBER = frozenset(("cls", "cls2", "class", "count", "index", "inx", "id"))
IMAGE = frozenset(("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "bmp", "gif", "tif", "tiff", "webp"))
AUDIO = frozenset(("wav", "flac", "ogg", "opus", "mp3", "aif", "aiff"))
CONTAINER = {
    **dict.fromkeys(("mp4", "m4v", "mov"), "mov"),
    **dict.fromkeys(("mkv", "webm"), "matroska"),
    **dict.fromkeys(("mpg", "mpeg"), "mpeg"),
    "avi": "avi",
}
"""Video is read as the container that its ending promises. Left to guess, FFmpeg takes text for a playlist or a session
description, and then opens the files and ports that the text names."""
VIDEO = frozenset(CONTAINER)
KINDS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "TIFF")
"""What an image may be, whatever its ending: a PNG called .jpg is common. Pillow knows more, such as PostScript, for
which it starts another program. (WEBP too, where Pillow was built with it.)"""
_MODES = {"l": "L", "rgb": "RGB", "rgba": "RGBA"}


def extension_of(path: str) -> str:
    """The end of a file name without its dot, in small letters."""
    return os.path.splitext(path)[1][1:].lower()


def decode_basic(extension: str, data: Any) -> Any:
    """Text, whole numbers, JSON and numpy arrays."""
    if extension in TEXT:
        return data.decode("utf-8")
    if extension in NUMBER:
        return int(data)
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("npy", "npz"):
        import numpy as np

        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded if extension == "npy" else dict(loaded)
    return None


@dataclass(frozen=True, slots=True)
class Images:
    """Decodes images. `form`: l8 rgb8 rgba8 (uint8), l rgb rgba (float32 from 0 to 1), pil pill pilrgb pilrgba.

    Arrays are (height, width, channels); grey ones (height, width).
    """

    form: str = "rgb8"

    def __post_init__(self) -> None:
        if self._mode() is None and self.form != "pil":
            raise BadOption(
                f"images={self.form!r} is none of l8 rgb8 rgba8 l rgb rgba pil pill pilrgb pilrgba"
                + ("; take arrays and turn them into tensors with .map()" if self.form.startswith("torch") else "")
            )

    def _mode(self) -> str | None:
        return _MODES.get(self.form.removeprefix("pil").removesuffix("8"))

    def __call__(self, extension: str, data: Any) -> Any:
        if extension not in IMAGE:
            return None
        with need("media", "PIL.Image").open(io.BytesIO(data), formats=_kinds()) as opened:
            mode = self._mode()
            image = opened.convert(mode) if mode is not None else opened.copy()
        if self.form.startswith("pil"):
            return image
        import numpy as np

        array = np.asarray(image)
        return array if self.form.endswith("8") else array.astype(np.float32) / np.float32(255)


@cache
def _kinds() -> tuple[str, ...]:
    return (*KINDS, "WEBP") if need("media", "PIL.features").check("webp") else KINDS


def decode_audio(extension: str, data: Any) -> Any:
    """`(samples, rate)`: float32 from -1 to 1, (frames, channels)."""
    if extension not in AUDIO:
        return None
    if extension == "wav" and (pcm := _wave(data)) is not None:
        return pcm
    return need("media", "soundfile").read(io.BytesIO(data), dtype="float32", always_2d=True)


def _wave(data: bytes) -> Any:
    """Plain PCM without any other package; None for what only soundfile reads."""
    import wave

    import numpy as np

    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = file.readframes(file.getnframes())
    except wave.Error:
        return None
    if width == 1:
        samples = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4").ravel().astype(np.float32) / 2**31
    else:
        samples = np.frombuffer(raw, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return samples.reshape(-1, channels), rate


def decode_video(extension: str, data: Any) -> Any:
    """`(frames, rate)`: uint8, (frames, height, width, 3)."""
    if extension not in VIDEO:
        return None
    import numpy as np

    av = need("media", "av")
    kind = "mpegts" if CONTAINER[extension] == "mpeg" and data[:1] == b"G" else CONTAINER[extension]
    try:
        with av.open(io.BytesIO(data), format=kind, options={"protocol_whitelist": "none"}) as container:
            rate = container.streams.video[0].average_rate
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    except (av.FFmpegError, IndexError) as error:
        raise ValueError(
            f"the data is no {extension} video: {error}; what has another container than its ending says needs a "
            "decoder of your own, given to .decode()"
        ) from error
    return np.stack(frames) if frames else np.zeros((0, 0, 0, 3), np.uint8), float(rate) if rate else None


def standard(images: str = "rgb8") -> tuple[Decoder, ...]:
    """All of them."""
    return (decode_basic, Images(images), decode_audio, decode_video)


def run(decoders: tuple[Decoder, ...], extension: str, data: Any) -> Any:
    """The first answer; the data itself if no decoder has one. Streams are read and closed."""
    if hasattr(data, "read"):
        stream = data
        try:
            data = stream.read()
        finally:
            stream.close()
    for decoder in decoders:
        value = decoder(extension, data)
        if value is not None:
            return value
    return data
