"""Reading from a bucket: `python -m benchmarks.bucket` measures every way of reading against a server on loopback.

The server is another process. It waits 30 ms before the first byte of every answer, and sends 40 MB a second on each
connection: what object stores do. Each figure is the median of several rounds, in a process that has read nothing of
the files before; bytes are those that the server has sent.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import numpy as np

MB = 1_000_000
LATENCY, RATE = 0.03, 40.0 * MB
ROWS, COLUMNS, GROUPS = 500_000, 16, 16


def parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(0)
    table = pa.table({"n": np.arange(ROWS), **{f"c{i}": chance.random(ROWS) for i in range(1, COLUMNS)}})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=ROWS // GROUPS, compression="none", use_dictionary=False)
    return out.getvalue()


def tar(samples: int, size: int) -> bytes:
    out = io.BytesIO()
    content = np.random.default_rng(1).bytes(size)
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(samples):
            info = tarfile.TarInfo(f"{number:06}.jpg")
            info.size = size
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def objects() -> dict[str, bytes]:
    chance = np.random.default_rng(2)
    small = {f"bkt/small/{n:02}": chance.bytes(100_000) for n in range(60)}
    return {"bkt/large": chance.bytes(64 << 20), "bkt/x.parquet": parquet(), "bkt/x.tar": tar(640, 100_000), **small}


# --- what is measured ---------------------------------------------------------------------------------------------


def stream(root: str) -> int:
    from headrace.sources.open import open_path

    done = 0
    with open_path(f"{root}/large") as file:
        while data := file.read(1 << 20):
            done += len(data)
    return done


def whole_parquet(root: str) -> int:
    return _table(root, None)


def two_columns(root: str) -> int:
    return _table(root, ["c3", "c9"])


def filtered(root: str) -> int:
    import pyarrow.compute as pc

    return _table(root, None, pc.field("n") >= 3 * ROWS // 4)


def _table(root: str, columns: list[str] | None, only: Any = None) -> int:
    from headrace import Loader, Pipe

    pipe: Any = Pipe.parquet(f"{root}/x.parquet", columns=columns)
    pipe = pipe if only is None else pipe.filter(only)
    with Loader(pipe.batch(8192)) as loader:
        return sum(value.nbytes for batch in loader for value in batch.values())


def small_objects(root: str) -> int:
    from headrace import Loader, Pipe

    pipe = Pipe.files([f"{root}/small/{n:02}" for n in range(60)]).open_files("rb").read_from_stream()
    with Loader(pipe) as loader:
        return sum(len(data) for _, data in loader)


def tar_by_number(root: str) -> int:
    from headrace import Loader, Pipe

    pipe = Pipe.stored(f"{root}/x.tar", index=INDEX).shuffle().batch(32)
    with Loader(pipe) as loader:
        return sum(len(sample[".jpg"]) for batch in loader for sample in batch)


def tar_stream(root: str) -> int:
    from headrace import Loader, Pipe

    with Loader(Pipe.shards(f"{root}/x.tar").batch(32)) as loader:
        return sum(len(sample[".jpg"]) for batch in loader for sample in batch)


INDEX = os.path.join(tempfile.gettempdir(), "headrace-bench-index")
WAYS: dict[str, Callable[[str], int]] = {
    "a file of 64 MB, front to back": stream,
    "Parquet, whole": whole_parquet,
    "Parquet, 2 of 16 columns": two_columns,
    "Parquet, a filter that keeps a quarter": filtered,
    "60 objects of 100 kB": small_objects,
    "tar, in order": tar_stream,
    "tar by number, shuffled": tar_by_number,
}


def measure(name: str, root: str, control: str) -> dict[str, float]:
    """One reading in this process."""
    import headrace.loader  # noqa: F401 - imports are not what is measured

    if "Parquet" in name:
        import pyarrow.dataset
        import pyarrow.parquet  # noqa: F401
    if "s3:" in root:
        from headrace.sources.open import open_path

        open_path(f"{root}/small/00").close()  # (connects, and finds credentials)
    if "number" in name:
        from headrace import Pipe

        len(Pipe.stored(f"{root}/x.tar", index=INDEX))
    _told(control, "reset")
    begun = time.perf_counter()
    read = WAYS[name](root)
    seconds = time.perf_counter() - begun
    told = _told(control, "told")
    return {"seconds": seconds, "bytes": read, "sent": told["sent"], "requests": told["requests"]}


def _told(control: str, what: str) -> dict[str, int]:
    with urlopen(f"{control}/-{what}") as answer:
        found: dict[str, int] = json.load(answer)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--http", action="store_true", help="by http:// instead of s3://")
    parser.add_argument("--measure", nargs=3, metavar=("NAME", "ROOT", "CONTROL"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
        return
    from benchmarks.store import served

    with served(objects(), LATENCY, RATE) as url:
        root = f"{url}/bkt" if args.http else "s3://bkt"
        keys = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
        environment = {**os.environ, **keys, "AWS_ENDPOINT_URL": url}
        print("| | seconds | MB/s | sent / read | requests |\n|---|---:|---:|---:|---:|")
        for name in WAYS:
            if args.only not in name:
                continue
            command = [sys.executable, "-m", "benchmarks.bucket", "--measure", name, root, url]
            runs = [
                json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
                for _ in range(args.rounds)
            ]
            middle = sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]
            rate = statistics.median(run["bytes"] / run["seconds"] for run in runs) / MB
            print(
                f"| {name} | {middle['seconds']:.2f} | {rate:.0f} | {middle['sent'] / middle['bytes']:.2f} | "
                f"{middle['requests']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
