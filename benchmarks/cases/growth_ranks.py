"""What ranks cost on one machine: 1 to 16 processes, each with a loader of its own and one worker, at the same time."""

import multiprocessing
from multiprocessing.connection import Connection

from benchmarks import growth
from benchmarks.case import Effort, Figures, Subject
from headrace import Pipe, World

SIZES = (1, 2, 4, 8, 16)
CASE = growth.case("growth_ranks", "What do 1 to 16 ranks on one machine cost, with a worker each?", SIZES)


def measure(subject: Subject, effort: Effort) -> Figures:
    found: Figures = {}
    for ranks in (1, *SIZES):  # the first twice: imports
        costs = together(ranks, effort)
        found |= growth.named(
            ranks,
            {
                "consumer us": sum(cost["consumer us"] for cost in costs) / ranks,
                "memory MB": sum(cost["memory MB"] for cost in costs),
                "start ms": max(cost["start ms"] for cost in costs),
                "snapshot bytes": costs[0]["snapshot bytes"],
            },
        )
    return found


def together(ranks: int, effort: Effort) -> list[Figures]:
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe(duplex=False) for _ in range(ranks)]
    processes = [fork.Process(target=one, args=(ours, rank, ranks, effort)) for rank, (_, ours) in enumerate(pipes)]
    for process in processes:
        process.start()
    costs: list[Figures] = [theirs.recv() for theirs, _ in pipes]
    for process in processes:
        process.join()
    return costs


def one(to: Connection, rank: int, ranks: int, effort: Effort) -> None:
    pipe = Pipe.of(growth.Blocks(10**6, 2**16)).shuffle().batch(16).collate()
    to.send(growth.point(pipe, effort, workers=1, world=World(rank=rank, ranks=ranks)))
