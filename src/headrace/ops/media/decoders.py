"""Decoders: functions `(extension, data) -> value`, with None for a file that is not theirs.

Text, numbers and JSON need no package; images need Pillow (`images`), audio other than wav soundfile, video PyAV
(`video`), all in the extra `media`. Values are Python values and numpy arrays. Pickles are never loaded: opening a data
file must not be able to run code.
"""

import io
import json
import math
import os
import wave
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from headrace.ops.archives.zip_members import open_member
from headrace.ops.media.images import Images
from headrace.ops.media.video import Videos
from headrace.sources.extra import import_extra
from headrace.sources.limit import LARGEST, PARSED, check_limit

Decoder = Callable[[str, Any], Any]

TEXT = frozenset(("txt", "text", "transcript"))
NUMBER = frozenset(("cls", "cls2", "class", "count", "index", "inx", "id"))
AUDIO = frozenset(("wav", "flac", "ogg", "opus", "mp3", "aif", "aiff"))


def extension_of(path: str) -> str:
    """The extension of a file name without its dot, in small letters."""
    return os.path.splitext(path)[1][1:].lower()


def decode_basic(extension: str, data: Any, max_bytes: int = LARGEST) -> Any:
    """Text, whole numbers, JSON and numpy arrays."""
    if extension in TEXT:
        return data if isinstance(data, str) else data.decode("utf-8")
    if extension in NUMBER:
        return int(data)
    if extension in ("json", "jsn"):
        check_limit(PARSED * len(data), max_bytes, "a document of JSON")
        return json.loads(data)
    if extension in ("npy", "npz"):
        return _array(data) if extension == "npy" else _arrays(data, max_bytes)
    return None


def _arrays(data: bytes, max_bytes: int) -> dict[str, Any]:
    """The arrays of a file that `numpy.savez` wrote, or its compressed kind."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_limit(sum(info.file_size for info in archive.infolist()), max_bytes, "a file of numpy arrays")
        found = {info.filename: open_member(archive, info, info.filename, max_bytes) for info in archive.infolist()}
        return {name.removesuffix(".npy"): _array(file.read()) for name, file in found.items()}


def _array(data: bytes) -> Any:
    """An array as `numpy.save` writes it, whose header says no more than there is."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version in _HEADERS:
        shape, _, dtype = _HEADERS[version](stream)
        if math.prod(shape) * dtype.itemsize > len(data):
            raise ValueError(f"the numpy array of shape {shape} and type {dtype} is cut off: it has {len(data)} bytes")
    return np.load(io.BytesIO(data), allow_pickle=False)


_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # (it differs in the names of fields only, which are UTF-8)
}


def decode_audio(extension: str, data: bytes, max_bytes: int = LARGEST) -> Any:
    """`(samples, rate)`: float32 from -1 to 1, (frames, channels)."""
    if extension not in AUDIO:
        return None
    if extension == "wav" and (pcm := _wave(data, max_bytes)) is not None:
        return pcm
    with import_extra("media", "soundfile").SoundFile(io.BytesIO(data)) as file:
        check_limit(4 * file.frames * file.channels, max_bytes, f"sound of {file.frames} frames")
        return file.read(dtype="float32", always_2d=True), file.samplerate


def _wave(data: bytes, max_bytes: int) -> Any:
    """Uncompressed audio, which needs no other package; None for other files, which soundfile reads."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = file.readframes(file.getnframes())
    except (wave.Error, EOFError):
        return None
    if width not in (1, 2, 3, 4):
        return None
    check_limit(4 * len(raw) // width, max_bytes, f"sound of {len(raw) // width // channels} frames")
    if width == 1:
        samples = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4").ravel().astype(np.float32) / 2**31
    else:
        samples = np.frombuffer(raw, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return samples.reshape(-1, channels), rate


def standard_decoders(images: Images, videos: Videos, max_bytes: int = LARGEST) -> tuple[Decoder, ...]:
    """Decoders of all known kinds of files."""
    return (
        partial(decode_basic, max_bytes=max_bytes),
        images,
        partial(decode_audio, max_bytes=max_bytes),
        videos,
    )


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
