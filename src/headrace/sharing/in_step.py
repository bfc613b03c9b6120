"""In step: equal numbers of steps for ranks that cannot make each other's batches.

Of streams behind the place where ranks part, of ops in the consumer, and of groups that are grouped again, every rank
delivers its own batches, as long as all ranks have one. Batches go by handfuls: with each, ranks tell each other how
many they have ready, and all take the smallest number. When a rank has fewer than a handful, that one is the last: what
other ranks have beyond it is counted and named in one warning. An epoch that had samples and no step is an error.

A rank does not wait for the others while it has something to deliver. With handfuls of 4:

    pulled     0 1 2 3 | 4 5   6 7   8 9   10 | 11   12   13   14 | 15   16 ...   in the consumer, one or two at a step
    told            0        1               2                   3                with the last batch of a handful
    delivered          | 0     1     2     3  | 4    5    6    7  | 8    9 ...
    needed             0                      1                   2               and usually there

How many rounds a rank has begun depends only on the steps that it has made. A rank that fails says so in its round: all
ranks make the steps before it, then it raises its error and the others raise too. The place is that of every rank
before the handful at hand, and how many steps ago that was; it loads on as many ranks.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.engine.epoch import Epoch, Start
from headrace.engine.places import EpochPlace, JobPlace, RunningEpoch, RunPlace, plain_epoch_place
from headrace.engine.program import Program
from headrace.errors import BadPipe, HeadraceError
from headrace.ranks.exchange import EpochRounds, Round
from headrace.sharing.exchanging import ExchangingSharing

log = logging.getLogger("headrace")
HANDFUL = 4
PULLS = 2
"""Batches that are pulled at one step, until enough are held."""
LONGEST = 500
"""Characters of an error that are sent to the other ranks."""
Mask = list[bool] | None


class InStepSharing(ExchangingSharing):
    """Ranks deliver their own batches, in step."""

    _steps: "EqualSteps | None" = None
    each_by_itself = True

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        self._verify(epoch, at)
        if self._must_guess and not isinstance(at, JobPlace):
            return super().begin(epoch, at)
        rounds = self._rounds(epoch)
        here, behind = at, 0
        if isinstance(at, JobPlace):
            here, behind = at.ranks[self._world.share_rank], at.steps
        elif at is not None and not self.program.one_to_one:
            self._refuse(1)
        assert here is None or isinstance(here, RunPlace)
        unit, size = _counting(self.program)
        share = self._world.share_rank
        steps = self._steps = EqualSteps(rounds, share, at, behind, self._ends in ("pad", "repeat"), unit, size)
        return Start(here, None, steps.of, steps.place)

    def _last_mask(self, epoch: Epoch[Any]) -> Mask:
        # Batches are made ahead of the round: the one delivered last is not the one made last.
        return super()._last_mask(epoch) if self._steps is None else self._steps.mask


def _counting(program: Program) -> tuple[str, Callable[[Any], int] | None]:
    """The unit in which samples that a rank has left over are counted, and how many an output is (None: one)."""
    if program.tail or program.last.nodes:
        return ("samples" if program.last.group is None and not program.tail else "batches"), None
    groups = sum(stage.group is not None for stage in program.stages)
    return ("groups" if groups > 1 else "samples"), len if groups else None


@dataclass(eq=False)
class _Handful:
    """Batches that ranks tell each other of together."""

    before: RunPlace
    """Where the run stands before them."""
    ready: int = 0
    """Batches that the run has given."""
    asked: int = 0
    """Batches that the run was asked for."""
    round: Round | None = None


class _Outcome(NamedTuple):
    """What a round has shown."""

    steps: int = 0
    """All ranks have so many batches."""
    last: bool = False
    failed: str = ""
    """Which rank cannot make the step after these, and why."""
    wanting: tuple[int, ...] = ()
    """Ranks without a batch for the next step, if other ranks have one."""


class EqualSteps(Iterator[Any]):
    """The samples of a run, as far as every rank can follow."""

    def __init__(
        self,
        rounds: EpochRounds,
        share: int,
        at: EpochPlace | None,
        behind: int = 0,
        masks: bool = False,
        unit: str = "batches",
        size: Callable[[Any], int] | None = None,
        handful: int = HANDFUL,
    ) -> None:
        """`behind`: steps to make once more that were delivered before the snapshot was taken. `masks`: some batches
        may be filled up."""
        self._rounds, self._share, self._settled, self._behind = rounds, share, at, behind
        self._masks, self._unit, self._size, self._handful = masks, unit, size, handful
        self._begun = at is not None
        """Some steps of the epoch were made before."""
        self.mask: Mask = None
        """The mask of the batch delivered last."""
        self.surplus = 0
        """How many samples this rank could not deliver."""
        self._everyone: tuple[RunPlace, ...] | None = None
        """Where the ranks stood before the handful at hand."""
        self._step = self._handed = 0
        """Steps made of that handful; batches handed over."""
        self._held: deque[tuple[Any, Mask]] = deque()
        self._handfuls: deque[_Handful] = deque()
        """Handfuls that are told or being pulled, oldest first."""
        self._ahead = 0
        """Batches that the run was asked for and that were not delivered, whether it gave as many or not."""
        self._outcome = _Outcome()
        self._left = 0
        """Steps of the outcome that are not made yet."""
        self._error: Exception | None = None
        self._dry = self._final = self._over = False
        """The run has ended, or failed; the round begun last will be the last; nothing comes any more."""

    def of(self, run: RunningEpoch) -> "EqualSteps":
        self._run = run
        return self

    def __next__(self) -> Any:
        while True:
            while not self._left:
                self._begin_handful()
            for _ in range(PULLS):
                if self._ahead < 2 * self._handful and not self._final and not self._outcome.last:
                    self._pull()
            sample, mask = self._held.popleft()
            behind = self._behind
            # (No call between these: they happen together or not at all.)
            self._left -= 1
            self._ahead -= 1
            self._step += 1
            self.mask = mask
            if not behind:
                self._handed += 1
                return sample
            self._behind = behind - 1

    def leave(self) -> None:
        """The epoch was left. EpochRounds that are under way come to their end by themselves."""
        self._over = True
        self._error = None  # its traceback knows this object

    def place(self, received: int | None = None) -> EpochPlace | None:
        """Where the whole job stands; None: at the start of the epoch.

        `received`: batches that have reached the caller, which may be one fewer than were handed out.
        """
        if self._everyone is None or self._behind:
            return self._settled
        step = self._step if received is None else self._step - (self._handed - received)
        return JobPlace(step, self._everyone)

    def _begin_handful(self) -> None:
        """Go on to the next handful, or raise the exception that ends the epoch."""
        if self._outcome.last and not self._over:
            self._end()
        if self._over:
            raise StopIteration
        while not self._handfuls or (told := self._handfuls[0].round) is None:
            self._pull()
        try:
            outcome, everyone = self._read(told)
        except Exception as lost:
            self._over = True
            error, self._error = self._error, None
            if error is None:
                raise
            error.add_note(f"(the other ranks could not be told: {lost})")
            try:
                raise error from error.__cause__
            finally:
                del error
        settled = self.place()
        # (No call between these: an interrupt finds the job before this round or after it.)
        self._settled, self._everyone = settled, everyone
        self._step = 0
        self._outcome, self._left = outcome, outcome.steps
        self._handfuls.popleft()

    def _read(self, round_: Round) -> tuple[_Outcome, tuple[RunPlace, ...]]:
        """What all ranks have told, and where they stood."""
        told = round_.wait()
        ready, failed = [numbers[0] for numbers, _ in told], [numbers[1] for numbers, _ in told]
        said = [json.loads(text) for _, text in told]
        steps = min(ready)
        wrong = [f"rank {rank}: {said[rank][1]}" for rank, bad in enumerate(failed) if bad]
        wanting = tuple(rank for rank, many in enumerate(ready) if many <= steps)
        outcome = _Outcome(
            steps, any(wrong) or steps < self._handful, wrong[0] if wrong else "", wanting if max(ready) > steps else ()
        )
        # (Ranks of one copy of the model stand at one place.)
        shares = dict(sorted((numbers[2], place) for (numbers, _), (place, _) in zip(told, said, strict=True)))
        return outcome, tuple(RunPlace.read(place) for place in shares.values())

    def _pull(self) -> None:
        """Get the next batch of the run, if there is one; with the last one of a handful, tell the others."""
        if not self._handfuls or self._handfuls[-1].round is not None:
            self._handfuls.append(_Handful(self._run.place()))
        handful = self._handfuls[-1]
        if not self._dry:
            try:
                sample = next(self._run)
            except StopIteration:
                self._dry = True
            except Exception as error:
                if not isinstance(error, HeadraceError) and not self._run.consistent:
                    raise  # out of the middle of the loop: a signal handler's, and it is not for later
                self._dry, self._error = True, error
            else:
                self._held.append((sample, self._mask()))
                handful.ready += 1
        handful.asked += 1
        self._ahead += 1
        if handful.asked == self._handful:
            self._final = handful.ready < self._handful
            wrong = self._error if self._final else None
            why = "" if wrong is None else f"{type(wrong).__name__}: {wrong}"[:LONGEST]
            text = json.dumps([plain_epoch_place(handful.before), why]).encode()
            handful.round = self._rounds.begin([handful.ready, int(wrong is not None), self._share], text)

    def _end(self) -> None:
        """All steps are made: raise an error of this rank or of another, or count what is left over."""
        self._over = True
        failed, wanting = self._outcome.failed, self._outcome.wanting
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or its traceback and this frame would keep each other
        if failed:
            raise RuntimeError(f"another rank failed ({failed}); what it printed says more")
        if wanting and not (self._begun or self._handed):
            raise BadPipe(
                "no step of this epoch can be made: behind the ops that decide how many samples there are, there is "
                f"none on rank {', '.join(map(str, wanting))}, and some on others; use fewer ranks, or put these ops "
                "before the place where ranks part"
            )
        self.surplus = sum(self._real(*held) for held in self._held)
        self.surplus += sum(self._real(sample, self._mask()) for sample in self._run)
        if self.surplus:
            log.warning(
                "%d %s of this rank are left out, because another rank has no more; "
                "every rank takes the same number of steps",
                self.surplus, self._unit,
            )  # fmt: skip

    def _mask(self) -> Mask:
        """Which samples of the batch that the run gave last are real."""
        return self._run.mask() if self._masks else None

    def _real(self, sample: Any, mask: Mask) -> int:
        """How many samples are left out with this one, which may be a batch that others fill up."""
        return 1 if self._size is None else self._size(sample) if mask is None else sum(mask)
