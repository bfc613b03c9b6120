"""Ranks as threads of one process: what they settle over gloo is settled over a barrier here."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace import World
from headrace.sharing import Agreement


class Meeting:
    """What the ranks of one job give, to each of them."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._given: list[Any] = [None] * ranks
        self._barrier = threading.Barrier(ranks, timeout=20)

    def gather(self, rank: int, thing: Any) -> list[Any]:
        self._given[rank] = thing
        self._barrier.wait()
        everyone = list(self._given)
        self._barrier.wait()  # nobody gives the next thing before all have seen this one
        return everyone

    def leave(self) -> None:
        self._barrier.abort()


class Seat:
    """An Agreement's place, seen from one rank."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self._rank = rank

    def rows(self, row: list[int]) -> list[list[int]]:
        return self._meeting.gather(self._rank, row)

    def texts(self, text: bytes) -> list[bytes]:
        return self._meeting.gather(self._rank, text)

    def close(self) -> None:
        pass

    def same(self, facts: dict[str, Any]) -> None:
        everyone = self._meeting.gather(self._rank, facts)
        assert all(theirs == everyone[0] for theirs in everyone)


def together(ranks: int, body: Callable[[World], Any], monkeypatch: pytest.MonkeyPatch, replicas: int = 1) -> list[Any]:
    """What `body` returns on each rank."""
    meeting = Meeting(ranks)
    monkeypatch.setattr(Agreement, "of", lambda world, timeout=0: Seat(meeting, world.rank))
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = body(World(rank=rank, ranks=ranks, replicas=replicas))
        except BaseException as error:
            errors.append(error)
            meeting.leave()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if "another rank" not in str(e) and str(e)), errors[0])
    return results
