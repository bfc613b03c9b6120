"""Media as they lie on a disk, and the sample that a training program makes of each: photographs, sound, video.

A `Job` is what a subject is asked for: batches of `(path, array)` out of these files, every file once an epoch, in
random order. What stands in `sample` is the code that a user of a plain loader writes; a loader that has decoders of
its own makes the same kind of sample in its own way.
"""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data import Jpegs

SIDE = 224
RATE = 16_000
SOUND_SECONDS, WINDOW_SECONDS = 10, 2
VIDEO_SECONDS, FPS, KEY_EVERY, FRAMES = 60, 24, 12, 16
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Job:
    """Files, and what a user makes of the content of one. `kind`: photos, sound or clips."""

    kind: str
    paths: tuple[str, ...]
    sample: Callable[[bytes], Array]


class FileSet:
    """A job as a map-style data set: `(path, array)`."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __len__(self) -> int:
        return len(self.job.paths)

    def __getitem__(self, index: int, /) -> tuple[str, Array]:
        return self.loaded(self.stored(index))

    def stored(self, index: int) -> tuple[int, bytes]:
        return index, Path(self.job.paths[index]).read_bytes()

    def loaded(self, value: tuple[int, bytes]) -> tuple[str, Array]:
        index, content = value
        return self.job.paths[index], self.job.sample(bytes(content))


# --- photographs: a random part of each, in one size, half of them mirrored ---------------------------------------


def write_photos(folder: Path, count: int, width: int = 500, height: int = 375) -> tuple[str, ...]:
    pictures = Jpegs(count, width, height)
    return tuple(_write(folder / f"{i:05}.jpg", pictures.stored(i)) for i in range(count))


def _write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def random_box(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height, width, as torchvision's RandomResizedCrop draws them."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        shape = float(np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3))))
        h, w = round((area / shape) ** 0.5), round((area * shape) ** 0.5)
        if 0 < h <= height and 0 < w <= width:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def by_pillow(content: bytes) -> Array:
    """Pillow from the file to the array, as torchvision's ImageFolder and transforms do it."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as picture:
        top, left, h, w = random_box(picture.height, picture.width)
        whole = picture.convert("RGB")
    part = whole.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + w, top + h))
    if random.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(part)


def by_turbo(content: bytes) -> Array:
    """libjpeg-turbo (simplejpeg), the decoder that Headrace uses, then torch, as torchvision does it with tensors."""
    import simplejpeg
    import torch
    from torch.nn.functional import interpolate

    pixels = torch.from_numpy(simplejpeg.decode_jpeg(content)).permute(2, 0, 1)
    top, left, h, w = random_box(pixels.shape[1], pixels.shape[2])
    part = pixels[None, :, top : top + h, left : left + w]
    part = interpolate(part, (SIDE, SIDE), mode="bilinear", antialias=True)
    if random.random() < 0.5:
        part = part.flip(3)
    found: Array = part[0].permute(1, 2, 0).numpy()
    return found


# --- sound: a window of each file ----------------------------------------------------------------------------------


def write_sound(folder: Path, count: int) -> tuple[str, ...]:
    import soundfile

    rng = np.random.default_rng(6)
    seconds = np.arange(SOUND_SECONDS * RATE) / RATE
    contents = []
    for _ in range(8):
        tones = sum(np.sin(2 * np.pi * rng.uniform(80, 3000) * seconds + rng.uniform(0, 6)) for _ in range(6))
        out = io.BytesIO()
        soundfile.write(out, 0.1 * tones + rng.normal(0, 0.01, len(seconds)), RATE, format="FLAC")
        contents.append(out.getvalue())
    return tuple(_write(folder / f"{i:05}.flac", contents[i % 8]) for i in range(count))


def window(content: bytes) -> Array:
    """Two seconds of a FLAC file, from a random place."""
    import soundfile

    with soundfile.SoundFile(io.BytesIO(content)) as file:
        file.seek(random.randrange(file.frames - WINDOW_SECONDS * RATE))
        found: Array = file.read(WINDOW_SECONDS * RATE, dtype="float32")
    return found


# --- video: frames at random places of each file -------------------------------------------------------------------


def write_clips(folder: Path, count: int) -> tuple[str, ...]:
    """One h264 film of a minute, 320 x 240, a key frame every 12 frames, under `count` names."""
    content = film(folder)
    return tuple(_write(folder / f"{i:05}.mp4", content) for i in range(count))


def film(folder: Path) -> bytes:
    import av

    path = folder / "film.mp4"
    rng = np.random.default_rng(9)
    ground = np.kron(rng.integers(40, 200, (12, 16, 3)), np.ones((20, 20, 1))).astype(np.uint8)
    with av.open(str(path), "w") as out:
        options = {"g": str(KEY_EVERY), "keyint_min": str(KEY_EVERY), "preset": "veryfast", "threads": "1"}
        stream = out.add_stream("libx264", rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for number in range(VIDEO_SECONDS * FPS):
            picture = np.roll(ground, (number, 2 * number), (0, 1))
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    content = path.read_bytes()
    path.unlink()
    return content


def frames(content: bytes) -> Array:
    """Sixteen frames of a video at random places, in order, by torchcodec."""
    from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined, unused-ignore]

    decoder = VideoDecoder(content, dimension_order="NHWC", num_ffmpeg_threads=1)
    count = decoder.metadata.num_frames
    assert count is not None
    found: Array = decoder.get_frames_at(sorted(random.sample(range(count), FRAMES))).data.numpy()
    return found


WRITERS: dict[str, Callable[[Path, int], tuple[str, ...]]] = {
    "photos": write_photos,
    "sound": write_sound,
    "clips": write_clips,
}
SAMPLES: dict[str, Callable[[bytes], Array]] = {"photos": by_turbo, "sound": window, "clips": frames}


def job(kind: str, folder: Path, count: int, **options: int) -> Job:
    """Files of this kind; `options` are those of its writer."""
    return Job(kind, WRITERS[kind](folder, count, **options), SAMPLES[kind])
