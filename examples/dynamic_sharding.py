"""One slow rank among several: static sharding waits for it, dynamic sharding gives its work to the others.

    python examples/dynamic_sharding.py [--ranks 2] [--samples 400] [--seconds 0.01] [--slower 5]

Starts the ranks itself (through `headrace run`). The last rank needs `slower` times as long for a sample. Prints how
long an epoch takes with either sharding, the ratio, and whether every sample came exactly once.
"""

import argparse
import subprocess
import sys
import time
from typing import Literal

from headrace import Loader, Pipe, World


class Slow:
    """Numbers that take a while, longer on the last rank."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> int:
        time.sleep(self.seconds)
        return i


def epoch(world: World, data: Slow, sharding: Literal["static", "dynamic"]) -> tuple[float, list[list[int]]]:
    """How long the slowest rank took, and what each of them got."""
    import torch.distributed as dist

    with Loader(Pipe.of(data).shuffle().batch(4), seed=1, world=world, sharding=sharding, workers=1) as loader:
        dist.barrier()
        begin = time.perf_counter()
        mine = [i for batch in loader for i in batch]
        seconds = time.perf_counter() - begin
        everyone: list[tuple[float, list[int]]] = [(0.0, [])] * world.ranks
        dist.all_gather_object(everyone, (seconds, mine))
    return max(taken for taken, _ in everyone), [got for _, got in everyone]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=0.01)
    parser.add_argument("--slower", type=float, default=5.0)
    args = parser.parse_args()
    world = World.detect()
    if world.source == "none":
        ranks = [sys.executable, "-m", "headrace.cli", "run", "--num-instances", str(args.ranks)]
        return subprocess.run([*ranks, "--only-output-from-instance", "0", sys.executable, *sys.argv]).returncode
    import torch.distributed as dist

    dist.init_process_group("gloo")
    last = world.rank == world.ranks - 1
    data = Slow(args.samples, args.seconds * (args.slower if last else 1.0))
    times = {}
    ways: tuple[Literal["static", "dynamic"], ...] = ("static", "dynamic")
    for sharding in ways:
        times[sharding], got = epoch(world, data, sharding)
        if world.rank == 0:
            once = sorted(i for mine in got for i in mine) == list(range(args.samples))
            print(f"{sharding:8} {times[sharding]:6.2f} s   samples by rank {[len(mine) for mine in got]}")
            print(f"{'':8} every sample exactly once: {once}")
    if world.rank == 0:
        print(f"dynamic / static = {times['dynamic'] / times['static']:.0%}")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
