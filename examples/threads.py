"""The same stream without worker processes: inline and in threads, on every system.

    python examples/threads.py

Worker processes need Linux. Threads run anywhere, and are the better workers where the work waits for a disk or a
network, or happens in code that lets other threads run (numpy, decoders, most of Arrow). Random values come from
`headrace.rng()`, which belongs to the sample: threads share the global generators and cannot use them repeatably.
"""

import json
from collections.abc import Iterable

import numpy as np

import headrace
from headrace import Loader, Pipe


def noisy(x: int) -> float:
    return x + headrace.rng().random()


def read(batches: Iterable[np.ndarray]) -> list[list[float]]:
    return [batch.tolist() for batch in batches]


def main() -> None:
    pipe = Pipe.of(range(1000)).shuffle().map(noisy).batch(32).collate()
    whole = read(Loader(pipe, seed=7))
    with Loader(pipe, workers=4, kind="thread", seed=7) as loader:
        assert read(loader) == whole
    print(f"{len(whole)} batches, the same inline and in 4 threads")

    with Loader(pipe, workers=2, kind="thread", seed=7) as loader:
        batches = iter(loader)
        begun = [next(batches).tolist() for _ in range(10)]
        saved = json.dumps(loader.state_dict())
    resumed = Loader(pipe, seed=7)
    resumed.load_state_dict(json.loads(saved))
    assert begun + read(resumed) == whole
    print(f"stopped after 10 batches and went on, inline, from {len(saved)} bytes")


if __name__ == "__main__":
    main()
