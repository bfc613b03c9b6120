"""Workers on a Ray cluster: the same loader, with `kind="ray"`.

    pip install 'headrace[ray]'
    python examples/ray_actors.py             starts a small cluster in this machine
    python examples/ray_actors.py auto        joins the cluster that is there

The stream is the one of every other kind of worker. An actor or a node that is lost is replaced, and its work is done
again by the others.
"""

import sys

import numpy as np
import ray

from headrace import Loader, Pipe


def noisy(x: int) -> float:
    return x + np.random.rand()


def main(address: str | None) -> None:
    options = {"address": address} if address else {"num_cpus": 2, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level="ERROR", **options)
    try:
        pipe = Pipe.of(range(1000)).shuffle().map(noisy).batch(50).collate()
        with Loader(pipe, seed=7) as alone:
            want = [batch.tolist() for batch in alone]
        with Loader(pipe, workers=2, kind="ray", seed=7) as loader:
            got = [batch.tolist() for batch in loader]
        assert got == want
        print(f"{len(got)} batches from 2 actors: the same samples, order and random values as without")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
