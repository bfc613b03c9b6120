"""What several consumers of one stream cost: the processor time of the workers, how far apart they run, a killed one.

    python examples/labs/shared_pool.py --batches 300 --consumers 1 2 4

Each consumer is a process of its own with its own `Loader(..., pool=...)`. The first one is slow, so that the others
have to wait for it. The last run kills a consumer (SIGKILL) in mid-epoch. The processor time is that of the pool's
worker processes over their whole life, from /proc. Linux only.
"""

import argparse
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import Loader, Pipe, SharedPool

SIZE = 16
TICKS = os.sysconf("SC_CLK_TCK")
Batch = npt.NDArray[np.float64]


class Samples:
    """Each costs about half a millisecond of work."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        sample = np.random.default_rng(index).random((64, 64))
        for _ in range(4):
            sample = np.cos(sample @ sample)
        return sample


def pipe(batches: int) -> Pipe[Any]:
    return Pipe.of(Samples(batches * SIZE)).shuffle().batch(SIZE).collate()


def consume(address: str, batches: int, pause: float, die_after: int) -> None:
    """One consumer: prints the number of each batch, and at the end of the epoch a digest of everything."""
    seen = hashlib.blake2b()
    with Loader(pipe(batches), pool=address) as loader:
        for number, batch in enumerate(loader, 1):
            seen.update(batch)
            print(number, flush=True)
            if number == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(pause)
    print(seen.hexdigest(), flush=True)


def processor_seconds(pids: list[int]) -> float:
    """User and system time of the workers so far."""
    spent = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent / TICKS


class Consumers:
    """Consumer processes, and what they print."""

    def __init__(self, pool: SharedPool, batches: int, count: int, die_after: int = 0) -> None:
        self.processes = []
        for k in range(count):
            told = [str(pool), batches, 0.02 if k == 0 else 0, die_after if k == count - 1 else 0]
            command = [sys.executable, __file__, "--consume", json.dumps(told)]
            self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def lines(self) -> Iterator[tuple[int, str]]:
        """(consumer, line), until all of them have ended."""
        with selectors.DefaultSelector() as ready:
            for k, process in enumerate(self.processes):
                assert process.stdout is not None
                ready.register(process.stdout, selectors.EVENT_READ, (k, process.stdout))
            while ready.get_map():
                for key, _ in ready.select():
                    k, stdout = key.data
                    line = stdout.readline().strip()
                    if line:
                        yield k, line
                    else:
                        ready.unregister(stdout)
                        stdout.close()

    def end(self) -> list[int]:
        return [process.wait(60) for process in self.processes]


def run(batches: int, count: int, workers: int, skew: int, die_after: int = 0) -> dict[str, Any]:
    with SharedPool(workers=workers, consumers=count, same=True, skew=skew) as pool:
        consumers = Consumers(pool, batches, count, die_after)
        place, digests, lead = dict.fromkeys(range(count), 0), set(), 0
        for k, line in consumers.lines():
            if not line.isdigit():
                digests.add(line)
                place.pop(k)
            elif int(line) == die_after and k == count - 1:
                place.pop(k)
            else:
                place[k] = int(line)
                lead = max(lead, place[k] - min(place.values()))
        codes = consumers.end()
        counted = pool.stats()
        spent = processor_seconds(counted["pids"])
    assert len(digests) == 1, "the consumers have seen different streams"
    return {**counted, "seconds": spent, "lead": lead, "codes": codes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--skew", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="seconds and ratios are medians of so many")
    parser.add_argument("--consume", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.consume:
        consume(*json.loads(options.consume))
        return
    # Round by round, so that a machine that others use too slows all of them alike.
    rounds = [
        {count: run(options.batches, count, options.workers, options.skew) for count in options.consumers}
        for _ in range(options.rounds)
    ]
    print("consumers  processor s   of one  batches made  given again  most kept  longest lead")
    for count in options.consumers:
        found = [each[count] for each in rounds]
        spent = median(each["seconds"] for each in found)
        ratio = median(each[count]["seconds"] / each[options.consumers[0]]["seconds"] for each in rounds)
        kept, lead = (max(each[name] for each in found) for name in ("fullest", "lead"))
        made, again = found[-1]["run"], found[-1]["shared"]
        print(f"{count:9} {spent:12.2f} {ratio:7.2f}x {made:13} {again:12} {kept:10} {lead:13}")
    count = max(2, *options.consumers)
    last = run(options.batches, count, options.workers, options.skew, die_after=options.batches // 3)
    print(f"\n{count} consumers, one of them killed: exit codes {last['codes']}, {last['run']} batches made")
    print(f"left in the pool: {last['slots']} slots lent, {last['cache']} results kept")


if __name__ == "__main__":
    main()
