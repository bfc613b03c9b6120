"""Voting: equal step counts for ranks that cannot know their lengths in advance, and one snapshot for all of them.

Before each handful of steps the ranks vote: each says how many batches it has ready, and all take the smallest number.
When a rank has fewer than a handful, that vote is the last: everybody stops after the same step, and what others had
left over is counted and named in one warning.

With its vote a rank says where it will stand after each of these steps. So after any step every rank can say where the
whole job stands:

    turns      positions are dealt one by one, samples are regrouped once at most: two numbers a rank (see `turns`);
               loads on any number of ranks
    others     the place of every rank at the last vote, and how many steps ago that was: ["w", steps, [place, ...]];
               loads on as many ranks
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.engine.snapshot import plain_state

log = logging.getLogger("headrace")
HANDFUL = 8
FAILED = -1

Rows = Callable[[list[int]], list[list[int]]]
Texts = Callable[[bytes], list[bytes]]


class _Voted(NamedTuple):
    """What is known after a vote."""

    places: list[Any]
    """Of this rank, after each step."""
    progress: list[list[tuple[int, int]]]
    """After each step, of each share: tickets behind, outputs gone."""
    skipped: int
    everyone: list[Any]
    """Where the ranks stood at the vote, where that is all there is to say."""


class Ballot:
    """The votes of one epoch. It knows where the job stands, and holds on to nothing that runs."""

    def __init__(
        self,
        rows: Rows,
        texts: Texts,
        share: int,
        at: Any = None,
        turns: tuple[int, int] | None = None,
        behind: int = 0,
        handful: int = HANDFUL,
    ) -> None:
        self._rows = rows
        self._texts = texts
        self._share = share
        self._turns = turns
        """Where ranks take positions in turn: steps before the epoch began or went on, and samples in a step."""
        self._settled = at
        self.behind = behind
        """Steps that were delivered already when the snapshot was taken."""
        self.handful = handful
        self._voted: _Voted | None = None
        self._steps = self._step = 0
        """Before the last vote, and since."""

    def watch(self, source: Iterator[Any], mark: Callable[[], Any]) -> Iterator[Any]:
        return Voting(source, mark, self)

    def cast(self, ready: int, before: Any, after: list[Any]) -> int:
        """How many steps all ranks can make, or FAILED; where this one stood, and will stand after each step."""
        if self._voted is not None:
            self._settled = self.place()
            self._steps += self._step
        width = 2 * self.handful if self._turns is not None else 0
        mine = [n for place in after for n in _progress(place)] if self._turns is not None else []
        skipped = after[-1][2] if self._turns is not None and after else 0
        row = [ready, self._share, skipped, *mine, *([0] * (width - len(mine)))]
        rows = self._rows(row)
        granted = min(row[0] for row in rows)
        if granted == FAILED:
            return FAILED
        shares = {row[1]: row for row in rows}
        table = [
            [(row[3 + 2 * step], row[4 + 2 * step]) for _, row in sorted(shares.items())]
            for step in range(granted if self._turns is not None else 0)
        ]
        everyone: list[Any] = []
        if self._turns is None:
            texts = self._texts(json.dumps(plain_state(before)).encode())
            places = {row[1]: json.loads(text) for row, text in zip(rows, texts, strict=True)}
            everyone = [place for _, place in sorted(places.items())]
        self._voted = _Voted(after, table, sum(row[2] for row in shares.values()) // len(shares), everyone)
        self._step = 0
        return granted

    def delivered(self) -> None:
        self._step += 1

    def place(self) -> Any:
        """Where the whole job stands; None: at the start of the epoch."""
        voted, step = self._voted, self._step
        if voted is None:
            return self._settled
        if self._turns is None:
            return ("w", step, voted.everyone)
        if not step:
            return self._settled
        _, _, rest, block, _ = voted.places[step - 1][0][1]
        progress = tuple(voted.progress[step - 1])
        behind = sum(tickets for tickets, _ in progress) * block // len(progress)
        number, group = self._turns
        number = (number + self._steps + step) if group else 0
        return ("r", ("j", behind, rest, block, progress), 0, number * group, number), 0, voted.skipped


def _progress(place: Any) -> tuple[int, int]:
    """Tickets behind a rank, and outputs gone of the next."""
    (_, inner, offset, _, _), gone, _ = place
    return inner[4][0][0], offset + gone


class Voting(Iterator[Any]):
    """The samples of `source`, as far as every rank can follow."""

    def __init__(self, source: Iterator[Any], mark: Callable[[], Any], ballot: Ballot) -> None:
        self._source = source
        self._mark = mark
        self._ballot = ballot
        self._ready: deque[Any] = deque()
        self._granted = 0
        self._over = False
        self.surplus = 0
        """Batches of this rank that could not be delivered."""

    def __next__(self) -> Any:
        while True:
            if not self._granted:
                if self._over:
                    raise StopIteration
                self._vote()
                if not self._granted:
                    raise StopIteration
            self._granted -= 1
            self._ballot.delivered()
            sample = self._ready.popleft()
            if not self._ballot.behind:
                return sample
            self._ballot.behind -= 1

    def _vote(self) -> None:
        ballot = self._ballot
        before = self._mark()
        after: list[Any] = []
        try:
            while len(self._ready) < ballot.handful:
                self._ready.append(next(self._source))
                after.append(self._mark())
        except StopIteration:
            pass
        except BaseException as error:
            self._over = True
            try:
                ballot.cast(FAILED, before, [])
            finally:
                raise error  # also when the others cannot be told
        granted = ballot.cast(len(self._ready), before, after)
        if granted == FAILED:
            self._over = True
            raise RuntimeError("another rank failed; its own error says why")
        self._granted = granted
        if granted < ballot.handful:
            self._over = True
            self._count_surplus()

    def _count_surplus(self) -> None:
        self.surplus = len(self._ready) - self._granted + sum(1 for _ in self._source)
        if self.surplus:
            log.warning(
                "%d batches of this rank are left out, because another rank has no more; "
                "every rank takes the same number of steps",
                self.surplus,
            )
