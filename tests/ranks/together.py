"""Ranks as threads of one process: what they settle over gloo is settled under a lock here."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace import World
from headrace.ranks.agree import Agreement


class Meeting:
    """What the ranks of one job give, to each of them."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._given: list[list[Any]] = [[] for _ in range(ranks)]
        """Of each rank, in order."""
        self._changed = threading.Condition()
        self._left: set[int] = set()

    def gather(self, rank: int, thing: Any) -> list[Any]:
        with self._changed:
            number = len(self._given[rank])
            self._given[rank].append(thing)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._missing(number) <= self._left, timeout=20)
            if missing := self._missing(number):
                raise ConnectionError(f"another rank (of {sorted(missing)}) does not come any more")
            return [theirs[number] for theirs in self._given]

    def _missing(self, number: int) -> set[int]:
        return {rank for rank, theirs in enumerate(self._given) if len(theirs) <= number}

    def leave(self, rank: int) -> None:
        """Nobody waits any longer for what this rank has not given."""
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()


class Seat:
    """An Agreement's place, seen from one rank."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self._rank = rank

    def rows(self, row: list[int]) -> list[list[int]]:
        return self._meeting.gather(self._rank, row)

    def texts(self, text: bytes) -> list[bytes]:
        return self._meeting.gather(self._rank, text)

    def broadcast(self, number: int) -> int:
        return self._meeting.gather(self._rank, number)[0]  # type: ignore[no-any-return]

    def close(self) -> None:
        self._meeting.leave(self._rank)

    @property
    def rank(self) -> int:
        return self._rank

    def same(self, facts: dict[str, Any]) -> None:
        Agreement.same(self, facts)  # type: ignore[arg-type]


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
            meeting.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if "another rank" not in str(e) and str(e)), errors[0])
    return results
