"""Hostile images, sound, video and arrays: headers that say there is more than a machine can hold."""

import io
import struct
import wave
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tests.security.archives import BZIP2, DEFLATE, zipped
from tests.security.case import GIGABYTE, MOST, Case, file, packed

JPEG_MOST = 300
SIDE = 30000
LARGEST = 8000, 8333
"""An image that is just small enough."""


# --- images -----------------------------------------------------------------------------------------------------------


def small(kind: str, **options: Any) -> bytes:
    """A whole image of 16 x 16 pixels."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 60)).save(out, kind, **options)
    return out.getvalue()


def jpeg(width: int, height: int, **options: Any) -> bytes:
    """A JPEG whose header says this size."""
    data = bytearray(small("JPEG", **options))
    at = next(i for i in range(len(data)) if data[i : i + 2] in (b"\xff\xc0", b"\xff\xc2"))
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def png(width: int, height: int, rows: int, kind: int = 6) -> bytes:
    """A PNG of zeros with so many rows; colours are RGBA (6) or RGB (2)."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))

    packer = zlib.compressobj(9)
    row = bytes(1 + width * (4 if kind == 6 else 3))
    data = b"".join(packer.compress(row) for _ in range(rows)) + packer.flush()
    head = struct.pack(">LLBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) >= 1
    return data.replace(old, new, 1)


def tiff() -> bytes:
    data = small("TIFF")
    for tag in (256, 257):  # (width and height)
        data = patched(data, struct.pack("<HHLL", tag, 4, 1, 16), struct.pack("<HHLL", tag, 4, 1, SIDE))
    return data


@cache
def blank(kind: str, height: int, width: int, colours: str = "RGB", **options: Any) -> bytes:
    """A whole image of one colour."""
    from PIL import Image

    out = io.BytesIO()
    Image.new(colours, (width, height)).save(out, kind, **options)
    return out.getvalue()


def in_scans(height: int, width: int) -> bytes:
    """A progressive JPEG with all its pixels and all its colours: its decoder keeps nine bytes of each pixel."""
    return blank("JPEG", height, width, progressive=True, subsampling=0)


def of_many_scans(side: int, count: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    data = blank("JPEG", side, side, progressive=True)
    at = data.rindex(b"\xff\xda")
    return data[:at] + count * data[at:-2] + data[-2:]


def tiled(side: int) -> bytes:
    """A TIFF of 16 x 16 pixels in one tile of this side, which is compressed."""
    packer = zlib.compressobj(9)
    tile = b"".join(packer.compress(bytes(3 * side)) for _ in range(side)) + packer.flush()
    at = 8 + 2 + 11 * 12 + 4
    shape = [(256, 16), (257, 16), (258, 8), (259, 8), (262, 2), (277, 3), (284, 1), (322, side), (323, side)]
    tags = [*shape, (324, at), (325, len(tile))]
    entries = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<LH", 8, len(tags)) + entries + bytes(4) + tile


def with_chunk(name: bytes, zeros: int) -> bytes:
    """A PNG with a chunk of so many compressed zeros behind its header."""
    packer = zlib.compressobj(9)
    data = b"a\0\0" + b"".join(packer.compress(bytes(10**7)) for _ in range(zeros // 10**7)) + packer.flush()
    whole = small("PNG")
    return (
        whole[:33]
        + struct.pack(">L", len(data))
        + name
        + data
        + struct.pack(">L", zlib.crc32(name + data))
        + whole[33:]
    )


def canvas() -> bytes:
    """A WebP whose canvas is much larger than its image."""
    about = b"VP8X" + struct.pack("<L", 10) + bytes(4) + 6 * b"\xff"
    return b"RIFF" + struct.pack("<L", 30) + b"WEBP" + about + small("WEBP")[12:]


IMAGES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "jpeg": ("evil.jpg", lambda: jpeg(SIDE, SIDE)),
    "progressive jpeg": ("evil.jpg", lambda: jpeg(SIDE, SIDE, progressive=True)),
    "png": ("evil.png", lambda: png(SIDE, SIDE, 100)),
    "gif": ("evil.gif", lambda: patched(small("GIF"), struct.pack("<HH", 16, 16), struct.pack("<HH", SIDE, SIDE))),
    "bmp": ("evil.bmp", lambda: patched(small("BMP"), struct.pack("<ll", 16, 16), struct.pack("<ll", SIDE, SIDE))),
    "tiff": ("evil.tif", tiff),
    "ppm": ("evil.ppm", lambda: b"P6\n30000 30000\n255\n" + bytes(100)),
    "webp": ("evil.webp", lambda: patched(small("WEBP"), b"\x9d\x01\x2a\x10\0\x10\0", b"\x9d\x01\x2a\xff\x3f\xff\x3f")),
    "png under another name": ("evil.jpg", lambda: png(SIDE, SIDE, 100)),
}
SPREAD = 140_000
"""Bytes that a JPEG of the largest size must have at least, whatever stands in them."""
TAKING: dict[str, tuple[str, Callable[[], bytes], str, str]] = {
    "progressive jpeg: as large as its array may be": ("evil.jpg", lambda: in_scans(*LARGEST), "", "a JPEG of"),
    "progressive jpeg: a header and zeros": (
        "evil.jpg",
        lambda: jpeg(*LARGEST, progressive=True) + bytes(SPREAD),
        "",
        "a JPEG of",
    ),
    "progressive jpeg: 2,000 scans": ("evil.jpg", lambda: of_many_scans(2000, 2000), "", "has 20.. scans"),
    "progressive jpeg: 2,000 scans for Pillow": (
        "evil.jpg",
        lambda: of_many_scans(2000, 2000),
        "pil",
        "has 20.. scans",
    ),
    "jpeg: a header and zeros": ("evil.jpg", lambda: jpeg(*LARGEST) + bytes(SPREAD), "", "allows|cut off"),
    "jpeg: of four inks": ("evil.jpg", lambda: blank("JPEG", 7000, 7000, "CMYK"), "", "allows"),
    "jpeg: large, in grey": ("evil.jpg", lambda: blank("JPEG", 13000, 13700), "l8", "allows"),
    "jpeg: large, with transparency": ("evil.jpg", lambda: blank("JPEG", 7000, 7000), "rgba8", "allows"),
    "jpeg: large, for Pillow": ("evil.jpg", lambda: blank("JPEG", *LARGEST), "pil", "allows"),
    "png: large, in grey": ("evil.png", lambda: png(13000, 13700, 13700, 2), "l8", "allows"),
    "png: text of 1 GB": ("evil.png", lambda: with_chunk(b"zTXt", GIGABYTE), "", "too large"),
    "png: a profile of 1 GB": ("evil.png", lambda: with_chunk(b"iCCP", GIGABYTE), "", "too large"),
    "tiff: a small image in a tile of 20000 x 20000": ("evil.tif", lambda: tiled(20000), "", "allows"),
    "tiff: large, in grey": (
        "evil.tif",
        lambda: blank("TIFF", 13000, 13700, compression="tiff_adobe_deflate"),
        "l8",
        "allows",
    ),
    "webp: as large as its array may be": (
        "evil.webp",
        lambda: blank("WEBP", 4000, 16000, lossless=True),
        "",
        "allows",
    ),
    "webp: a canvas of 2**24 x 2**24": ("evil.webp", canvas, "", "MAX_IMAGE_PIXELS"),
    "gif: a frame larger than its screen": (
        "evil.gif",
        lambda: patched(
            small("GIF"), struct.pack("<cHHHH", b",", 0, 0, 16, 16), struct.pack("<cHHHH", b",", 0, 0, SIDE, SIDE)
        ),
        "",
        "MAX_IMAGE_PIXELS",
    ),
    "bmp: negative sides": (
        "evil.bmp",
        lambda: patched(small("BMP"), struct.pack("<ll", 16, 16), struct.pack("<ll", -SIDE, -SIDE)),
        "",
        "MAX_IMAGE_PIXELS",
    ),
}
"""Images whose array is small enough, but not what decoding takes; the form that is asked for, and the error."""
FORMS = {
    "": "opened(path).decode()",
    ", as float": "opened(path).decode(images='rgb')",
    ", grey": "opened(path).decode(images='l8')",
    ", for Pillow": "opened(path).decode(images='pil')",
    ", in a size": "opened(path).decode(size=224)",
}


def image_cases() -> list[Case]:
    found = [
        Case(kind, "plain", f"30000 x 30000 pixels{form}", file(name, make), read, "max_bytes", most=JPEG_MOST)
        for kind, (name, make) in IMAGES.items()
        for form, read in FORMS.items()
        if not form or kind in ("jpeg", "png")
    ]
    found += [
        Case(
            attack.partition(":")[0],
            "plain",
            attack,
            file(name, make),
            f"opened(path).decode(images={form or 'rgb8'!r})",
            says,
            most=JPEG_MOST if name.endswith("jpg") else MOST,
        )
        for attack, (name, make, form, says) in TAKING.items()
    ]
    height, width = LARGEST
    found += [
        Case(
            "jpeg",
            "plain",
            "as large as it may be, and cut off",
            file("evil.jpg", lambda: jpeg(width, height)),
            FORMS[""],
            "cut off",
            most=JPEG_MOST,
        ),
        Case(
            "jpeg",
            "plain",
            "too large as float",
            file("evil.jpg", lambda: jpeg(5000, 5000)),
            FORMS[", as float"],
            "max_bytes",
            most=JPEG_MOST,
        ),
        Case(
            "progressive jpeg",
            "plain",
            "as large as it may be",
            file("evil.jpg", lambda: in_scans(5000, 5200)),
            "[str(p.shape) for _, p in opened(path).decode()]",
            gives=["(5000, 5200, 3)"],
            most=JPEG_MOST,
        ),
        Case(
            "jpeg",
            "plain",
            "as large as it may be",
            file("evil.jpg", lambda: blank("JPEG", height, width)),
            "[str(p.shape) for _, p in opened(path).decode()]",
            gives=[f"({height}, {width}, 3)"],
            most=JPEG_MOST,
        ),
        Case(
            "jpeg",
            "plain",
            "as large as it may be, as float",
            file("evil.jpg", lambda: blank("JPEG", 4000, 3900)),
            "[str(p.shape) for _, p in opened(path).decode(images='rgb')]",
            gives=["(4000, 3900, 3)"],
            most=JPEG_MOST,
        ),
        Case(
            "png",
            "plain",
            "as large as it may be",
            file("evil.png", lambda: png(width, height, height)),
            "[str(p.shape) for _, p in opened(path).decode()]",
            gives=[f"({height}, {width}, 3)"],
        ),
        Case(
            "png",
            "plain",
            "as large as it may be, with more rows than it says",
            file("evil.png", lambda: png(width, 100, 3 * height, 2)),
            "[str(p.shape) for _, p in opened(path).decode()]",
            gives=[f"(100, {width}, 3)"],
        ),
    ]
    return found


# --- sound ------------------------------------------------------------------------------------------------------------


def wav(frames: int, width: int = 1, *, says: int | None = None) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(bytes(frames * width))
    data = bytearray(out.getvalue())
    if says is not None:
        data[40:44] = struct.pack("<L", says)
    return bytes(data)


def flac(frames: int, *, says: int | None = None) -> bytes:
    """Silence; the header may say another number of frames."""
    import soundfile

    out = io.BytesIO()
    with soundfile.SoundFile(out, "w", 8000, 1, format="FLAC") as file:
        for _ in range(0, frames, 10**6):
            file.write(np.zeros(min(frames, 10**6), np.int16))
    data = bytearray(out.getvalue())
    if says is not None:
        data[21] = data[21] & 0xF0 | says >> 32
        data[22:26] = struct.pack(">L", says & 0xFFFFFFFF)
    return bytes(data)


SOUNDS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "wav: 8 bits for each of 60 million values": ("evil.wav", lambda: wav(60_000_000), "max_bytes"),
    "flac: 60 million frames of silence": ("evil.flac", lambda: flac(60_000_000), "max_bytes"),
    "flac: a header of 60 billion frames": ("evil.flac", lambda: flac(1000, says=60 * GIGABYTE), "max_bytes"),
    "wav: a width of 9 bytes": ("evil.wav", lambda: wav(100)[:34] + struct.pack("<H", 72) + wav(100)[36:], ""),
}


# --- video ------------------------------------------------------------------------------------------------------------


@cache
def video(kind: str, codec: str, side: int, count: int) -> bytes:
    """Black frames."""
    import av

    out = io.BytesIO()
    with av.open(out, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=30)
        stream.width = stream.height = side
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        frame = av.VideoFrame(side, side, stream.pix_fmt)
        for number in range(count):
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def growing() -> bytes:
    """An AVI whose second frame has other sides than the first, and than its header says."""
    import av
    from PIL import Image

    out, large = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (4096, 4096)).save(large, "JPEG")
    with av.open(out, "w", format="avi") as container:
        stream = container.add_stream("mjpeg", rate=30)
        stream.width = stream.height = 16
        stream.pix_fmt = "yuvj420p"
        for number, data in enumerate((small("JPEG"), large.getvalue(), large.getvalue())):
            packet = av.Packet(data)
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, number, number, Fraction(1, 30)
            packet.is_keyframe = True
            container.mux(packet)
    return out.getvalue()


VIDEOS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "avi: 4500 frames": ("evil.avi", lambda: video("avi", "mpeg4", 128, 4500)),
    "mp4: 4500 frames": ("evil.mp4", lambda: video("mp4", "mpeg4", 128, 4500)),
    "mkv: 4500 frames": ("evil.mkv", lambda: video("matroska", "mpeg4", 128, 4500)),
    "avi: a frame of 4096 x 4096": ("evil.avi", lambda: video("avi", "mpeg4", 4096, 1)),
    "mp4: a frame of 4096 x 4096": ("evil.mp4", lambda: video("mp4", "mpeg4", 4096, 1)),
    "avi: frames that grow": ("evil.avi", growing),
}


def video_cases() -> list[Case]:
    found = []
    for attack, (name, make) in VIDEOS.items():
        kind = attack.partition(":")[0]
        reads = {"all": "opened(path).decode()"}
        reads["some"] = "opened(path).decode(frames=4400)" if "4500" in attack else "opened(path).decode(frames=2)"
        says = "avi video|max_bytes" if "grow" in attack else "max_bytes"
        found += [
            Case(kind, "plain", f"{attack}, {which}", file(name, make), read, says) for which, read in reads.items()
        ]
    return found


# --- arrays and documents ---------------------------------------------------------------------------------------------


def npy(shape: tuple[int, ...], data: bytes = b"", version: int = 1) -> bytes:
    """An array as numpy writes it, whose header says this shape."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head = head.ljust(118) + b"\n"
    size = struct.pack("<H" if version == 1 else "<L", len(head))
    return b"\x93NUMPY" + bytes([version, 0]) + size + head + data


def deflated(head: bytes, zeros: int) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    pieces = [packer.compress(head), *(packer.compress(bytes(10**7)) for _ in range(zeros // 10**7)), packer.flush()]
    return b"".join(pieces)


SHAPE = (50_000_000,)
SIZE = len(npy(SHAPE)) + 8 * SHAPE[0]
ARRAYS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "npy: a shape of exabytes": ("evil.npy", lambda: npy((2**40, 2**20)), "cut off"),
    "npy: a shape of 8 GB": ("evil.npy", lambda: npy((10**9,), bytes(100)), "cut off"),
    **{
        f"npy: a shape of {shape}, version {version}": (
            "evil.npy",
            lambda shape=shape, version=version: npy(shape, bytes(100), version),
            says,
        )
        for version in (1, 2, 3)
        for shape, says in {(10**9,): "cut off", (-(10**5), -(10**5)): "cut off", (-5,): "negative"}.items()
    },
    "npz: an array of 400 MB": (
        "evil.npz",
        lambda: zipped(DEFLATE, deflated(npy(SHAPE), 8 * SHAPE[0]), SIZE, "a.npy"),
        "max_bytes",
    ),
    "npz: an array of 400 MB that says it has 100 bytes": (
        "evil.npz",
        lambda: zipped(DEFLATE, deflated(npy(SHAPE), 8 * SHAPE[0]), 100, "a.npy"),
        "",
    ),
    "npz: an array of 3 GB in bzip2": (
        "evil.npz",
        lambda: zipped(BZIP2, packed("bzip2", npy(SHAPE), 3 * GIGABYTE), 100, "a.npy"),
        "max_bytes",
    ),
    "json: a document of lists": ("evil.json", lambda: b"[" + b"[]," * 20_000_000 + b"0]", "max_bytes"),
    "json: a document of brackets": ("evil.json", lambda: b"[" * 1_000_000, "recursion"),
}


def decoded(table: dict[str, tuple[str, Callable[[], bytes], str]]) -> list[Case]:
    return [
        Case(attack.partition(":")[0], "plain", attack, file(name, make), "opened(path).decode()", says)
        for attack, (name, make, says) in table.items()
    ]


CASES = [*image_cases(), *decoded(SOUNDS), *video_cases(), *decoded(ARRAYS)]
