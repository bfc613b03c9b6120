"""HF datasets in streaming mode over Parquet files, with its shuffle buffer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class HfStreaming:
    @contextmanager
    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> Iterator[Any]:
        import datasets

        data = datasets.load_dataset("parquet", data_files=paths, split="train", streaming=True)
        yield data.shuffle(seed=1, buffer_size=max(rows, size)).with_format("numpy").iter(batch_size=size)


SUBJECT = HfStreaming()
