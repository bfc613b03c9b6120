"""Boxes: which part of an image is kept.

Boxes are computed from sizes alone, so a decoder knows the box before it decodes: it can then decode a JPEG at half or
a quarter of its size, which costs less, and still have more pixels than are needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

from headrace.errors import BadOption

TRIES = 10
DRAWS = 4 * TRIES
"""Random numbers that one box needs."""


class Box(NamedTuple):
    """A part of an image, in pixels."""

    top: float
    left: float
    height: float
    width: float


def check_size(size: object) -> tuple[int, int]:
    """The user's `size` as (height, width); one number is both."""
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
    """The largest box in the middle that has the proportions of `size`."""
    h = min(height, width * size[0] / size[1])
    w = h * size[1] / size[0]
    return Box((height - h) / 2, (width - w) / 2, h, w)


def crop_box(crop: "str | RandomBox", height: int, width: int, size: tuple[int, int], draws: Sequence[float]) -> Box:
    """The part of an image that is kept: its middle, a random box, or ("stretch") all of it."""
    if isinstance(crop, RandomBox):
        return crop.box(height, width, size, draws)
    return center(height, width, size) if crop == "center" else Box(0, 0, height, width)


def reduction(box: Box, size: tuple[int, int]) -> int:
    """By how much a JPEG may be shrunk while it is decoded, so that `box` still has as many pixels as `size`."""
    return next((by for by in (8, 4, 2) if box.height >= by * size[0] and box.width >= by * size[1]), 1)
