"""Working memory: what decoding an image takes at most, besides and before the array that comes of it.

A small file can hold a large image of one colour, and decoders take several times the memory of its array for it:
Pillow keeps four bytes of a pixel and copies them into another form, WebP is drawn on canvases, a TIFF is unpacked tile
by tile, and a JPEG in several scans is kept whole, as coefficients, until the last of them has come.
"""

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TooLarge
from headrace.sources.limit import check_limit

TIMES = {"JPEG": 1.2}
"""How many times as much as its array an image may take while it is decoded, by its format. Photographs are JPEG, are
large, and need little more."""
MOST_TIMES = 4.0
"""The same of all others."""
STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes that Pillow keeps for a pixel, by the mode of the image; of all other modes 4."""
CANVASES = 12
"""Bytes for a pixel of WebP that its decoder keeps until the image is closed."""
STRIP = 1 << 22
"""Pixels that are copied out of an image of Pillow's at a time."""
PIXELS_OF_SCANS = 2 * 10**9
"""The most pixels that the scans of a JPEG may have together. One may be a few bytes that say "nothing changes": it is
gone over in full, and a small file can have thousands."""
START_OF_SCAN = re.compile(rb"\xff\xda")
NO_FRAME = (0xC4, 0xC8, 0xCC)
"""Markers among 0xC0 to 0xCF that do not begin a frame."""
WIDTH, HEIGHT, BITS, SAMPLES, ROWS, TILE_WIDTH, TILE_HEIGHT = 256, 257, 258, 277, 278, 322, 323
"""Tags of TIFF."""


def check_jpeg(height: int, width: int, data: Any, held: int, max_bytes: int) -> None:
    """Raise if a JPEG takes too much memory while it is decoded: so many bytes, and the coefficients."""
    taken = held + ceil(height * width * coefficients(data))
    check_limit(taken, max_bytes, f"a JPEG of {width} x {height} pixels, while it is decoded,", TIMES["JPEG"])


def check_scans(height: int, width: int, data: Any) -> None:
    """Raise if the scans of a JPEG take too long."""
    scans = sum(1 for _ in START_OF_SCAN.finditer(data)) if coefficients(data) else 1
    if scans > 1 and height * width * scans > PIXELS_OF_SCANS:
        raise TooLarge(
            f"a JPEG of {width} x {height} pixels has {scans} scans, which would take seconds to decode: if you trust "
            "it, save it anew with fewer, as every program does"
        )


def coefficients(data: Any) -> float:
    """Bytes of coefficients that are kept for a pixel of a JPEG: none if all colours come in one scan."""
    at, colours, kept = 2, 0, 8.0
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # (any number of them may stand before a marker)
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in NO_FRAME:
            colours = data[at + 9]
            sampling = [data[i] for i in range(at + 11, min(at + 11 + 3 * colours, len(data)), 3)]
            across, down = [each >> 4 for each in sampling], [each & 15 for each in sampling]
            if all(across) and all(down) and sampling:
                whole = max(across) * max(down)
                kept = 2 * sum(a * d for a, d in zip(across, down, strict=True)) / whole
            if marker > 0xC1:  # progressive
                return kept
        elif marker == 0xDA:
            return kept if data[at + 4] < colours else 0
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return kept


def check_pillow(opened: Any, mode: str | None, values: int, after: int, also: float, max_bytes: int) -> None:
    """Raise if an image that Pillow has opened takes too much memory while it is decoded and brought into this mode.

    `values` are the bytes of a pixel of the array that comes of it (0 if an image of Pillow's is wanted), `after` those
    that are held when Pillow's image is gone, and `also` is what is held for the whole image besides.
    """
    stored = STORED.get(opened.mode, 4)
    wanted = stored if mode is None else STORED.get(mode, 4)
    kept = stored if values and opened.mode == mode else stored + wanted  # (what Pillow gives out is a copy)
    pixels = opened.width * opened.height
    taken = also + pixels * max(kept, wanted + values, after)
    if opened.format == "WEBP":
        taken += CANVASES * pixels
    if opened.format == "TIFF":
        taken += _piece(opened.tag_v2)
    what = f"an image of {opened.width} x {opened.height} pixels, while it is decoded,"
    check_limit(ceil(taken), max_bytes, what, TIMES.get(opened.format, MOST_TIMES))


def _piece(tags: Mapping[int, Any]) -> int:
    """Bytes of a piece of a TIFF, a tile or a strip, which is unpacked at once: it may say any size."""
    if TILE_WIDTH in tags and TILE_HEIGHT in tags:
        pixels = tags[TILE_WIDTH] * tags[TILE_HEIGHT]
    else:
        pixels = tags[WIDTH] * min(tags.get(ROWS, tags[HEIGHT]), tags[HEIGHT])
    bits = max(tags.get(BITS, (1,))) * tags.get(SAMPLES, 1)
    return int(pixels) * int(bits) // 8


def array_of(image: Any) -> NDArray[np.uint8]:
    """The pixels of an image of Pillow's. Large ones in strips: at once, Pillow would make two copies."""
    step = max(1, STRIP // max(1, image.width))
    if image.height <= step:
        return np.asarray(image)
    bands = len(image.getbands())
    out = np.empty((image.height, image.width, bands) if bands > 1 else (image.height, image.width), np.uint8)
    for top in range(0, image.height, step):
        out[top : top + step] = np.asarray(image.crop((0, top, image.width, min(image.height, top + step))))
    return out
