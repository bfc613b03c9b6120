"""Why worker processes eat memory, and what `headrace.share` does about it.

A forked worker shares its parent's memory until somebody writes to it. Reading a Python object writes its reference
count, so a worker that only reads a list ends with a copy of it. Frozen data has no reference counts.

    python examples/labs/memory_growth.py --items 200000

Each of torch's DataLoader workers reads every record of the list, and looks at its own private memory
(`Private_Dirty` of /proc/self/smaps_rollup) at its first and at its last sample. Linux only.
"""

import argparse
import gc
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from timeit import timeit
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from headrace.memory.share import share

MB = 1 << 20
Records = Sequence[Mapping[str, Any]]


def private_memory() -> int:
    """Bytes that belong to this process alone."""
    found = re.search(r"^Private_Dirty:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found, "this kernel does not report private memory"
    return int(found[1]) * 1024


def make_records(items: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"img_{i}.jpg", "label": i % 10} for i in range(items)]


class ReadsEverything(IterableDataset[tuple[int, int, int]]):
    """Yields one thing: (worker, private memory at the first sample, private memory at the last sample)."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        first = 0
        for record in self.records:
            for _ in record.values():
                pass
            first = first or private_memory()
        info = get_worker_info()
        yield info.id if info else 0, first, private_memory()


def measure(name: str, records: Records, size: int, workers: int) -> None:
    loader = DataLoader(ReadsEverything(records), batch_size=None, num_workers=workers, multiprocessing_context="fork")
    for worker, first, last in sorted(loader):
        grown = last - first
        print(f"{name:12} {worker:6} {first / MB:9.1f} MB {last / MB:8.1f} MB {grown / MB:8.1f} MB {grown / size:7.1%}")


def access_cost(name: str, records: Records) -> None:
    turns, middle = 100_000, len(records) // 2
    record = 1e6 / turns * timeit(lambda: records[middle], number=turns)
    field = 1e6 / turns * timeit(lambda: records[middle]["label"], number=turns)
    text = 1e6 / turns * timeit(lambda: records[middle]["name"], number=turns)
    print(f"{name:12} one record {record:5.2f} us, its number {field:5.2f} us, its string {text:5.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description="private memory of workers: a plain list against headrace.share")
    parser.add_argument("--items", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()

    before = private_memory()
    records = make_records(options.items)
    size = private_memory() - before
    start = time.perf_counter()
    shared = share(records)
    took = time.perf_counter() - start
    frozen = private_memory() - before - size
    print(f"{options.items} records: a list of {size / MB:.1f} MB; frozen in {took:.2f} s into {frozen / MB:.1f} MB\n")

    access_cost("plain list", records)
    access_cost("shared", shared)

    print("\n             worker first sample  last sample       growth of the list")
    measure("plain list", records, size, options.workers)
    # Out of the way before the others start: garbage collection in a worker would touch it too.
    del records
    gc.collect()
    measure("shared", shared, size, options.workers)


if __name__ == "__main__":
    main()
