"""Ray Data over Parquet files, with the local shuffle that its guide recommends for training."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RayData:
    @contextmanager
    def parquet(self, paths: list[str], *, size: int, memory: int, rows: int) -> Iterator[Any]:
        import ray

        ray.init(num_cpus=2, object_store_memory=max(memory, 80_000_000), include_dashboard=False, log_to_driver=False)
        try:
            ray.data.DataContext.get_current().enable_progress_bars = False
            data = ray.data.read_parquet(paths, shuffle="files")
            yield data.iter_batches(batch_size=size, local_shuffle_buffer_size=max(rows, size), batch_format="numpy")
        finally:
            ray.shutdown()


SUBJECT = RayData()
