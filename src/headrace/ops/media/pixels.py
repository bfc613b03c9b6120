"""Pixels: uint8 images in another size, or mirrored, written where they belong.

Pillow resizes, or torch where the user asks for it: in a quarter of the time, by the same arithmetic with less precise
weights, so that pixels differ by one level at most. Installed packages do not decide which one: the same pipe gives the
same pixels everywhere. Mirroring is exact with torch and with numpy, so torch does it, in a tenth of numpy's time,
wherever it is loaded already.
"""

import sys
from typing import Any

import numpy as np

from headrace.errors import BadOption
from headrace.ops.media.boxes import Box
from headrace.sources.extra import import_extra

RESIZERS = ("pillow", "torch")


def check_resize(resize: str) -> None:
    if resize not in RESIZERS:
        raise BadOption(f"resize={resize!r} is none of {' '.join(RESIZERS)}")


def resized(pixels: Any, box: Box, size: tuple[int, int], out: Any, resize: str) -> Any:
    """The box of an image, to the nearest pixel, in this size: bilinear, with antialiasing."""
    top, left = round(box.top), round(box.left)
    bottom, right = max(top + 1, round(box.top + box.height)), max(left + 1, round(box.left + box.width))
    part = pixels[top:bottom, left:right]
    if part.shape[:2] == size:
        out[...] = part
    elif resize == "torch" and part.shape[2:] != (4,):  # (Pillow gives transparent pixels no weight.)
        _by_torch(import_extra("torch", "torch"), part, size, out)
    else:
        image = import_extra("media", "PIL.Image")
        picture = image.fromarray(np.ascontiguousarray(part))
        out[...] = np.asarray(picture.resize((size[1], size[0]), image.Resampling.BILINEAR))
    return out


def _by_torch(torch: Any, part: Any, size: tuple[int, int], out: Any) -> None:
    # Contiguous input, and output written into its final place: each saves half of the time.
    resize = torch.ops.aten._upsample_bilinear2d_aa.out
    resize(_channels_first(torch, part), size, False, None, None, out=_channels_first(torch, out))


def mirrored(pixels: Any, out: Any) -> Any:
    """The image with left and right exchanged."""
    if (torch := sys.modules.get("torch")) is not None:
        _channels_first(torch, out).copy_(_channels_first(torch, pixels).flip(3))
    else:
        out[...] = pixels[:, ::-1]
    return out


def _channels_first(torch: Any, pixels: Any) -> Any:
    """The image as a tensor over the same memory, in the layout of torch's kernels: (1, channels, height, width)."""
    whole = pixels.flags.c_contiguous and pixels.flags.writeable
    tensor = torch.from_numpy(pixels if whole else pixels.copy())
    return tensor[None, None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)[None]
