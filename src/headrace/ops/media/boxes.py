"""Boxes: which part of an image is kept, and that part in the size that is asked for.

Everything is arithmetic on sizes, so that a decoder knows the box before it decodes: it may then decode a JPEG at half
or a quarter of its size, which costs less, and still have more pixels than are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from typing import Any, NamedTuple

from headrace.errors import BadOption
from headrace.sources.extra import need

TRIES = 10
DRAWS = 4 * TRIES
"""Random numbers for one box."""


class Box(NamedTuple):
    """A part of an image, in pixels."""

    top: float
    left: float
    height: float
    width: float


def check_size(size: object) -> tuple[int, int]:
    """(height, width) out of what a user gave: one number is both."""
    both = (size, size) if isinstance(size, int) else size
    if isinstance(both, Sequence) and len(both) == 2 and all(type(n) is int and n > 0 for n in both):
        return both[0], both[1]
    raise BadOption(f"size= takes a whole number of pixels, or (height, width), not {size!r}")


@dataclass(frozen=True, slots=True)
class RandomBox:
    """A box of random place, size and shape: `scale` of the image's area, `ratio` of its width to its height."""

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        (small, large), (narrow, broad) = self.scale, self.ratio
        if not (0 < small <= large <= 1 and 0 < narrow <= broad):
            raise BadOption(
                f"a random crop takes scale=(least, most) within 0 and 1 and ratio=(narrow, broad) above 0, "
                f"not {self.scale} and {self.ratio}"
            )

    def box(self, height: int, width: int, size: tuple[int, int], draws: Sequence[float]) -> Box:
        (small, large), (narrow, broad) = self.scale, self.ratio
        for at in range(0, DRAWS, 4):
            area = height * width * (small + (large - small) * draws[at])
            shape = exp(log(narrow) + (log(broad) - log(narrow)) * draws[at + 1])
            h, w = round(sqrt(area / shape)), round(sqrt(area * shape))
            if 0 < h <= height and 0 < w <= width:
                return Box(int(draws[at + 2] * (height - h + 1)), int(draws[at + 3] * (width - w + 1)), h, w)
        return center(height, width, size)


def center(height: int, width: int, size: tuple[int, int]) -> Box:
    """The largest box in the middle that has the shape of `size`."""
    h = min(height, width * size[0] / size[1])
    w = h * size[1] / size[0]
    return Box((height - h) / 2, (width - w) / 2, h, w)


def chosen(crop: "str | RandomBox", height: int, width: int, size: tuple[int, int], draws: Sequence[float]) -> Box:
    """The box of an image: in the middle, at random, or ("stretch") all of it."""
    if isinstance(crop, RandomBox):
        return crop.box(height, width, size, draws)
    return center(height, width, size) if crop == "center" else Box(0, 0, height, width)


def reduction(box: Box, size: tuple[int, int]) -> int:
    """How many times smaller an image may be decoded, so that `box` still has as many pixels as `size`."""
    return next((by for by in (8, 4, 2) if box.height >= by * size[0] and box.width >= by * size[1]), 1)


def resized(pixels: Any, box: Box, size: tuple[int, int], out: Any) -> Any:
    """The box of an array of pixels in this size, written into `out`: bilinear, with antialiasing."""
    import numpy as np

    top, left = int(box.top), int(box.left)
    bottom, right = ceil(box.top + box.height), ceil(box.left + box.width)
    part = np.ascontiguousarray(pixels[top:bottom, left:right])
    inside = (box.left - left, box.top - top, box.left - left + box.width, box.top - top + box.height)
    # (Rounding may put the border a hair outside.)
    inside = (inside[0], inside[1], min(inside[2], part.shape[1]), min(inside[3], part.shape[0]))
    image = need("media", "PIL.Image")
    out[...] = np.asarray(image.fromarray(part).resize((size[1], size[0]), image.Resampling.BILINEAR, box=inside))
    return out
