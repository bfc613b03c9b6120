"""Documents, token files and tokenizers for the tests of the text path."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school")


def letters(text: str) -> list[int]:
    """A tokenizer: one token a letter."""
    return [ord(letter) - 96 for letter in text if letter != " "]


def texts(count: int, seed: int = 0) -> list[str]:
    chance = np.random.default_rng(seed)
    return [" ".join(chance.choice(WORDS, n)) for n in chance.integers(0, 12, count)]


def write_tokens(path: Path, documents: list[Any], code: int = 4, dtype: str = "<i4") -> str:
    """A pair of token files as Megatron lays them out, written by hand: the reader is not trusted to check itself."""
    lengths = [len(document) for document in documents]
    starts = np.cumsum([0, *lengths])[:-1] * np.dtype(dtype).itemsize
    path.with_suffix(".bin").write_bytes(b"".join(np.asarray(d, dtype).tobytes() for d in documents))
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(documents), len(documents) + 1)
    tail = np.arange(len(documents) + 1, dtype="<i8").tobytes()
    path.with_suffix(".idx").write_bytes(
        head + np.asarray(lengths, "<i4").tobytes() + starts.astype("<i8").tobytes() + tail
    )
    return str(path.with_suffix(".bin"))
