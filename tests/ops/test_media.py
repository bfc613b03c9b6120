"""Images in one size, clips of video, crops and flips: which pixels, and the same for every way they are made."""

import importlib
import io
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headrace import Loader, Pipe
from headrace.engine.workers.process import threads
from headrace.errors import BadOption
from headrace.memory.rows import Rows
from headrace.ops.media import images, pixels, video
from headrace.ops.media.boxes import Box, RandomBox, center, reduction
from headrace.ops.media.images import Images
from headrace.ops.media.video import Videos
from tests.depth import depth

HEIGHT, WIDTH = 240, 320
SAVED: list[dict[str, Any]] = [{}, {"progressive": True}, {"restart_marker_rows": 1}, {"restart_marker_blocks": 3}]


def picture(kind: str = "JPEG", mode: str = "RGB", size: tuple[int, int] = (HEIGHT, WIDTH)) -> bytes:
    image = pytest.importorskip("PIL.Image")
    y, x = np.mgrid[: size[0], : size[1]]
    values = np.stack([x % 256, y % 256, (x + y) % 256], -1).astype(np.uint8)
    out = io.BytesIO()
    image.fromarray(values).convert(mode).save(out, kind, quality=90)
    return out.getvalue()


@pytest.fixture
def by_pillow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a call as if simplejpeg were not installed."""

    def run(call: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(images, "_turbo", lambda: None)
            return call()

    return run


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("form", ["rgb8", "l8", "rgb", "rgba8"])
@pytest.mark.parametrize("size", [None, (224, 224), (50, 60), (20, 20)])
def test_pixels_are_the_same_whoever_decodes(mode: str, form: str, size: Any, by_pillow: Any) -> None:
    pytest.importorskip("simplejpeg")
    decode = Images(form, size)
    data = picture(mode=mode)
    fast, slow = decode("jpg", data), by_pillow(lambda: decode("jpg", data))
    assert fast.dtype == slow.dtype
    assert np.array_equal(fast, slow)
    if size is not None:
        assert fast.shape[:2] == size


def test_turbo_decodes_plain_jpeg_and_at_a_fraction_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    turbo = pytest.importorskip("simplejpeg")
    shapes = []

    def counted(*args: Any, **options: Any) -> Any:
        pixels = turbo.decode_jpeg(*args, **options)
        shapes.append(pixels.shape)
        return pixels

    class Counting:
        decode_jpeg_header = staticmethod(turbo.decode_jpeg_header)
        decode_jpeg = staticmethod(counted)

    monkeypatch.setattr(images, "_turbo", lambda: Counting)
    for size in (None, (100, 100), (60, 60), (25, 30)):
        Images(size=size)("jpg", picture())
    assert shapes == [(240, 320, 3), (120, 160, 3), (60, 80, 3), (30, 40, 3)]


def test_rows_below_the_box_are_not_decoded_and_change_nothing(monkeypatch: pytest.MonkeyPatch, by_pillow: Any) -> None:
    turbo, image = pytest.importorskip("simplejpeg"), pytest.importorskip("PIL.Image")
    monkeypatch.setattr(importlib.import_module("PIL.ImageFile"), "MAXBLOCK", 2**22)
    rows: list[float] = []

    class Counting:
        decode_jpeg_header = staticmethod(turbo.decode_jpeg_header)

        @staticmethod
        def decode_jpeg(data: Any, **options: Any) -> Any:
            rows.append(turbo.decode_jpeg_header(data)[0])
            return turbo.decode_jpeg(data, **options)

    monkeypatch.setattr(images, "_turbo", lambda: Counting)
    rng = np.random.default_rng(5)
    cut = 0
    for case in range(depth(60, 3000)):
        height, width = rng.integers(17, 500, 2).tolist()
        values = rng.integers(0, 256, (height, width, 3), np.uint8)
        if case % 3:
            values = np.asarray(image.fromarray(values[:9, :9]).resize((width, height)))
        saved = SAVED[case % 4]
        out = io.BytesIO()
        mode = "L" if case % 5 == 0 else "RGB"
        quality = int(rng.integers(20, 98))
        image.fromarray(values).convert(mode).save(out, "JPEG", quality=quality, subsampling=case % 3, **saved)
        side = int(rng.integers(5, 200))
        top, left = (int(rng.integers(0, edge)) for edge in (height, width))
        box = Box(top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1)))
        monkeypatch.setattr(images, "crop_box", lambda *_, box=box: box)
        decode = Images("rgb8" if mode == "RGB" else "l8", (side, side))
        fast, slow = decode("jpg", out.getvalue()), by_pillow(partial(decode, "jpg", out.getvalue()))
        assert np.array_equal(fast, slow), (case, box)
        cut += rows[-1] < height
    assert cut > depth(10, 500)


def test_a_jpeg_that_is_damaged_above_or_cut_off_below_the_box_is_an_error(
    monkeypatch: pytest.MonkeyPatch, by_pillow: Any
) -> None:
    pytest.importorskip("simplejpeg")
    monkeypatch.setattr(images, "crop_box", lambda *_: Box(0, 0, 20, 20))
    whole, decode = picture(), Images(size=(20, 20))
    damaged = bytearray(whole)
    start = whole.index(b"\xff\xda") + 40
    damaged[start : start + 4] = b"\xff\xff\x12\x34"
    for data in (bytes(damaged), whole[: len(whole) * 3 // 4]):
        errors = []
        for run in (lambda call: call(), by_pillow):
            with pytest.raises(OSError) as raised:
                run(partial(decode, "jpg", data))
            errors.append(str(raised.value))
        assert errors[0] == errors[1]


def test_a_damaged_jpeg_is_the_same_error_whoever_decodes(by_pillow: Any) -> None:
    def error() -> str:
        with pytest.raises(OSError, match="truncated") as caught:
            Images()("jpg", picture()[:2000])
        return str(caught.value)

    assert error() == by_pillow(error)


def test_images_are_decoded_into_their_place_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simplejpeg")
    given = []
    real = Rows.row

    def counted(self: Rows, shape: Any, dtype: Any) -> Any:
        given.append(shape)
        return real(self, shape, dtype)

    monkeypatch.setattr(Rows, "row", counted)
    pipe = Pipe.of([(f"{i}.jpg", picture()) for i in range(6)]).decode().batch(3).collate()
    with Loader(pipe) as loader:
        for _, pixels in loader:
            assert np.array_equal(pixels, np.stack([Images()("jpg", picture())] * 3))
    assert given == [(HEIGHT, WIDTH, 3)] * 6  # asked for by the decoder, and by nobody again


def test_the_middle_and_the_whole_of_an_image() -> None:
    assert center(100, 200, (50, 50)) == Box(0, 50, 100, 100)
    assert center(200, 100, (50, 100)) == Box(75, 0, 50, 100)
    assert [reduction(Box(0, 0, n, n), (10, 10)) for n in (10, 19, 20, 39, 40, 80, 1000)] == [1, 1, 2, 2, 4, 8, 8]
    png = picture("PNG")
    middle = Images(size=(HEIGHT, HEIGHT))("png", png)
    assert np.array_equal(middle, Images()("png", png)[:, 40:280])
    assert Images(size=(10, 20), crop="stretch")("png", png).shape == (10, 20, 3)


@pytest.mark.parametrize("shape", [(HEIGHT, WIDTH, 3), (HEIGHT, WIDTH, 4), (HEIGHT, WIDTH)])
@pytest.mark.parametrize("size", [(224, 224), (31, 400), (500, 17), (1, 1)])
def test_torch_resizes_and_mirrors_as_pillow_does(
    shape: tuple[int, ...], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    image.flags.writeable = False  # as Pillow's are
    for box in (Box(0, 0, *shape[:2]), Box(10.4, 20.6, 100.2, 57.9), Box(HEIGHT - 1, 0, 1, 2), Box(7, 7, *size)):
        fast, slow = (
            pixels.resized(image, box, size, np.empty((*size, *shape[2:]), np.uint8), resize).astype(int)
            for resize in ("torch", "pillow")
        )
        for loaded in (torch, None):
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, "torch", loaded)
                turned = pixels.mirrored(image, np.empty_like(image))
            assert np.array_equal(turned, image[:, ::-1])
        assert abs(fast - slow).max() <= 1


def test_who_resizes_is_chosen_by_the_pipe_and_not_by_what_is_installed() -> None:
    with pytest.raises(BadOption, match="pillow torch"):
        Pipe.of([]).decode(size=8, resize="opencv")  # type: ignore[arg-type]
    by_default, by_name = (Images(size=(50, 40), **more)("png", picture("PNG")) for more in ({}, {"resize": "pillow"}))
    assert np.array_equal(by_default, by_name)


def limits(_: int) -> list[str | None]:
    return [os.environ.get(name) for name in threads.LIMITS]


def test_what_a_forked_worker_imports_to_resize_with_makes_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads.LIMITS:
        monkeypatch.delenv(name, raising=False)
    with Loader(Pipe.of(range(2)).map(limits), workers=1, start_method="fork") as loader:
        assert list(loader) == [["1"] * len(threads.LIMITS)] * 2
    assert limits(0) == [None] * len(threads.LIMITS)


def test_random_boxes_lie_inside_and_cover_what_they_should() -> None:
    rng = np.random.default_rng(0)
    areas = []
    for _ in range(2000):
        box = RandomBox().box(HEIGHT, WIDTH, (64, 64), rng.random(40).tolist())
        assert box.top >= 0 and box.left >= 0  # noqa: PT018
        assert box.top + box.height <= HEIGHT and box.left + box.width <= WIDTH  # noqa: PT018
        areas.append(box.height * box.width / (HEIGHT * WIDTH))
    assert 0.07 < min(areas) < 0.1
    assert max(areas) > 0.9
    squares = [RandomBox(ratio=(1, 1)).box(100, 100, (64, 64), rng.random(40).tolist()) for _ in range(2000)]
    assert 0.52 < np.mean([box.height * box.width for box in squares]) / 100**2 < 0.56  # all fit: the mean of the range
    assert RandomBox((1, 1), (9, 9)).box(10, 10, (5, 5), [0.5] * 40) == Box(0, 0, 10, 10)  # nothing fits: the middle


@pytest.mark.parametrize("fused", [True, False])
def test_random_crops_and_flips_are_the_same_for_any_workers(fused: bool) -> None:
    files = [(f"{i}.jpg", picture()) for i in range(12)]
    pipe = Pipe.of(files).decode()
    pipe = (pipe if fused else pipe.map(tuple)).random_resized_crop(64).random_flip()
    assert len(pipe.nodes()) == (2 if fused else 5)
    streams = []
    for workers in (0, 2):
        with Loader(pipe.batch(4).collate(), workers=workers, seed=3) as loader:
            streams.append(np.concatenate([pixels for _, pixels in loader]))
    assert np.array_equal(*streams)
    assert streams[0].shape == (12, 64, 64, 3)
    assert len({pixels.tobytes() for pixels in streams[0]}) == 12


def test_all_images_of_a_sample_are_cut_and_turned_alike() -> None:
    pixels = Images()("jpg", picture())
    sample = {"a": pixels, "b": pixels.copy(), "label": 3, "vector": np.zeros(3, np.uint8)}
    (got,) = list(Pipe.of([sample]).map(dict).random_resized_crop((32, 48)).random_flip(1.0))
    assert got["a"].shape == (32, 48, 3)
    assert np.array_equal(got["a"], got["b"])
    assert got["label"] == 3
    assert got["vector"].shape == (3,)
    (turned,) = list(Pipe.of([pixels]).random_flip(1.0))
    assert np.array_equal(turned, pixels[:, ::-1])


@pytest.mark.parametrize("resize", ["pillow", "torch"])
def test_a_grey_image_is_cropped_and_flipped_as_the_others_of_its_sample(resize: Any) -> None:
    if resize == "torch":
        pytest.importorskip("torch")
    grey = np.random.default_rng(0).integers(0, 256, (40, 60), np.uint8)
    sample = (np.stack([grey] * 3, -1), grey, "a label")
    pipe = Pipe.of([sample] * 20).random_resized_crop((9, 12), resize=resize).random_flip()
    got = list(Loader(pipe, seed=1))
    for colored, mask, label in got:
        assert (mask.shape, label) == ((9, 12), "a label")
        assert np.array_equal(colored[..., 0], mask)
    (turned,) = list(Pipe.of([("x.png", picture("PNG"))]).decode(images="l8").random_flip(1.0))
    (plain,) = list(Pipe.of([("x.png", picture("PNG"))]).decode(images="l8"))
    assert np.array_equal(turned[1], plain[1][:, ::-1])


@pytest.mark.parametrize("form", ["rgb", "l", "pil"])
def test_images_that_cannot_be_cropped_or_flipped_are_an_error(form: str) -> None:
    decoded = Pipe.of([{"__key__": "a", ".png": picture("PNG")}]).decode(images=form)
    for pipe in (decoded.random_flip(1.0), decoded.random_resized_crop(8)):
        with pytest.raises(TypeError, match="only uint8 arrays are cropped and flipped"):
            list(pipe)
    # (Samples without any image come as they are.)
    (text,) = list(Pipe.of([{".txt": "text", ".ids": np.arange(3)}]).random_flip(1.0))
    assert text[".txt"] == "text"


def test_all_images_of_a_dict_of_files_are_cut_and_turned_alike_while_they_are_decoded() -> None:
    sample = {"__key__": "a", ".jpg": picture(), ".cam2.jpg": picture()}
    samples = [dict(sample) for _ in range(8)]
    got = list(Pipe.of(samples).decode().random_resized_crop(48).random_flip())
    assert all(np.array_equal(one[".jpg"], one[".cam2.jpg"]) for one in got)
    assert len({one[".jpg"].tobytes() for one in got}) == 8


def movie(path: Path, frames: int = 50, kind: str = "mp4") -> bytes:
    """Frame i shows its number, in stripes for its six bits; a key frame every 12."""
    av = pytest.importorskip("av")
    name = str(path / f"m.{kind}")
    with av.open(name, "w") as out:
        stream = out.add_stream("mpeg4", rate=25, options={"g": "12"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(frames):
            stripes = np.repeat([255 * (i >> bit & 1) for bit in range(8)], 8).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(np.tile(stripes[None, :, None], (48, 1, 3)), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return Path(name).read_bytes()


def numbers(frames: Any) -> list[int]:
    return [sum(int(frame[:, 8 * bit : 8 * bit + 8].mean() > 127) << bit for bit in range(8)) for frame in frames]


@pytest.mark.parametrize("kind", ["mp4", "mkv", "avi"])
@pytest.mark.parametrize("seeking", [False, True])
def test_a_clip_is_the_frames_that_were_picked(
    kind: str, seeking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = movie(tmp_path, kind=kind)
    if seeking:
        monkeypatch.setattr(video, "_torchcodec", lambda: None)
    everything, rate = Videos()(kind, data)
    assert numbers(everything) == list(range(50))
    for wanted in ([0], [49], [11, 12, 13], [3, 3, 40, 41], [0, 20, 21, 22, 49]):
        monkeypatch.setattr(Videos, "chosen", lambda self, count, wanted=wanted: wanted)
        frames, its = Videos(len(wanted))(kind, data)
        assert numbers(frames) == wanted
        assert its == pytest.approx(rate)


@pytest.mark.parametrize("error", [ImportError("No module named 'torchcodec'"), RuntimeError("no FFmpeg\nlong story")])
def test_without_torchcodec_pyav_decodes_and_one_line_says_so(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = importlib.import_module

    def refuse(name: str) -> Any:
        if name.startswith("torchcodec"):
            raise error
        return found(name)

    data = movie(tmp_path)
    video._torchcodec.cache_clear()
    monkeypatch.setattr(video.importlib, "import_module", refuse)
    with caplog.at_level("INFO", "headrace"):
        assert len(Videos(3, "even")("mp4", data)[0]) == len(Videos(2, "even")("mp4", data)[0]) + 1
    (line,) = caplog.messages
    assert "headrace[video]" in line
    assert "\n" not in line
    video._torchcodec.cache_clear()


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("codec", [True, False])
def test_a_thousand_clips_leave_memory_as_it_was(codec: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if codec and video._torchcodec() is None:
        pytest.skip("torchcodec is not installed, or finds no FFmpeg")
    if not codec:
        monkeypatch.setattr(video, "_torchcodec", lambda: None)
    data = movie(tmp_path, frames=200)
    marks = []
    with Loader(Pipe.of([("m.mp4", data)] * 1000).decode(frames=16).batch(4).collate()) as loader:
        for number, _ in enumerate(loader):
            if number % 50 == 49:
                marks.append(psutil.Process().memory_info().rss)
    assert max(marks[1:]) - marks[1] < 16e6, marks  # the first hundred fill what is used again


def test_frames_are_picked_at_random_evenly_or_side_by_side(tmp_path: Path) -> None:
    data = movie(tmp_path)

    def picked(**options: Any) -> list[list[int]]:
        with Loader(Pipe.of([(f"{i}.mp4", data) for i in range(4)]).decode(**options)) as loader:
            return [numbers(frames) for _, (frames, _) in loader]

    random = picked(frames=6)
    assert picked(frames=6) == random  # belongs to the sample
    assert len({*map(tuple, random)}) == 4
    assert all(sorted({*clip}) == clip for clip in random)
    assert picked(frames=5, pick="even") == [[5, 15, 25, 35, 45]] * 4
    assert all(clip == list(range(clip[0], clip[0] + 6)) for clip in picked(frames=6, pick="run"))
    assert picked(frames=100)[0] == [i // 2 for i in range(100)]  # fewer than asked for: some several times


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
@pytest.mark.parametrize(
    "text", ["ffconcat version 1.0\nfile {path}\n", "v=0\nc=IN IP4 127.0.0.1\nm=video 1234 RTP/AVP 96\n"]
)
def test_text_that_names_files_or_ports_is_no_clip(ending: str, text: str, tmp_path: Path) -> None:
    movie(tmp_path)
    hidden = text.format(path=tmp_path / "m.mp4").encode()
    for data in (hidden, b"\0\0\0\x10ftyp" + hidden, b"\0\0\0\x08free" + hidden):
        with pytest.raises(ValueError, match="video"):
            Videos(2)(ending, data)


@pytest.mark.parametrize(
    "options",
    [{"size": 0}, {"size": (1, 2, 3)}, {"size": "big"}, {"crop": "left"}, {"frames": 0}, {"pick": "first"}],
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        Pipe.of([]).decode(**options)
    with pytest.raises(BadOption):
        Pipe.of([]).decode(images="pil", size=3)
    with pytest.raises(BadOption):
        Pipe.of([]).random_resized_crop(3, scale=(0, 2))
    with pytest.raises(BadOption):
        Pipe.of([]).random_flip(2)
