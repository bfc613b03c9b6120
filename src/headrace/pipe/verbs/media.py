"""Verbs for images, sound and video."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import LARGEST
from headrace.pipe.verbs.growing import Verbs, grow

if TYPE_CHECKING:
    from headrace.ops.media.boxes import RandomBox
    from headrace.ops.media.decoders import Decoder
    from headrace.pipe.graph import Pipe


class MediaVerbs(Verbs):
    """What a Pipe can do with the content of media files."""

    __slots__ = ()

    def decode(
        self,
        *decoders: "Decoder",
        images: str = "rgb8",
        size: int | tuple[int, int] | None = None,
        crop: 'Literal["center", "random", "stretch"] | RandomBox' = "center",
        frames: int | None = None,
        pick: Literal["random", "even", "run"] = "random",
        resize: Literal["pillow", "torch"] = "pillow",
        max_bytes: int = LARGEST,
    ) -> "Pipe[Any]":
        """Each (path, data), or dict of files, with the content decoded by the end of its name.

        With `size` every image has that (height, width): its middle, a random part, or all of it, stretched. With
        `frames` a video gives so many: at random places, evenly spread, or a run of neighbours. `resize="torch"` takes
        a quarter of Pillow's time, for pixels that differ by one level at most. What would take more than `max_bytes`
        of memory (an image before it is cropped, all frames of a video) is an error before it is decoded.
        """
        from headrace.ops.media.boxes import check_size
        from headrace.ops.media.decode import Decode

        both = None if size is None else check_size(size)
        return grow(
            self, Decode(images, decoders, both, crop, frames=frames, pick=pick, resize=resize, max_bytes=max_bytes)
        )

    def routed_decode(
        self, *handlers: "Decoder", key_fn: Callable[[str], str] | None = None
    ) -> "Pipe[tuple[str, Any]]":
        """Each (path, data) decoded by the first of `handlers` that knows its kind."""
        from headrace.ops.media.decode import RoutedDecode
        from headrace.ops.media.decoders import extension_of

        return grow(self, RoutedDecode(handlers, key_fn or extension_of))

    def random_resized_crop(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        resize: Literal["pillow", "torch"] = "pillow",
    ) -> "Pipe[Any]":
        """A random part of each uint8 image, in this size; right behind a `decode()` it is cut while decoding."""
        from headrace.ops.media.augment import RandomResizedCrop
        from headrace.ops.media.boxes import RandomBox, check_size
        from headrace.ops.media.decode import Decode

        both, box = check_size(size), RandomBox(scale, ratio)
        if isinstance(self.op, Decode) and self.op.size is None and self.op.images == "rgb8":
            return grow(self.inputs[0], replace(self.op, size=both, crop=box, resize=resize))
        return grow(self, RandomResizedCrop(both, box, resize))

    def random_flip(self, p: float = 0.5) -> "Pipe[Any]":
        """Each uint8 image, or with probability `p` its mirror image; behind a decoded size, while it is resized."""
        from headrace.ops.media.augment import RandomFlip
        from headrace.ops.media.decode import Decode

        flip = RandomFlip(p)
        if isinstance(self.op, Decode) and self.op.takes_flip():
            return grow(self.inputs[0], replace(self.op, flip=p))
        return grow(self, flip)
