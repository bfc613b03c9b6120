"""Compressed files are refused: no sample of them can be read without all that stands before it."""

from headrace.sources.bytes import ByteFile, DamagedFile

ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zstd", ".br", ".snappy")
HEADS = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ")
"""First bytes of gzip, zstd and xz."""
BZIP2 = b"BZh"
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What stands 4 bytes behind the start of a bzip2 file: its first block, or its end. (A name in a tar file may begin
with "BZh".)"""


def check_name(path: str) -> None:
    """Raise if the name of a file says that it is compressed."""
    if path.lower().endswith(ENDINGS):
        raise _refusal(path)


def check_content(file: ByteFile) -> None:
    """Raise if the first bytes of a file say that it is compressed."""
    head = bytes(file.pread(0, min(10, file.size)))
    if head.startswith(HEADS) or (head.startswith(BZIP2) and head[4:] in BZIP2_BLOCKS):
        raise _refusal(file.path)


def _refusal(path: str) -> DamagedFile:
    return DamagedFile(
        f"{path} is compressed, so no sample of it can be read by itself: decompress it once (or read gzip, bzip2 and "
        'xz as streams, tar files with Pipe.shards(...), others with Pipe.files(...).open_files("rb").decompress())'
    )
