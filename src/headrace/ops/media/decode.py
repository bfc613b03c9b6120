"""Decode: content into values, by the end of the name it came under."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import BadPipe
from headrace.op import place
from headrace.ops.files.per_file import EachFile, reading
from headrace.ops.media.boxes import RandomBox
from headrace.ops.media.decoders import Decoder, extension_of, run, standard


@dataclass(frozen=True, slots=True)
class Decode(EachFile[Any]):
    """`(path, data)` as `(path, value)`; a dict of files by their endings, as `webdataset` makes it, value by value.

    Data is bytes or a stream. `decoders` are asked first, then the standard ones; what nobody knows stays bytes.
    """

    images: str = "rgb8"
    decoders: tuple[Decoder, ...] = ()
    size: tuple[int, int] | None = None
    crop: str | RandomBox = "center"
    flip: float = 0.0
    frames: int | None = None
    pick: str = "random"
    resize: str = "pillow"
    user = True

    def __post_init__(self) -> None:
        self._standard()

    def _standard(self) -> tuple[Decoder, ...]:
        return standard(self.images, self.size, self.crop, self.flip, self.frames, self.pick, self.resize)

    def takes_flip(self) -> bool:
        """Can it mirror images in the same go?"""
        return self.size is not None and self.images == "rgb8" and not self.decoders and not self.flip

    def apply(self, sample: Any) -> Any:
        decoders = (*self.decoders, *self._standard())
        if isinstance(sample, dict):
            return {key: self._member(decoders, key, value) for key, value in sample.items()}
        path, data = _file(sample)
        try:
            return path, run(decoders, extension_of(path), data)
        except Exception as error:
            _name(error, path)
            raise

    def describe(self) -> str:
        return EachFile.describe(self).replace("crop=<RandomBox>", "crop='random'")

    @staticmethod
    def _member(decoders: tuple[Decoder, ...], key: str, value: Any) -> Any:
        if not key.startswith("."):
            return value
        place.rewind()  # all images of a sample are cut and turned alike
        try:
            return run(decoders, key.rpartition(".")[2].lower(), value)
        except Exception as error:
            _name(error, key)
            raise


def _file(sample: Any) -> tuple[Any, Any]:
    """Path and data; a path alone is opened, anything else is refused."""
    if isinstance(sample, str | os.PathLike):
        return reading(sample)
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise BadPipe(
            f"decode() takes (path, data) pairs, dicts of files, or paths, and got {type(sample).__name__}; write "
            '.open_files("rb") before .decode()'
        )
    path, data = sample
    return path, data


def _name(error: Exception, file: object) -> None:
    """Say which file it was: the errors of decoders do not know."""
    hint = ""
    if isinstance(error, UnicodeDecodeError):
        hint = '; it was opened as text: write .open_files("rb") before .decode()'
    error.add_note(f"headrace: decoding {str(file)!r}{hint}")


@dataclass(frozen=True, slots=True)
class RoutedDecode(EachFile[tuple[str, Any]]):
    """`(path, data)` as `(path, value)`, by the first of `handlers` that has an answer for `key_fn(path)`."""

    handlers: tuple[Decoder, ...] = ()
    key_fn: Callable[[str], str] = extension_of
    user = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "handlers", tuple(self.handlers) or standard())

    def apply(self, sample: Any) -> tuple[str, Any]:
        path, data = sample
        return path, run(self.handlers, self.key_fn(path), data)
