import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import BadOption
from headrace.ops.media.decoders import decode_basic, extension_of
from headrace.ops.media.images import Images
from headrace.ops.media.video import VIDEO
from headrace.pipe.graph import Pipe
from headrace.sources.stream import StreamWrapper
from tests.ops.file_laws import check_file_op, everything

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def png(pixels: Any = PIXELS) -> bytes:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def wav(samples: bytes, width: int, channels: int = 1, rate: int = 8000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples)
    return out.getvalue()


def one(pipe: Pipe[Any]) -> Any:
    ((_, value),) = list(pipe)
    return value


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("a.txt", "ü".encode(), "ü"),
        ("a.cls", b"12", 12),
        ("a.json", json.dumps([1, None]).encode(), [1, None]),
        ("a.npy", npy(np.arange(3)), [0, 1, 2]),
        ("a.unknown", b"\x00", b"\x00"),
        ("a.pickle", b"never loaded", b"never loaded"),
    ],
)
def test_content_is_decoded_by_the_end_of_its_name(name: str, data: bytes, value: Any) -> None:
    assert everything(Pipe.of([(name, data)]).decode()) == [(name, value)]
    assert everything(Pipe.of([(name, StreamWrapper(io.BytesIO(data)))]).routed_decode()) == [(name, value)]


def test_files_are_decoded_in_workers_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.png").write_bytes(png())
    pipe = Pipe.files(tmp_path).open_files("rb").decode()
    assert check_file_op(pipe) == [(str(tmp_path / "a.json"), {}), (str(tmp_path / "b.png"), PIXELS.tolist())]
    assert len(pipe) == 2


@pytest.mark.parametrize(
    ("form", "shape", "dtype"),
    [
        ("rgb8", (4, 6, 3), np.uint8),
        ("l8", (4, 6), np.uint8),
        ("rgba8", (4, 6, 4), np.uint8),
        ("rgb", (4, 6, 3), np.float32),
    ],
)
def test_images_come_in_the_form_that_is_asked_for(form: str, shape: tuple[int, ...], dtype: Any) -> None:
    array = one(Pipe.of([("x.png", png())]).decode(images=form))
    assert (array.shape, array.dtype) == (shape, dtype)
    if form == "rgb":
        assert np.allclose(array * 255, PIXELS)


def test_images_may_stay_images() -> None:
    assert one(Pipe.of([("x.PNG", png())]).decode(images="pill")).mode == "L"
    assert one(Pipe.of([("x.png", png())]).decode(images="pil")).mode == "RGB"


def test_an_unknown_form_of_image_is_refused_at_once() -> None:
    for form in ("cmyk", "torchrgb", ""):
        with pytest.raises(ValueError, match="is none of l8 rgb8"):
            Pipe.of([]).decode(images=form)


def test_a_sample_of_several_files_is_decoded_file_by_file() -> None:
    sample = {"__key__": "1.txt", ".cls": b"3", ".seg.png": png(), ".txt": StreamWrapper(io.BytesIO(b"t"))}
    (got,) = list(Pipe.of([sample]).decode())
    assert (got["__key__"], got[".cls"], got[".txt"], got[".seg.png"].shape) == ("1.txt", 3, "t", (4, 6, 3))


def test_own_decoders_are_asked_first_and_in_order() -> None:
    def upper(extension: str, data: bytes) -> Any:
        return data.decode().upper() if extension == "txt" else None

    assert one(Pipe.of([("a.txt", b"x")]).decode(upper)) == "X"
    assert one(Pipe.of([("a.txt", b"x")]).routed_decode(upper, decode_basic)) == "X"
    assert one(Pipe.of([("a.cls", b"7")]).routed_decode(upper, decode_basic)) == 7
    assert one(Pipe.of([("a.cls", b"7")]).routed_decode(upper)) == b"7"
    assert one(Pipe.of([("a", b"7")]).routed_decode(decode_basic, key_fn=lambda path: "cls")) == 7


@pytest.mark.parametrize(("width", "scale"), [(1, 128), (2, 2**15), (3, 2**23), (4, 2**31)])
def test_plain_sound_needs_no_other_package(width: int, scale: int) -> None:
    values = [0, 1, -1, scale // 2, -scale]
    raw = b"".join(
        (v + 128).to_bytes(1, "little") if width == 1 else v.to_bytes(width, "little", signed=True) for v in values
    )
    samples, rate = one(Pipe.of([("x.wav", wav(raw, width))]).decode())
    assert (rate, samples.shape, samples.dtype) == (8000, (5, 1), np.float32)
    assert np.allclose(samples[:, 0], np.array(values) / scale)
    stereo, _ = one(Pipe.of([("x.wav", wav(bytes(8), 2, channels=2))]).decode())
    assert stereo.shape == (2, 2)


def test_other_sound_is_decoded_by_soundfile() -> None:
    soundfile = pytest.importorskip("soundfile")
    out = io.BytesIO()
    tone = np.sin(np.arange(800) / 10).astype(np.float32)
    soundfile.write(out, tone, 8000, format="FLAC")
    samples, rate = one(Pipe.of([("x.flac", out.getvalue())]).decode())
    assert (rate, samples.shape) == (8000, (800, 1))
    assert np.allclose(samples[:, 0], tone, atol=1e-3)


def film(container: str, codec: str, pixels: str) -> bytes:
    av = pytest.importorskip("av")
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 16, pixels
        for number in range(3):
            frame = av.VideoFrame.from_ndarray(np.full((16, 32, 3), number * 40, np.uint8), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return out.getvalue()


def test_video_is_decoded_by_pyav() -> None:
    frames, rate = one(Pipe.of([("x.mkv", film("matroska", "ffv1", "bgr0"))]).decode())
    assert (rate, frames.shape, frames.dtype) == (25.0, (3, 16, 32, 3), np.uint8)
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 40, 80]


@pytest.mark.parametrize("extension", sorted(VIDEO))
def test_every_ending_of_video_has_its_container(extension: str) -> None:
    container, codec = {
        "mkv": ("matroska", "mpeg4"),
        "webm": ("webm", "libvpx"),
        "avi": ("avi", "mpeg4"),
        "mpg": ("mpeg", "mpeg1video"),
        "mpeg": ("mpegts", "mpeg2video"),
        "mov": ("mov", "mpeg4"),
    }.get(extension, ("mp4", "mpeg4"))
    frames, _ = one(Pipe.of([(f"x.{extension}", film(container, codec, "yuv420p"))]).decode())
    assert frames.shape == (3, 16, 32, 3)


SDP = b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 0 RTP/AVP 96\na=rtpmap:96 H264/90000\n"


@pytest.mark.parametrize("extension", sorted(VIDEO))
def test_an_entry_cannot_make_the_decoder_open_files_or_ports(
    extension: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.mkv").write_bytes(film("matroska", "ffv1", "bgr0"))
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nsecret.mkv\n#EXT-X-ENDLIST\n"
    for text in (SDP, b"ffconcat version 1.0\nfile secret.mkv\n", playlist):
        with pytest.raises(ValueError, match=f"no {extension} video"):
            one(Pipe.of([(f"x.{extension}", text)]).decode())


def test_an_image_is_one_of_the_kinds_that_are_named_whatever_its_ending() -> None:
    image = pytest.importorskip("PIL.Image")
    assert one(Pipe.of([("x.jpg", png())]).decode()).shape == (4, 6, 3)
    program = io.BytesIO()
    image.new("RGB", (4, 2)).save(program, "EPS")  # PostScript would be run by another program
    with pytest.raises(image.UnidentifiedImageError):
        one(Pipe.of([("x.jpg", program.getvalue())]).decode())


def test_the_end_of_a_name() -> None:
    assert [extension_of(name) for name in ("a/b.JPG", "a.tar.gz", "none")] == ["jpg", "gz", ""]
    assert Images("l8") == Images("l8")


def test_what_is_no_decoder_is_refused_when_the_pipe_is_made() -> None:
    with pytest.raises(BadOption, match=r"write decode\(images='rgb8'\)"):
        Pipe.of([]).decode("rgb8")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="takes functions"):
        Pipe.of([]).decode(3)  # type: ignore[arg-type]


def test_text_that_was_opened_as_text_is_text_and_other_kinds_say_how_to_open_them(tmp_path: Path) -> None:
    for name in ("a.txt", "a.cls", "a.jpg"):
        (tmp_path / name).write_text("3")
    text, number, image = (
        Pipe.of([str(tmp_path / f"a.{kind}")]).open_files().decode() for kind in ("txt", "cls", "jpg")
    )
    assert [value for _, value in text] == ["3"]
    assert [value for _, value in number] == [3]
    with pytest.raises(TypeError) as caught:
        list(image)
    assert any('write .open_files("rb") before .decode()' in note for note in caught.value.__notes__)
