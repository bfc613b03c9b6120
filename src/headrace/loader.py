"""Loader: runs a pipe epoch by epoch, with a policy (how it is run) on a world (which rank this is).

    with Loader(pipe, workers=2, seed=7) as loader:
        for batch in loader: ...          # epoch 0
        for batch in loader: ...          # epoch 1, another order

Samples, batches and random values are the same for any number and kind of workers. Workers start at the first batch and
live until `close()`. `state_dict()` between any two batches says where the epoch stands: on several ranks, where the
whole job stands when all ranks have made as many steps as this one.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar

from headrace.engine.autosave import Autosave, Given, check_alone
from headrace.engine.epoch import Epoch
from headrace.engine.foreign_options import refuse
from headrace.engine.places import EpochPlace, RunPlace
from headrace.engine.policy import Budget, Kind, Policy
from headrace.engine.pool import Pool
from headrace.engine.program import Program, cut
from headrace.engine.snapshot import check, reweighted, snapshot
from headrace.engine.tuning import Trial, Tuner, available
from headrace.errors import BadOption, Closed, SnapshotRefused, check_whole
from headrace.observe.lineage import Lineage
from headrace.observe.meter import Meter
from headrace.observe.stats import Stats as Stats
from headrace.pipe.graph import Pipe
from headrace.plan.share import EndPolicy
from headrace.plan.world import World
from headrace.ranks.mesh import Mesh, as_world
from headrace.sharing import make, on_ranks, without_sync
from headrace.sharing.arithmetic import Sharing
from headrace.tracebacks import short_errors

if TYPE_CHECKING:
    from headrace.engine.saver import Saver

T = TypeVar("T", covariant=True)
_LIVE: "weakref.WeakSet[Loader[Any]]" = weakref.WeakSet()


def dump() -> str:
    """What every worker of every loader of this process is doing now: op, position and Python stack."""
    return "\n".join(f"{loader!r}{loader._stacks()}" for loader in list(_LIVE))


class Loader(Generic[T]):
    """Iterates a pipe."""

    @short_errors
    def __init__(
        self,
        pipe: Pipe[T],
        *,
        workers: int | Literal["auto"] = 0,
        kind: Kind | None = None,
        prefetch: int | Literal["auto"] = 2,
        ordered: bool = True,
        seed: int = 0,
        epoch: int = 0,
        world: World | Mesh | None = None,
        timeout: float | None = None,
        start_method: Literal["server", "fork", "forkserver", "spawn"] | None = None,
        strands: int | None = None,
        memory: int | None = None,
        worker_init: Callable[[int], None] | None = None,
        restarts: int = 100,
        on_error: Literal["raise", "skip"] | Budget = "raise",
        on_poison: Literal["raise", "skip"] = "raise",
        on_stuck: Literal["raise", "replace"] = "raise",
        recycle: int | None = None,
        recycle_memory: int | None = None,
        ends: EndPolicy = "short",
        sharding: Literal["static", "dynamic"] = "static",
        autosave: Given | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        **unknown: Never,
    ) -> None:
        arguments = dict(locals())
        refuse(unknown, Loader)
        if not isinstance(pipe, Pipe):
            raise BadOption(f"Loader() takes a Pipe, not {type(pipe).__name__}; write Loader(Pipe.of(...))")
        auto = workers == "auto"
        # An option of a policy is an argument of the same name; what is none of them is set by doors.
        options = {field.name: arguments[field.name] for field in fields(Policy) if field.name in arguments}
        # prefetch="auto" is 2: the engine fetches more ahead by itself while tickets are short.
        auto_options = {"workers": available() if auto else workers, "prefetch": 2 if prefetch == "auto" else prefetch}
        policy = Policy.of({**options, **auto_options})
        self._set_up(pipe, policy, seed, epoch, world, strands, ends, sharding, autosave, auto)
        if quarantine is not None:
            from headrace.observe.quarantine import About, Quarantine

            about = About(tuple(pipe.fingerprint()), seed, self.world.ranks, self.world.rank)
            self._meter.on_skip = Quarantine.of_rank(quarantine, about, self.policy.skips).write

    @classmethod
    def of(
        cls, pipe: Pipe[T], policy: Policy, *, seed: int = 0, epoch: int = 0, world: World | Mesh | None = None,
        strands: int | None = None, ends: EndPolicy = "short", sharding: Literal["static", "dynamic"] = "static",
        autosave: Given | None = None,
    ) -> "Loader[T]":  # fmt: skip
        """For loaders that are built on this one: their policy may say more than the options of a Loader do."""
        loader = cls.__new__(cls)
        loader._set_up(pipe, policy, seed, epoch, world, strands, ends, sharding, autosave)
        return loader

    def _set_up(
        self, pipe: Pipe[T], policy: Policy, seed: int, epoch: int, world: World | Mesh | None, strands: int | None,
        ends: EndPolicy, sharding: Literal["static", "dynamic"], autosave: Given | None, auto: bool = False,
    ) -> None:  # fmt: skip
        check_whole("seed", seed)
        check_whole("epoch", epoch)
        self.pipe = pipe
        self.seed = seed
        self.world = as_world(world)
        self.ends = ends
        policy = on_ranks(policy, self.world, sharding)
        plain, sync = without_sync(pipe)
        program = cut(
            plain, seed, keyed=policy.randomness == "keyed", skips=policy.skips, strands=strands,
            divided=self.world.share_ranks > 1, elsewhere=policy.elsewhere,
        )  # fmt: skip
        self._sharing = make(program, pipe, policy, self.world, ends, sharding, sync)
        self._epoch = epoch
        self._epochs = 0
        self._meter = Meter()
        # Ranks that coordinate an epoch among themselves must not stop to change workers.
        self._tuner = Tuner(policy) if auto and self.world.share_ranks == 1 and sharding == "static" else None
        self._pool = Pool(self.program, policy if self._tuner is None else self._tuner.policy())
        self._current: weakref.ref[Epoch[T]] | None = None
        self._resume: EpochPlace | None = None
        self._left: tuple[int, EpochPlace | None] | None = None
        """The epoch that was left by a `break`, and where: for `state_dict()` after the loop."""
        self._closing = weakref.finalize(self, _close, self._pool, self._sharing)
        self._began: tuple[int, EpochPlace | None] = (epoch, None)
        """The epoch begun last, and the place it went on from."""
        self._saver: Saver | None = None
        if autosave is not None:
            self._go_on_from(autosave)
        _LIVE.add(self)

    def _go_on_from(self, autosave: Given) -> None:
        from headrace.engine.saver import Saver

        check_alone(self.world)
        self._saver = Saver(Autosave.of(autosave))
        if (saved := self._saver.load()) is not None:
            self.load_state_dict(saved)
            if self._sharing.is_over(self._epoch, self._resume):  # killed behind its last batch
                self.set_epoch(self._epoch + 1)
                self._saver.steps = 0

    # --- iterating ----------------------------------------------------------------------------------------------------

    @short_errors
    def __iter__(self) -> "Epoch[T]":
        if self._pool.closed:
            raise Closed("this loader is closed; make a new one")
        at = self._resume
        start = self._sharing.begin(self._epoch, at)
        epoch: Epoch[T] = Epoch(self._pool, self._meter, self._epoch, self.world, ends=self.ends, start=start)
        current = weakref.ref(epoch)
        # The epoch keeps this loader alive while it is iterated: `for x in Loader(...)`.
        epoch.on_break = partial(self._note_break, current)
        if self._tuner is not None and not self._tuner.settled:
            epoch.trial = Trial(self._tuner, self._meter)
        if self._saver is not None:
            epoch.after_each = self._saver.counter_of(current, self.state_dict)
        # No call between these lines: a Ctrl-C comes at calls only, so it leaves the loader before the epoch or in it.
        self._current = current
        self._began = (self._epoch, at)
        self._resume = self._left = None
        self._epoch += 1
        self._epochs += 1
        return epoch

    def _note_break(self, left: object, epoch: int, at: EpochPlace | None) -> None:
        if self._current is left:  # not an earlier iterator
            self._left = (epoch, at)

    @property
    def policy(self) -> Policy:
        """How the pipe is run now."""
        return self._pool.policy

    @short_errors
    def __len__(self) -> int:
        """Batches (or samples, if nothing is batched) of a whole epoch on this rank, also after a resume.

        Of the epoch that runs, or else of the next: where shuffled documents are packed, epochs differ in length.
        """
        return self._sharing.length(self._epoch if (running := self._running()) is None else running.epoch)

    def __bool__(self) -> bool:
        """Always true: `if loader:` must not ask for the length, which may be unknown."""
        return True

    def mask(self) -> list[bool] | None:
        """Which samples of the batch delivered last are real; None unless some only fill it (ends="pad", "repeat")."""
        if (current := self._latest()) is None:
            return None
        return self._sharing.mask(current) if current.handed_over is None else current.handed_over.mask

    def agree(self, number: int) -> int:
        """The number that rank 0 gives (a seed, an epoch), on all ranks. Every rank calls it before the same iter()."""
        return self._sharing.first(number)

    @property
    def epoch(self) -> int:
        """The epoch that the next `for` begins, or goes on with; inside a loop, one more than the one that runs."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next `iter()` starts this epoch; an epoch that a loaded state stands in goes on where it stands."""
        check_whole("epoch", epoch)
        if self._resume is None or epoch != self._epoch:
            self._begin_with(epoch)

    def _begin_with(self, epoch: int) -> None:
        self._epoch = epoch
        self._resume = self._left = self._current = None
        self._sharing.forget_epoch()

    def _latest(self) -> Epoch[T] | None:
        """The iterator made last, if it is still in use."""
        return None if self._current is None else self._current()

    def _running(self) -> Epoch[T] | None:
        """The iterator made last, if it has neither come to its end nor been closed."""
        return None if (latest := self._latest()) is None or latest.ended or latest.closed else latest

    @property
    def resumed(self) -> int | None:
        """None if the next `for` begins an epoch. If it goes on in the middle of one: how many samples of it (batches,
        where batches are batched again) this rank has had."""
        place = self._resume.place if isinstance(self._resume, RunPlace) else None
        return None if self._resume is None else 0 if place is None else place.inputs(self.world)

    @property
    def program(self) -> Program:
        """The pipe, cut into stages."""
        return self._sharing.program

    # --- state --------------------------------------------------------------------------------------------------------

    def state_dict(self, *, ahead: bool = False) -> dict[str, Any]:
        """Where the loader stands, as plain data: loads at any number and kind of workers, on all ranks.

        It counts the batches that this rank has received, also after an exception. With `ahead`, in the middle of
        `next()`, the batch that is about to be handed over counts too.
        """
        return snapshot(self.pipe, self.seed, *self.place(ahead), self.program.head)

    def place(self, ahead: bool = False) -> tuple[int, EpochPlace | None]:
        """The epoch and where it stands (None: before it); `ahead`: after the batch that is about to be handed over."""
        if (current := self._running()) is not None:
            at = current.stands(ahead)
            return (self._sharing.after_end(current.epoch) if at is None else None) or (current.epoch, at)
        return self._sharing.after_end(self._began[0]) or self._left or (self._epoch, self._resume)

    @short_errors
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter()` goes on where the snapshot was taken."""
        seed, epoch, at = check(state, self.pipe)
        pipe = reweighted(self.pipe, state)
        if seed != self.seed:
            raise SnapshotRefused(
                f"the snapshot was taken with seed={seed}; make the loader with that seed, not {self.seed}"
            )
        self.go_to(epoch, at, pipe)

    def go_to(self, epoch: int, at: EpochPlace | None, pipe: Pipe[T] | None = None) -> None:
        """The next `iter()` goes on at this place of an epoch; `pipe`: the same pipe with other weights in mix()."""
        program = self.program
        at = self._sharing.check(at)
        if pipe is not None and pipe is not self.pipe:
            self._use_weights_of(pipe)
        if self.program is not program:  # `check` has changed its form, or the weights are others
            self._new_pool()
        self._begin_with(epoch)
        self._resume = at

    def reweight(self, weights: Sequence[float], *, at_step: int | None = None, at_sample: int | None = None) -> int:
        """Other weights for the pipe's `mix()`, from a step (or sample of the mixture) on that is still to come.

        Every rank makes the same call before that step. Returns the sample from which on they hold: the next end of a
        block.
        """
        from headrace.sharing.reweighting import reweighted as changed

        running = self._running()
        if running is not None and self._sharing.exchanges:
            raise BadOption("ranks exchange counts of this pipe: change its weights with mix(stages=)")
        epoch, at = (self._epoch, self._resume) if running is None else (running.epoch, running.state())
        pipe, start = changed(self.pipe, self.program, self.world, epoch, at, weights, at_step, at_sample)
        self._use_weights_of(pipe)
        if running is None:
            self._new_pool()
        else:
            running.move_to(self._new_pool)
        return start

    def _use_weights_of(self, pipe: Pipe[T]) -> None:
        self.pipe = pipe
        self._sharing.program = self.program.over(without_sync(pipe)[0])

    def _new_pool(self) -> Pool:
        """End the workers; the next ones run the program as it is now."""
        self._pool.close()
        self._pool = Pool(self.program, self.policy)
        self._closing.detach()
        self._closing = weakref.finalize(self, _close, self._pool, self._sharing)
        return self._pool

    # --- ending -------------------------------------------------------------------------------------------------------

    def close(self, wait: bool = True) -> None:
        """Stop the workers. Iterating again is an error.

        Where this process holds the counter of sharding="dynamic", wait until the other ranks need it no more.
        """
        if (current := self._latest()) is not None:
            current.close()
        self._pool.close()
        if self._saver is not None:
            self._saver.close()
        self._sharing.close(wait)
        self._closing.detach()

    def __enter__(self) -> "Loader[T]":
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self.close(wait=failed is None)

    # --- looking ------------------------------------------------------------------------------------------------------

    def lineage(self, step: int, epoch: int | None = None) -> Lineage:
        """Batch number `step` of the epoch begun last, or of `epoch`: its samples' positions, and the batch again."""
        began, at = self._began
        number = began if epoch is None else epoch
        return Lineage(
            self.program, self.policy, number, step, world=self.world, ends=self.ends,
            start=self._sharing.alone(number, at if number == began else None), left_out=bool(self._meter.skips),
        )  # fmt: skip

    def stats(self) -> Stats:
        """What has happened so far."""
        meter, policy, nodes = self._meter, self.policy, self.pipe.nodes()
        arenas = [workers.arena for workers in self._pool.all()]
        stages = {stage.number: f"stage {stage.number} ({stage.feed})" for stage in self.program.stages}
        return Stats(
            epochs=self._epochs,
            ops={f"{i} {nodes[i].op.describe()}": spent for i, spent in meter.by_op().items()},
            batches=meter.batches,
            waited=meter.waited,
            busy={stages[k]: v for k, v in sorted(meter.busy.items())},
            bytes=sum(a.total for a in arenas),
            slots=sum(a.slots for a in arenas),
            copies=sum(a.copies for a in arenas),
            retries=self._pool.replaced(),
            skips=len(meter.skips),
            made_twice=self._sharing.made_twice(),
            reads=meter.reads,
            workers=policy.workers,
            prefetch=policy.prefetch,
            tried=dict(self._tuner.rates) if self._tuner is not None else {},
            advice=meter.advice() if policy.kind == "process" else "",
            autosave="" if self._saver is None else self._saver.trouble,
        )

    def explain(self) -> str:
        """The plan of the pipe on these ranks; what was read so far; advice, where workers cost more than they give."""
        stats = self.stats()
        lines = [self.pipe.explain(workers=self.policy.workers, ranks=self.world.share_ranks)]
        if stats.reads.requests:
            lines.append(f"read by this rank: {stats.reads} in {stats.epochs} epoch(s)")
        if stats.advice:
            lines.append(f"advice: {stats.advice}")
        return "\n".join(lines)

    def worker_pids(self) -> list[int]:
        """The process numbers of the workers that are alive now."""
        return [pid for workers in self._pool.all() for pid in workers.pids()]

    def _stacks(self) -> str:
        return "".join(workers.stacks() for workers in self._pool.all())

    def __repr__(self) -> str:
        return f"Loader({self.pipe!r}, workers={self.policy.workers}, kind={self.policy.kind!r}, seed={self.seed})"


def _close(pool: Pool, sharing: Sharing) -> None:
    pool.close()
    sharing.close(wait=False)
