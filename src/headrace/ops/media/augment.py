"""Augment: random crops and flips of uint8 images, the same for any number of workers.

Images are uint8 arrays of (height, width, channels), grey ones of (height, width): the sample itself, or values of a
tuple, list or dict. Random numbers are drawn once for a sample (`headrace.rng()`), so all images of one sample are
cropped and flipped alike. A sample whose only images are of another type (float32, tensors, Pillow's) is an error: it
would come as it is, and nothing else would show it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.op import Each, place
from headrace.ops.media.boxes import DRAWS, RandomBox, check_size
from headrace.ops.media.pixels import check_resize, mirrored, resized

WHOLE_RANGE = RandomBox()


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Each[Any, Any]):
    """A random part of each image, in one size."""

    size: tuple[int, int]
    random: RandomBox = WHOLE_RANGE
    resize: str = "pillow"
    user = True

    def __post_init__(self) -> None:
        check_resize(self.resize)
        object.__setattr__(self, "size", check_size(self.size))

    def apply(self, sample: Any) -> Any:
        draws = place.rng().random(DRAWS).tolist()

        def cut(pixels: Any) -> Any:
            box = self.random.box(pixels.shape[0], pixels.shape[1], self.size, draws)
            return resized(pixels, box, self.size, place.row((*self.size, *pixels.shape[2:]), "u1"), self.resize)

        return on_images(cut, sample)


@dataclass(frozen=True, slots=True)
class RandomFlip(Each[Any, Any]):
    """Each image, or (with probability `p`) its mirror image."""

    p: float = 0.5
    user = True

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise BadOption(f"random_flip() takes a probability from 0 to 1, not {self.p!r}")

    def apply(self, sample: Any) -> Any:
        return on_images(_flipped, sample) if place.rng().random() < self.p else sample


def _flipped(pixels: Any) -> Any:
    return mirrored(pixels, place.row(pixels.shape, "u1"))


def on_images(change: Callable[[Any], Any], sample: Any) -> Any:
    """The sample with its images changed."""
    if isinstance(sample, dict):
        parts = list(sample.values())
    else:
        parts = list(sample) if type(sample) is tuple or type(sample) is list else [sample]
    images = [isinstance(part, np.ndarray) and part.dtype == np.uint8 and part.ndim in (2, 3) for part in parts]
    if not any(images) and (other := next(filter(_looks_like_image, parts), None)) is not None:
        raise TypeError(
            f"only uint8 arrays are cropped and flipped, and this sample has {_called(other)}: decode images as "
            "'rgb8', 'rgba8' or 'l8', and convert them in a later map()"
        )
    changed = [change(part) if image else part for part, image in zip(parts, images, strict=True)]
    if isinstance(sample, dict):
        return dict(zip(sample, changed, strict=True))
    return type(sample)(changed) if type(sample) is tuple or type(sample) is list else changed[0]


def _looks_like_image(part: Any) -> bool:
    return len(getattr(part, "shape", ())) in (2, 3) or hasattr(part, "getbands")


def _called(part: Any) -> str:
    dtype = getattr(part, "dtype", None)
    return f"{type(part).__name__}{'' if dtype is None else f' of {dtype}'}"
