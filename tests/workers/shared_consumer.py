"""A consumer of a shared pool, as a program: `python -m tests.workers.shared_consumer POOL PIPE OUT KEY=VALUE ...`.

It writes what it got, as text, one line a batch, to OUT, and flushes after each. Options: `rank`, `ranks`, `epochs`,
`stop` (batches after which it leaves the epoch), `die` (after which it kills itself), `copy` (it leaves a forked copy
of itself behind, until OUT.go0 is opened), `pause` (batches after which it waits until somebody writes to the pipe
OUT.go0, in the next epoch OUT.go1, and so on).
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Loader, Pipe, World
from tests.laws.pipes import Numbers, drawn, odd, some, stream


def image(x: int) -> Any:
    return np.full((3, 50, 50), x, np.int64)


PIPES = {
    "indexed": Pipe.of(Numbers(203)).shuffle().map(drawn).batch(4),
    "filtered": Pipe.of(Numbers(203)).shuffle().map(drawn).filter(odd).batch(4).map(drawn),
    "assembled": Pipe.of(Numbers(203)).flatmap(some).batch(4),
    "streamed": Pipe.of(stream(203)).shuffle(window=20).sharding_filter().map(drawn).batch(4),
    "only a stream": Pipe.of(stream(203)).shuffle(buffer_size=10),
    "images": Pipe.of(Numbers(203)).map(image).batch(4).collate(),
    "filtered images": Pipe.of(Numbers(203)).map(image).filter(lambda a: a[0, 0, 0] % 3 > 0).batch(4).collate(),
    "endless": Pipe.of(Numbers(10**9)).batch(4),
}


def told(batch: Any) -> str:
    if isinstance(batch, np.ndarray):
        text = repr(batch.reshape(len(batch), -1)[:, ::1000].tolist())
        batch += 1000  # what one consumer writes, no other one may see
        return text
    return repr(batch)


def main() -> None:
    pool, name, out, *given = sys.argv[1:]
    options = dict(item.split("=") for item in given)
    number = {key: int(value) for key, value in options.items()}
    world = World(rank=number.get("rank", 0), ranks=number.get("ranks", 1))
    with open(out, "w", buffering=1) as file, Loader(PIPES[name], seed=3, pool=pool, world=world) as loader:
        for epoch in range(number.get("epochs", 1)):
            for i, batch in enumerate(loader):
                file.write(told(batch) + "\n")
                if i + 1 == number.get("die"):
                    if "copy" in number and os.fork() == 0:
                        wait_for(Path(f"{out}.go0"))
                        os._exit(0)
                    os.kill(os.getpid(), signal.SIGKILL)
                if i + 1 == number.get("stop"):
                    break
                if i + 1 == number.get("pause"):
                    wait_for(Path(f"{out}.go{epoch}"))


def wait_for(fifo: Path) -> None:
    """Until somebody opens the other end."""
    with open(fifo):
        pass


if __name__ == "__main__":
    main()
