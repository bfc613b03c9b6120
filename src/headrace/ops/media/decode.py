"""Decode: the content of files as values, by the endings of their names."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.errors import BadOption, BadPipe, check_whole
from headrace.op import place
from headrace.ops.files.per_file import EachFile, path_and_stream
from headrace.ops.media.boxes import RandomBox
from headrace.ops.media.decoders import Decoder, decode_with, extension_of, standard_decoders
from headrace.ops.media.images import Images
from headrace.ops.media.video import Videos
from headrace.sources.limit import LARGEST


@dataclass(frozen=True)
class Decode(EachFile[Any]):
    """`(path, data)` as `(path, value)`; a dict of files by their endings, as `webdataset` makes it, value by value.

    Data is bytes or a stream. `decoders` are asked first, then the standard ones; content that none of them knows stays
    bytes.
    """

    images: str = "rgb8"
    decoders: tuple[Decoder, ...] = ()
    size: tuple[int, int] | None = None
    crop: str | RandomBox = "center"
    flip: float = 0.0
    frames: int | None = None
    pick: str = "random"
    resize: str = "pillow"
    max_bytes: int = LARGEST
    user = True

    def __post_init__(self) -> None:
        given: tuple[object, ...] = self.decoders
        for decoder in given:
            if not callable(decoder):
                hint = f"; for images write decode(images={decoder!r})" if isinstance(decoder, str) else ""
                raise BadOption(f"decode() takes functions (extension, data), and got {decoder!r}{hint}")
        check_whole("max_bytes", self.max_bytes, 1)
        _ = self._decoders  # wrong options are refused here, not at the first sample

    @cached_property
    def _decoders(self) -> tuple[Decoder, ...]:
        images = Images(self.images, self.size, self.crop, self.flip, self.resize, self.max_bytes)
        videos = Videos(self.frames, self.pick, self.max_bytes)
        return (*self.decoders, *standard_decoders(images, videos, self.max_bytes))

    def takes_flip(self) -> bool:
        """Whether a `random_flip()` behind this op can be done while images are resized."""
        return self.size is not None and self.images == "rgb8" and not self.decoders and not self.flip

    def apply(self, sample: Any) -> Any:
        if isinstance(sample, dict):
            return {key: self._member(key, value) for key, value in sample.items()}
        path, data = _file(sample)
        return path, _decoded(self._decoders, path, extension_of(path), data)

    def describe(self) -> str:
        return EachFile.describe(self).replace("crop=<RandomBox>", "crop='random'")

    def _member(self, key: str, value: object) -> Any:
        if not key.startswith("."):
            return value
        place.rewind()  # the random choices start anew, so all images of a sample are cropped and flipped alike
        return _decoded(self._decoders, key, key.rpartition(".")[2].lower(), value)


def _file(sample: Any) -> tuple[Any, Any]:
    """The path and data of a sample; a path alone is opened, any other sample is an error."""
    if isinstance(sample, str | os.PathLike):
        return path_and_stream(sample)
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise BadPipe(
            f"decode() takes (path, data) pairs, dicts of files, or paths, and got {type(sample).__name__}; write "
            '.open_files("rb") before .decode()'
        )
    path, data = sample
    return path, data


def _decoded(decoders: tuple[Decoder, ...], name: object, extension: str, data: object) -> Any:
    """The value in `data`. An error gets a note with the name of the file, which decoders do not know."""
    try:
        return decode_with(decoders, extension, data)
    except Exception as error:
        hint = ""
        is_text = isinstance(data, str) or isinstance(getattr(data, "file_obj", data), io.TextIOBase)
        if is_text or isinstance(error, UnicodeDecodeError):
            hint = '; it was opened as text: write .open_files("rb") before .decode()'
        error.add_note(f"headrace: decoding {str(name)!r}{hint}")
        raise


@dataclass(frozen=True, slots=True)
class RoutedDecode(EachFile[tuple[str, Any]]):
    """`(path, data)` as `(path, value)`, by the first of `handlers` that has an answer for `key_fn(path)`."""

    handlers: tuple[Decoder, ...] = ()
    key_fn: Callable[[str], str] = extension_of
    user = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "handlers", tuple(self.handlers) or standard_decoders(Images(), Videos()))

    def apply(self, sample: Any) -> tuple[str, Any]:
        path, data = sample
        return path, decode_with(self.handlers, self.key_fn(path), data)
