"""Images: JPEG by libjpeg-turbo where simplejpeg is installed, all others by Pillow.

Both give the same pixels. simplejpeg takes two thirds of Pillow's time, because it writes straight into an array: into
the image's row of the batch, where the engine has made one. Pillow decodes what simplejpeg cannot decode in the same
way (CMYK, damaged files, grey out of colour).

With `size`, an image is decoded at 1/2, 1/4 or 1/8 of its size where the box that is kept has enough pixels, then
cropped and resized. Rows below the box are not decoded (`_decode_upper_rows`).
"""

import importlib
import io
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import numpy as np

from headrace.errors import BadOption, TooLarge
from headrace.op import place
from headrace.ops.media.boxes import DRAWS, Box, RandomBox, crop_box, reduction
from headrace.ops.media.pixels import check_resize, mirrored, resized
from headrace.ops.media.working import array_of, check_jpeg, check_pillow, check_scans, coefficients
from headrace.sources.extra import import_extra
from headrace.sources.limit import LARGEST, check_limit

IMAGE = frozenset(("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "bmp", "gif", "tif", "tiff", "webp"))
KINDS = ("JPEG", "PNG", "PPM", "BMP", "GIF", "TIFF")
"""The formats that are tried, whatever the ending: a PNG called .jpg is common. Pillow knows more, such as PostScript,
for which it starts another program. (WEBP too, where Pillow was built with it.)"""
CROPS = ("center", "random", "stretch")
_MODES = {"l": "L", "rgb": "RGB", "rgba": "RGBA"}
_CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,)}
_UNREAD_DATA = re.compile(r"extraneous bytes before marker 0xd[0-9]\b")
"""The decoder's message about data behind the last row that the header tells of, before a restart or the end."""
DENSEST = 512
"""Pixels that a byte of a JPEG can stand for: each 8 x 8 of them have a code of their own, which has a bit at least."""
RAISE = "If you trust the file, raise PIL.Image.MAX_IMAGE_PIXELS, and give decode() a larger max_bytes="
log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class Images:
    """Decodes images. `form`: l8 rgb8 rgba8 (uint8), l rgb rgba (float32 from 0 to 1), pil pill pilrgb pilrgba.

    Arrays are (height, width, channels); grey ones (height, width). With `size` all are of that (height, width).
    """

    form: str = "rgb8"
    size: tuple[int, int] | None = None
    crop: str | RandomBox = "center"
    flip: float = 0.0
    """How probable it is that an image with a `size` is mirrored."""
    resize: str = "pillow"
    max_bytes: int = LARGEST
    """The most bytes of an image, before it is cropped."""

    def __post_init__(self) -> None:
        if self._mode() is None and self.form != "pil":
            raise BadOption(
                f"images={self.form!r} is none of l8 rgb8 rgba8 l rgb rgba pil pill pilrgb pilrgba"
                + ("; take arrays and turn them into tensors with .map()" if self.form.startswith("torch") else "")
            )
        check_resize(self.resize)
        if self.crop == "random":
            object.__setattr__(self, "crop", RandomBox())
        if not isinstance(self.crop, RandomBox) and self.crop not in CROPS:
            raise BadOption(f"crop={self.crop!r} is none of {' '.join(CROPS)}, and no RandomBox")
        if self.size is not None and self.form.startswith("pil"):
            raise BadOption("size= is for arrays: take images='rgb8', or resize Pillow's images in a .map()")

    def _mode(self) -> str | None:
        return _MODES.get(self.form.removeprefix("pil").removesuffix("8"))

    def __call__(self, extension: str, data: Any) -> Any:
        if extension not in IMAGE:
            return None
        mode = self._mode()
        if self.form.startswith("pil") or mode is None:
            with self._opened(data, mode) as opened:
                self._check_working(opened, mode, self._scanned(opened, data))
                return opened.convert(mode) if mode is not None else opened.copy()
        array = self._by_turbo(data, mode) if data[:2] == b"\xff\xd8" else None
        if array is None:
            array = self._by_pillow(data, mode)
        if self.form.endswith("8"):
            return array
        values = array.astype(np.float32)
        values /= np.float32(255)  # (in place: two arrays of the size of a large image are too much memory)
        return values

    def _by_turbo(self, data: Any, mode: str) -> Any:
        turbo = _turbo()
        if turbo is None or mode == "RGBA":
            return None
        try:
            height, width, colors, *_ = turbo.decode_jpeg_header(data)
            self._check(height, width, len(mode))
            _check_whole(height, width, data)
            check_scans(height, width, data)
            if colors != "Gray" and (colors != "YCbCr" or mode == "L"):
                return None
            box, by = self._box(height, width)
            shape = (-(-height // by), -(-width // by), 1 if mode == "L" else 3)
            check_jpeg(height, width, data, prod(shape[:2]) * self._after(shape[2]), self.max_bytes)
            space = "GRAY" if mode == "L" else "RGB"
            if box is None:
                out = self._out((height, width), mode)
                turbo.decode_jpeg(data, colorspace=space, buffer=out)
                return out
            pixels = _decode_upper_rows(turbo, data, box, by, shape, space)
        except (TooLarge, CutOff):
            raise
        except ValueError:
            return None  # damaged: Pillow will raise an error that says what is wrong
        if pixels is None:
            return None
        return self._cropped(pixels if mode == "RGB" else pixels[..., 0], box, by, mode)

    def _by_pillow(self, data: Any, mode: str) -> Any:
        with self._opened(data, mode) as opened:
            box, by = self._box(opened.height, opened.width)
            scanned = self._scanned(opened, data)
            # Pillow takes the fraction from sizes that are rounded down, and gives sizes that are rounded up.
            if by > 1 and opened.draft(None, (opened.width // by, opened.height // by)) is None:
                by = 1
            self._check_working(opened, mode, scanned)
            image = opened if opened.mode == mode else opened.convert(mode)
            if image is not opened:
                opened.close()  # its pixels are needed no more, and may be many
            pixels = array_of(image)
        return pixels if box is None else self._cropped(pixels, box, by, mode)

    def _opened(self, data: Any, mode: str | None) -> Any:
        image = import_extra("media", "PIL.Image")
        try:
            opened = image.open(io.BytesIO(data), formats=_kinds())
        except image.DecompressionBombError as error:
            raise TooLarge(f"{error} {RAISE}") from None
        self._check(opened.height, opened.width, len(mode or opened.getbands()))
        if opened.format == "JPEG":
            _check_whole(opened.height, opened.width, data)
            check_scans(opened.height, opened.width, data)
        return opened

    def _check(self, height: int, width: int, channels: int) -> None:
        """Raise if an image of this size is larger than it may be."""
        value = 4 if self.form in _MODES and self.size is None else 1
        check_limit(height * width * channels * value, self.max_bytes, f"an image of {width} x {height} pixels")

    def _check_working(self, opened: Any, mode: str | None, also: float) -> None:
        """Raise if Pillow takes too much memory for an image, beside so many bytes."""
        channels = 0 if self.form.startswith("pil") or mode is None else len(mode)
        check_pillow(opened, mode, channels, self._after(channels), also, self.max_bytes)

    def _scanned(self, opened: Any, data: Any) -> float:
        """Bytes of the coefficients that are held while an image is decoded."""
        return opened.height * opened.width * coefficients(data) if opened.format == "JPEG" else 0

    def _after(self, channels: int) -> int:
        """Bytes of a pixel that are held while its array is brought into the form that is asked for."""
        if self.size is not None:
            return 2 * channels + 4  # a part of it, and that as Pillow has it
        return 5 * channels if self.form in _MODES else channels

    def _box(self, height: int, width: int) -> tuple[Box | None, int]:
        """The part of an image that is kept (None: all of it), and by how much it may be shrunk while it is decoded."""
        if self.size is None:
            return None, 1
        draws: Sequence[float] = place.rng().random(DRAWS).tolist() if isinstance(self.crop, RandomBox) else ()
        box = crop_box(self.crop, height, width, self.size, draws)
        return box, reduction(box, self.size)

    def _cropped(self, pixels: Any, box: Box, by: int, mode: str) -> Any:
        assert self.size is not None
        small = Box(*(edge / by for edge in box))
        out = self._out(self.size, mode)
        if self.flip and place.rng().random() < self.flip:
            return mirrored(resized(pixels, small, self.size, np.empty_like(out), self.resize), out)
        return resized(pixels, small, self.size, out, self.resize)

    def _out(self, size: tuple[int, int], mode: str) -> Any:
        shape = (*size, *_CHANNELS[mode])
        return place.row(shape, "u1") if self.form.endswith("8") else np.empty(shape, np.uint8)


class CutOff(ValueError):
    """An image has too few bytes for its size."""


def _check_whole(height: int, width: int, data: Any) -> None:
    """Raise if so many bytes cannot be a JPEG of this size: a decoder would make all the rest of it up."""
    if height * width > DENSEST * len(data):
        raise CutOff(f"a JPEG of {width} x {height} pixels has only {len(data)} bytes: it is damaged or cut off")


def _decode_upper_rows(turbo: Any, data: Any, box: Box, by: int, shape: tuple[int, int, int], space: str) -> Any:
    """An image at 1 / `by` of its size, without rows that are below the box; None if it cannot be decoded like that.

    With a smaller number of rows in its header, a JPEG is decoded only so far, and costs less accordingly. The decoder
    reports the first thing that is wrong: data that it has not read, or else the image is damaged.
    """
    # (Two rows more: colours are stored for two rows together, and smoothed with their neighbours'.)
    rows = (ceil((box.top + box.height) / by) + 2) * by
    size_at = _baseline_size(data) if rows < shape[0] * by else None
    if size_at is None:
        pixels = turbo.decode_jpeg(data, colorspace=space, min_height=shape[0], min_width=shape[1])
        return pixels if pixels.shape == shape else None
    cut = bytearray(data)
    cut[size_at : size_at + 2] = rows.to_bytes(2, "big")
    upper = np.empty((rows // by, *shape[1:]), np.uint8)
    try:
        turbo.decode_jpeg(cut, colorspace=space, min_height=upper.shape[0], min_width=upper.shape[1], buffer=upper)
    except ValueError as error:
        if not _UNREAD_DATA.search(str(error)):
            raise
    return upper


def _baseline_size(data: Any) -> int | None:
    """The byte at which the number of rows stands, in a JPEG of the simplest kind (baseline); None for other kinds."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF and data[at + 1] not in (0xDA, 0xFF):
        if data[at + 1] == 0xC0:
            return at + 5
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


@cache
def _turbo() -> Any:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        log.info("simplejpeg is not installed: Pillow decodes JPEG; faster with: pip install 'headrace[media]'")
        return None


@cache
def _kinds() -> tuple[str, ...]:
    return (*KINDS, "WEBP") if import_extra("media", "PIL.features").check("webp") else KINDS
