"""Sharing: how the ranks of a job share an epoch, and where the whole of it stands.

    Sharing    arithmetic settles everything: ranks know their parts and lengths without a word
    Voted      what each rank will have shows only while it runs: ranks vote on how far they go
    Counted    sharding="dynamic": ranks take the next block from a counter, and may take as many as they can

A loader asks its sharing to begin an epoch at a place (None: at its start) and gets what its own engine has to do.
A place is where the job stands, the same on every rank, and loads in another world.
"""

from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from headrace.engine.dynamic import Dynamic, check_program
from headrace.engine.epoch import Epoch, Watch
from headrace.engine.feeds.counter import Finished
from headrace.engine.feeds.elastic import InTurns
from headrace.engine.feeds.place import Feed
from headrace.engine.feeds.positions import Position
from headrace.engine.feeds.regrouped import Regrouped
from headrace.engine.places import EpochPlace, RunPlace, VotedPlace, plain_epoch_place
from headrace.engine.policy import Policy
from headrace.engine.program import Program, Stage
from headrace.engine.voting import Ballot
from headrace.engine.worlds import in_turns, shares_in_turns
from headrace.errors import BadOption, BadPipe, NoLength, SnapshotRefused
from headrace.op import Each
from headrace.ops.shape.same import FullSync
from headrace.pipe.graph import Pipe
from headrace.plan.seed import key
from headrace.plan.share import Share, deal
from headrace.plan.world import World
from headrace.ranks.agree import TIMEOUT, Agreement, patience
from headrace.ranks.counter import Counter, find_store, leave
from headrace.ranks.env import job
from headrace.ranks.vote import VoteThread

_dynamic: Tally[int] = Tally()


class Start(NamedTuple):
    """What an engine has to do: where to begin, what feeds the first stage if ranks settle that, and who looks on.

    `stands` says where the whole job stands after so many batches of this rank, if that is more than where it does.
    """

    at: RunPlace | None = None
    first: Feed | None = None
    watch: Watch | None = None
    stands: Callable[[int], EpochPlace | None] | None = None


class Sharing:
    """Ranks share by arithmetic."""

    each_its_own = True
    """A snapshot says how far the rank has come that took it; others may be behind or ahead."""

    def __init__(self, program: Program, pipe: Pipe[Any], world: World, ends: str, timeout: float) -> None:
        self.program = program
        self._pipe = pipe
        self._world = world
        self._ends = ends
        self._timeout = timeout
        self._agreement: Agreement | None = None
        self._verified = world.ranks == 1

    @property
    def _steps_are_voted(self) -> bool:
        """Places are those of all ranks at their last vote."""
        return False

    def check(self, at: EpochPlace | None) -> EpochPlace | None:
        """The place out of a snapshot, if it fits. The program may change its form for it."""
        if isinstance(at, VotedPlace):
            if len(at.ranks) != self._world.share_ranks:
                self._refuse(len(at.ranks))
            if not self._steps_are_voted:
                raise SnapshotRefused("the snapshot is of ranks that voted on their steps; those of this pipe do not")
            return at.fit(self.program)
        if at is None:
            return None
        if isinstance(at.place, Regrouped):
            # Taken on ranks that counted samples one by one.
            self.program = with_passing(self.program, FEW)
        elif passing(self.program) and isinstance(at.place, Position | InTurns):
            # Of a loader that handed samples on one by one without looking.
            at = RunPlace(Regrouped(at.place, at.gone), 0, at.skipped)
        return at.fit(self.program)

    def first(self, number: int) -> int:
        """What rank 0 gives, on all ranks; all ask before the same epoch. Without a connection it is what was given."""
        self._connect()
        return number if self._agreement is None else self._agreement.first(number)

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        if not self._verified:
            self._verify(epoch, at)
        if at is None:
            return Start()
        assert isinstance(at, RunPlace)
        return Start(in_turns(at, self.program, self._world, self._length(epoch)) if _dealt_in_turns(at) else at)

    def mask(self, epoch: Epoch[Any]) -> list[bool] | None:
        """Which samples of the batch delivered last are real, where some only fill it."""
        return epoch.mask()

    def retraced(self, at: EpochPlace | None) -> RunPlace | None:
        """The place that an epoch went on from, if its batches can be found again from there."""
        if isinstance(at, VotedPlace) or _dealt_in_turns(at):
            raise BadOption(
                "this epoch went on where ranks had come to different places: its batches cannot be traced from there; "
                "ask for those of an epoch that began at its start"
            )
        return at

    def turn_away(self) -> None:
        """The epoch begun last is of no interest any more."""

    def last(self, epoch: int) -> tuple[int, EpochPlace] | None:
        """Where the job stands after this rank has come to the end of an epoch, if that is not the end of it."""
        return None

    def length(self) -> int:
        """Batches of one epoch on this rank."""
        program, ranks, rank = self.program, self._world.share_ranks, self._world.share_rank
        total, first = program.pipe.length(), program.stages[0]
        whole = all(isinstance(node.op, Each) for node in program.tail)
        if total is not None and program.indexed and len(program.stages) == 1 and whole:
            samples = program.head.length()
            if samples is not None and first.group is not None and first.single:
                policy = "drop" if first.drop_last else self._ends
                return Share(samples, first.group, ranks, rank, policy).steps  # type: ignore[arg-type]
            if first.group is None:
                return len(deal(total, ranks, rank))
        if total is None or ranks > 1:
            raise NoLength(
                "the length of this loader is not known in advance: an op of the pipe decides it while it runs"
            )
        return total

    def close(self, wait: bool = True) -> None:
        """No more epochs."""
        if self._agreement is not None:
            self._agreement.close()

    def _verify(self, epoch: int, at: EpochPlace | None) -> None:
        """Once: ranks that can talk to each other make sure that they were given the same thing."""
        self._connect()
        if self._agreement is not None:
            self._agreement.same(self._facts(epoch, at))
        self._verified = True

    def _connect(self) -> None:
        if self._agreement is None:
            self._agreement = Agreement.of(self._world, self._timeout)

    def _facts(self, epoch: int, at: EpochPlace | None) -> dict[str, Any]:
        return {
            "pipe": self._pipe.fingerprint(),
            "seed": self.program.seed,
            "length": self._pipe.length(),
            "batch size": [stage.group for stage in self.program.stages],
            "ends": self._ends,
            "epoch": epoch,
            # A stream's place has several names, and any of them will do.
            "snapshot": plain_epoch_place(at) if self.program.indexed else None,
        }

    def _length(self, epoch: int) -> int:
        indexed = self.program.head.indexed(self.program.seed, epoch)
        assert indexed is not None
        return indexed.length

    def _refuse(self, ranks: int) -> NoReturn:
        raise SnapshotRefused(
            f"this snapshot was taken on {ranks} ranks, and this loader runs on {self._world.share_ranks}: behind the "
            "place where ranks part this pipe does more than filter, map and batch once, so what each rank held cannot "
            f"be given to others; go on with {ranks} ranks, or start the epoch anew"
        )


class Voted(Sharing):
    """Ranks vote on how far they go."""

    _votes: VoteThread | None = None
    _ballot: Ballot | None = None

    @property
    def _steps_are_voted(self) -> bool:
        return not shares_in_turns(self.program)

    def first(self, number: int) -> int:
        # Not by a broadcast: a rank that is still inside an epoch waits for a vote, and would never come to it.
        self._connect()
        return number if self._votes is None else self._votes.first(number)

    def _connect(self) -> None:
        super()._connect()
        if self._agreement is not None and self._votes is None:
            self._votes = VoteThread(self._agreement, patience(self._timeout))

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        if not self._verified:
            self._verify(epoch, at)
        if self._votes is None:
            raise BadPipe(
                "the ops after the division decide how many samples each rank gets, so ranks have to agree on the end "
                "of the epoch while they run: initialise torch.distributed in every rank before iterating"
            )
        rank = self._world.share_rank
        here: RunPlace | None = None
        turns: tuple[int, int] | None = None
        behind = 0
        if shares_in_turns(self.program):
            assert not isinstance(at, VotedPlace)
            here = in_turns(at, self.program, self._world, self._length(epoch))
            assert isinstance(here.place, Regrouped)
            turns = here.place.number, self.program.last.group or 0
        elif at is not None:
            if not isinstance(at, VotedPlace):
                self._refuse(1)
            here, behind = at.ranks[rank], at.steps
        self._ballot = Ballot(
            self._votes.begin(epoch), rank, at, turns, behind, masks=self._ends in ("pad", "repeat")
        )  # fmt: skip
        return Start(here, None, self._ballot.watch, self._ballot.place)

    def mask(self, epoch: Epoch[Any]) -> list[bool] | None:
        program = self.program
        filling = [stage for stage in program.stages if stage.group is not None and not stage.drop_last]
        if self._ends in ("short", "drop") or not filling:
            return None
        if (
            filling != [program.last]
            or not program.last.single
            or not all(isinstance(n.op, Each) for n in program.tail)
        ):
            raise BadOption(
                f"with ends={self._ends!r} batches are filled before ops that leave out or regroup what they get, so "
                "which samples of the result are real is not known; batch at the end of the pipe, or use ends='short' "
                "or 'drop'"
            )
        # Batches are made ahead of the vote: the one delivered last is not the one made last.
        return None if self._ballot is None else self._ballot.mask

    def close(self, wait: bool = True) -> None:
        if self._votes is None:
            super().close(wait)
        else:
            self._votes.close()


class Counted(Sharing):
    """Ranks take blocks from a counter."""

    each_its_own = False  # beside the counter each tells the others what it has finished

    def __init__(
        self, program: Program, pipe: Pipe[Any], world: World, ends: str, timeout: float, store: Any = None
    ) -> None:
        super().__init__(program, pipe, world, ends, timeout)
        check_program(program)
        self._given = store
        self._store: Any = None
        self._hosts = False
        digest = key("dynamic", program.seed, *pipe.fingerprint())
        # Ranks that make several loaders of the same thing make them in the same order.
        self._key = f"headrace/dynamic/{job()}/{digest}/{_dynamic[digest]}"
        _dynamic[digest] += 1
        self._begun = 0
        self._counter: Counter | None = None
        self._dynamic: Dynamic | None = None

    def check(self, at: EpochPlace | None) -> EpochPlace | None:
        if at is None or (isinstance(at, RunPlace) and at.place is None):
            return None
        place = at.place if isinstance(at, RunPlace) else None
        if isinstance(at, RunPlace) and isinstance(place, Position) and not at.gone:
            # Taken with static sharding, which had come to one position everywhere.
            return RunPlace(Finished(((0, place.position),) if place.position else ()), 0, at.skipped)
        if not isinstance(place, Finished):
            raise SnapshotRefused(
                "this snapshot was not taken with sharding='dynamic': make the loader with sharding='static'"
            )
        return at

    def begin(self, epoch: int, at: EpochPlace | None) -> Start:
        if self._store is None:
            self._store, self._hosts = find_store(self._world, self._given, self._timeout)
            self._timeout = patience(self._timeout)
        counter = Counter(self._store, f"{self._key}/{self._begun}", self._world)
        self._begun += 1
        counter.meet(self._facts(epoch, at), self._timeout)
        if self._counter is not None:
            self._counter.forget()
        self._counter = counter
        done, skipped = Finished(), 0
        if isinstance(at, RunPlace):
            assert isinstance(at.place, Finished)
            done, skipped = at.place, at.skipped
        dynamic = self._dynamic = Dynamic(self.program, epoch, counter, done, skipped)
        return Start(None, dynamic.feed(), dynamic.watch, lambda received: dynamic.place())

    def retraced(self, at: EpochPlace | None) -> RunPlace | None:
        raise BadOption("with sharding='dynamic' which rank takes which batch is left to chance, so none can be traced")

    def turn_away(self) -> None:
        self._dynamic = None

    def last(self, epoch: int) -> tuple[int, EpochPlace] | None:
        place = None if self._dynamic is None else self._dynamic.place()
        return None if place is None else (epoch, place)

    def length(self) -> int:
        raise NoLength(
            "with sharding='dynamic' each rank takes as many batches as it can, so nobody knows how many in advance"
        )

    def close(self, wait: bool = True) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            leave(store, self._key, self._world.ranks, wait and self._hosts, self._timeout)


def make(
    program: Program, pipe: Pipe[Any], policy: Policy, world: World, ends: str, sharding: str, store: Any,
    timeout: float | None,
) -> Sharing:  # fmt: skip
    """The sharing of a loader; `timeout` is that of a fullsync at the end of the pipe."""
    seconds = TIMEOUT if timeout is None else timeout
    if sharding not in ("static", "dynamic"):
        raise BadOption(f"sharding must be 'static' or 'dynamic', not {sharding!r}")
    if sharding == "dynamic":
        _check_dynamic(program, policy, world, ends, timeout)
        return Counted(program, pipe, world, ends, seconds, store)
    if store is not None:
        raise BadOption("store= is where ranks share a counter: set sharding='dynamic' with it")
    kind = Voted if world.share_ranks > 1 and not known(program) else Sharing
    return kind(program, pipe, world, ends, seconds)


def _check_dynamic(program: Program, policy: Policy, world: World, ends: str, timeout: float | None) -> None:
    equal = "with sharding='dynamic' a fast rank makes more steps than a slow one, so"
    if timeout is not None or any(isinstance(node.op, FullSync) for node in program.pipe.nodes()):
        raise BadOption(f"{equal} fullsync, which makes steps equal, cannot be combined with it; leave one of them out")
    if ends != "short":
        raise BadOption(f"{equal} there is no last step to fill or to drop: leave ends= at 'short', not {ends!r}")
    if world.replicas > 1:
        raise BadOption(
            f"{equal} the {world.replicas} ranks of one copy of the model would not take the same samples; "
            "leave sharding at 'static'"
        )
    if not policy.ordered and len(program.stages) > 1:
        raise BadOption(
            "sharding='dynamic' with ordered=False needs batches that are made of one block each, and this pipe "
            "regroups samples: leave ordered=True"
        )


def known(program: Program) -> bool:
    """Ranks can know by arithmetic how many steps each of them will take."""
    nodes = [*program.tail, *(n for s in program.stages for n in (*s.inner, *s.nodes))]
    return all(isinstance(node.op, Each) for node in nodes)


def without_sync(pipe: Pipe[Any]) -> tuple[Pipe[Any], float | None]:
    """The pipe without a fullsync at its end, and its time-out: every loader keeps ranks in step anyway."""
    timeout: float | None = None
    while isinstance(pipe.op, FullSync):
        timeout = pipe.op.timeout if timeout is None else min(timeout, pipe.op.timeout)
        pipe = pipe.inputs[0]
    return pipe, timeout


FEW = 8
"""Positions of one ticket where ranks take them in turn: a ticket that was begun is finished by a single rank."""


def with_passing(program: Program, block: int | None = None) -> Program:
    """The program with a last stage in which the consumer hands samples on, and can leave some of a ticket out."""
    if len(program.stages) > 1 or not program.indexed or program.stages[0].single or program.tail:
        return program
    last = Stage(1, (), (), "refs", None, False, "ranks count samples one by one")
    return replace(program, stages=(*program.stages, last), block=min(program.block, block or program.block))


def passing(program: Program) -> bool:
    return program.indexed and program.last.feed == "refs" and program.last.group is None


def _dealt_in_turns(at: EpochPlace | None) -> bool:
    """Whether a place is one of ranks that took positions in turn."""
    place = at.place if isinstance(at, RunPlace) else None
    return isinstance(place, Regrouped) and isinstance(place.source, InTurns)
