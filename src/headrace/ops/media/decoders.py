"""Decoders: functions `(extension, data) -> value`, with None for a file that is not theirs.

Text, numbers and JSON need no package; images need Pillow (`images`), audio other than wav soundfile, video PyAV
(`video`), all in the extra `media`. Values are Python values and numpy arrays. Pickles are never loaded: opening a data
file must not be able to run code.
"""

import io
import json
import os
import wave
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.ops.media.images import Images
from headrace.ops.media.video import Videos
from headrace.sources.extra import import_extra

Decoder = Callable[[str, Any], Any]

TEXT = frozenset(("txt", "text", "transcript"))
NUMBER = frozenset(("cls", "cls2", "class", "count", "index", "inx", "id"))
AUDIO = frozenset(("wav", "flac", "ogg", "opus", "mp3", "aif", "aiff"))


def extension_of(path: str) -> str:
    """The extension of a file name without its dot, in small letters."""
    return os.path.splitext(path)[1][1:].lower()


def decode_basic(extension: str, data: Any) -> Any:
    """Text, whole numbers, JSON and numpy arrays."""
    if extension in TEXT:
        return data if isinstance(data, str) else data.decode("utf-8")
    if extension in NUMBER:
        return int(data)
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("npy", "npz"):
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded if extension == "npy" else dict(loaded)
    return None


def decode_audio(extension: str, data: Any) -> Any:
    """`(samples, rate)`: float32 from -1 to 1, (frames, channels)."""
    if extension not in AUDIO:
        return None
    if extension == "wav" and (pcm := _wave(data)) is not None:
        return pcm
    return import_extra("media", "soundfile").read(io.BytesIO(data), dtype="float32", always_2d=True)


def _wave(data: bytes) -> Any:
    """Uncompressed audio, which needs no other package; None for other files, which soundfile reads."""
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


def standard_decoders(images: Images, videos: Videos) -> tuple[Decoder, ...]:
    """Decoders of all known kinds of files."""
    return (decode_basic, images, decode_audio, videos)


def decode_with(decoders: tuple[Decoder, ...], extension: str, data: Any) -> Any:
    """The value of the first decoder that has one; the data itself if none has. Streams are read and closed."""
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
