"""Data sets for every subject: map-style, numpy only, and samples so cheap that what is left is the loader.

Samples are rows of a small pool made once, so making one costs an index. Nothing here imports torch: a worker that
needs only this module need not pay for it.

Some loaders read only files of their own format. For them a data set may say what of a sample is stored
(`stored(index)`) and what is done to it when it is read (`loaded(value)`); without these the sample itself is stored.
"""

import io
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

POOL = 16


class Pairs:
    """`(int, float32)`."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.values = np.linspace(0.0, 1.0, 1024, dtype=np.float32)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> tuple[int, np.float32]:
        return index, self.values[index % 1024]


class Records:
    """A dict of `fields` arrays of 32 float32."""

    def __init__(self, length: int, fields: int = 16) -> None:
        self.length = length
        rng = np.random.default_rng(1)
        self.columns = {f"field{k}": rng.random((POOL, 32), dtype=np.float32) for k in range(fields)}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> dict[str, npt.NDArray[np.float32]]:
        row = index % POOL
        return {name: column[row] for name, column in self.columns.items()}


class Images:
    """3 x 224 x 224 arrays whose first value is their place in the pool."""

    def __init__(self, length: int, dtype: npt.DTypeLike = np.uint8, side: int = 224) -> None:
        self.length = length
        self.pool = np.random.default_rng(2).integers(0, 256, (POOL, 3, side, side)).astype(dtype)
        self.pool[:, 0, 0, 0] = np.arange(POOL)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> npt.NDArray[Any]:
        image: npt.NDArray[Any] = self.pool[index % POOL]
        return image


def keep_half(image: npt.NDArray[Any]) -> bool:
    """Two of every four neighbours: half of the data, and half of each worker's share however it is dealt."""
    return int(image[0, 0, 0]) & 2 == 0


class Jpegs:
    """Compressed pictures of 500 x 375 in memory; a sample is decoded and cut to 224 x 224 x 3 uint8."""

    def __init__(self, length: int, width: int = 500, height: int = 375) -> None:
        from PIL import Image

        self.length = length
        self.files: list[bytes] = []
        rng = np.random.default_rng(3)
        for _ in range(POOL):
            # Large soft shapes under a little grain: about as many bytes a pixel as a photograph has.
            soft = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize((width, height))
            grain = rng.integers(0, 24, (height, width, 3))
            picture = Image.fromarray(np.clip(np.asarray(soft) + grain, 0, 255).astype(np.uint8))
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=85)
            self.files.append(file.getvalue())

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> npt.NDArray[np.uint8]:
        return self.loaded(self.stored(index))

    def stored(self, index: int) -> bytes:
        return self.files[index % POOL]

    @staticmethod
    def loaded(content: bytes) -> npt.NDArray[np.uint8]:
        from PIL import Image

        with Image.open(io.BytesIO(content)) as picture:
            return np.array(picture.convert("RGB"))[75:299, 138:362]


class HeavyTail:
    """Positions that take `usual` seconds, one in a hundred of them 100 times as long; all of it sleep, not work."""

    def __init__(self, length: int, usual: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self.seconds = np.full(length, usual)
        slow = np.random.default_rng(4).choice(length, length // 100, replace=False)
        self.seconds[slow] *= 100
        self.sleep = sleep

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, index: int, /) -> int:
        self.sleep(float(self.seconds[index]))
        return index

    stored = int
    loaded = __getitem__


class Stamped:
    """`(position, process)`: who made the sample, after a short sleep."""

    def __init__(self, length: int, seconds: float) -> None:
        self.length = length
        self.seconds = seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int, /) -> tuple[int, int]:
        time.sleep(self.seconds)
        return index, os.getpid()

    stored = int
    loaded = __getitem__


class Listed:
    """`(number, label)` out of a list of small dicts, which `hold` keeps in its own way."""

    def __init__(self, length: int, hold: Callable[[Any], Any] = list) -> None:
        self.samples = hold([{"number": i, "name": f"sample {i}", "label": i % 10} for i in range(length)])

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int, /) -> tuple[int, int]:
        sample = self.samples[index]
        return sample["number"], sample["label"] + 0 * len(sample["name"])
