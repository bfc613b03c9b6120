"""What happens when a worker is killed: nothing that the training loop could notice.

    python examples/killed_worker.py

Reads an epoch with two worker processes, kills one of them twice on the way, and compares the batches, random values
included, with those of an epoch that nobody disturbed. Needs Linux.
"""

import logging
import os
import signal
import sys

import numpy as np

from headrace import Loader, Pipe

logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")


def noisy(x: int) -> float:
    return x + np.random.rand()


def main() -> None:
    pipe = Pipe.of(range(2000)).shuffle().map(noisy).batch(32).collate()
    with Loader(pipe, seed=7) as alone:
        want = [batch.tolist() for batch in alone]

    got = []
    with Loader(pipe, workers=2, seed=7) as loader:
        for number, batch in enumerate(loader):
            got.append(batch.tolist())
            if number in (10, 30):
                victim = loader.worker_pids()[0]
                print(f"batch {number}: kill -9 {victim}")
                os.kill(victim, signal.SIGKILL)
        replaced = loader.stats().retries

    assert got == want, "the stream has changed"
    print(f"{len(got)} batches, {replaced} workers replaced: the same samples, order and random values as without")


if __name__ == "__main__":
    main()
