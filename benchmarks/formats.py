"""Stored formats, each written by its own package: `python -m benchmarks.formats NAME FOLDER COUNT` writes one.

A sample is a picture of 12 kB, as bytes or an array, and its number; a line of JSON has a text of 300 letters instead.
What is written lies in the page cache afterwards: what is measured is reading, decoding and transport.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments
from benchmarks.case import Case, Effort, Figures, Subject, Target
from benchmarks.tarfiles import SIDE, write_shards

SIZE, WORKERS, COUNT = 32, 2, 8000
FILES = {"jsonl": "a.jsonl", "tfrecord": "a.tfrecord", "arrayrecord": "a.array_record"}


def pictures(count: int) -> Iterator[tuple[bytes, int]]:
    pixels = np.random.default_rng(8).integers(0, 256, (16, SIDE * SIDE * 3), dtype=np.uint8)
    for number in range(count):
        yield pixels[number % 16].tobytes(), number


def decode(content: Any, number: Any) -> Any:
    return np.frombuffer(bytearray(content), np.uint8), int(number)


def joined(content: bytes, number: int) -> bytes:
    """For formats whose samples are bare bytes."""
    return number.to_bytes(8, "little") + content


def parted(record: bytes) -> Any:
    return decode(record[8:], int.from_bytes(record[:8], "little"))


def from_row(row: Any) -> Any:
    return decode(row["x"], row["n"])


def from_columns(columns: Any) -> Any:
    """Of many rows at once, where a format keeps columns."""
    return np.stack([np.frombuffer(content, np.uint8) for content in columns["x"]]), columns["n"]


def from_example(example: Any) -> Any:
    content = example["x"]
    return decode(content[0] if isinstance(content, list) else content, example["n"][0])


def from_line(row: Any) -> Any:
    return len(row["text"]), row["n"]


DECODERS: dict[str, Callable[[Any], Any]] = {
    "jsonl": from_line, "tfrecord": from_example, "arrayrecord": parted, "mds": from_row, "lance": from_row,
}  # fmt: skip


# --- writing ----------------------------------------------------------------------------------------------------------


def write_tar(folder: Path, count: int) -> None:
    write_shards(folder, 8, count // 8)


def write_jsonl(folder: Path, count: int) -> None:
    with open(folder / FILES["jsonl"], "w") as file:
        for number in range(count):
            file.write(json.dumps({"n": number, "text": "headrace " * 33}) + "\n")


def write_tfrecord(folder: Path, count: int) -> None:
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(folder / FILES["tfrecord"]))
    for content, number in pictures(count):
        writer.write({"x": (content, "byte"), "n": (number, "int")})
    writer.close()


def write_arrayrecord(folder: Path, count: int) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / FILES["arrayrecord"]), "group_size:1")
    for content, number in pictures(count):
        writer.write(joined(content, number))
    writer.close()


def write_mds(folder: Path, count: int) -> None:
    from benchmarks.subjects import mosaic_loader as mosaic

    writing: Any = mosaic.MDSWriter  # type: ignore[attr-defined, unused-ignore]
    with writing(out=str(folder / "mds"), columns={"x": "bytes", "n": "int"}) as writer:
        for content, number in pictures(count):
            writer.write({"x": content, "n": number})


def write_lance(folder: Path, count: int) -> None:
    import lance
    import pyarrow

    contents, numbers = zip(*pictures(count), strict=True)
    lance.write_dataset(pyarrow.table({"x": contents, "n": numbers}), str(folder / "lance"))


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "tar": write_tar, "jsonl": write_jsonl, "tfrecord": write_tfrecord, "arrayrecord": write_arrayrecord,
    "mds": write_mds, "lance": write_lance,
}  # fmt: skip
WRITTEN_BY = {"mds": "mosaic"}
"""Whose environment the writer is in, where it is not ours."""


def place(name: str, folder: Path) -> str:
    """What is given to a reader."""
    return str(folder / "*.tar") if name == "tar" else str(folder / FILES.get(name, name))


# --- measuring --------------------------------------------------------------------------------------------------------


def case(name: str, own: str, least: float) -> Case:
    return Case(
        name=f"formats_{name}",
        question=f"How many samples a second of the format {name}, in batches of {SIZE}, with {WORKERS} workers?",
        targets=(
            Target(f"{name} beside {own}", "samples/s", "samples/s", ("headrace", own), at_least=least),
            Target(f"{name}: resume over start", "resume ms", "ms", at_most=50, less=True, ranked=False),
            Target(
                f"{name}: index", "index bytes", "bytes a sample", at_most=17, less=True, ranked=False
            ),  # 16, and a head a file
        ),
        subjects=("headrace", own),
        needs="stored",
    )


def measure(name: str, subject: Subject, effort: Effort) -> Figures:
    import tempfile

    count = effort.count(COUNT) // 8 * 8
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as made:
        folder = Path(made)
        writer = WRITTEN_BY.get(name)
        python = sys.executable if writer is None else environments.pythons([writer], print)[0][writer]
        subprocess.run([python, "-m", "benchmarks.formats", name, made, str(count)], check=True)
        with subject.stored(name, place(name, folder), size=SIZE, workers=WORKERS) as loader:
            whole_epoch(loader, count)
            epochs = 0
            began = time.perf_counter()
            while (seconds := time.perf_counter() - began) < effort.seconds or not epochs:
                whole_epoch(loader, count)
                epochs += 1
        figures = {"samples/s": epochs * count / seconds}
        if (resumes := getattr(subject, "resumes", None)) is not None:
            figures["resume ms"] = 1000 * resumes(name, place(name, folder), size=SIZE, workers=WORKERS)
            kept = [path for path in folder.rglob("*.index") if path.is_file()]
            figures["index bytes"] = sum(path.stat().st_size for path in kept) / count
    return figures


def whole_epoch(loader: Any, count: int) -> None:
    """Loaders end with a short batch, or leave it out, and come in any order: numbers are what is checked."""
    seen: list[int] = []
    for _, numbers in loader:
        seen += numbers.tolist()
    if len(set(seen)) != len(seen) or len(seen) < count - WORKERS * SIZE:
        raise AssertionError(f"an epoch gave {len(seen)} samples, {len(set(seen))} of them different, of {count}")


if __name__ == "__main__":
    WRITERS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
