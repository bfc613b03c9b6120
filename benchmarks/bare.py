"""Bare processes: what the machine gives with no loader at all, to hold a loader's figure against."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection


def in_processes(count: int, measured: Callable[[int], float]) -> list[float]:
    """What `measured(number)` says in each of `count` forked processes that run at the same time."""
    fork = multiprocessing.get_context("fork")
    answers: list[Connection] = []
    processes = []
    for number in range(count):
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=_send, args=(theirs, measured, number))
        process.start()
        theirs.close()
        answers.append(ours)
        processes.append(process)
    said = [float(answer.recv()) for answer in answers]
    for process in processes:
        process.join()
    return said


def _send(to: Connection, measured: Callable[[int], float], number: int) -> None:
    to.send(measured(number))
