"""Program: a pipe cut into stages, as a value that is sent to every worker.

    head  ──>  stage 0  ──>  stage 1  ──>  ...  ──>  tail (in the consumer)

The **head** says where samples come from. If the pipe has random access up to some op, that part is *indexed*: the
consumer deals out positions and the worker fetches them. A *listed* source is iterated by the consumer itself, and each
item is a ticket. Otherwise the head is a *strand*: a cursor that runs in one place and hands on blocks of samples. A
**stage** is a chain of ops that treat every sample (or every batch) on its own, so that any worker can run any ticket
of it. A `batch` after an op that changes counts starts the next stage: the consumer only regroups references to
samples. The **tail** is what has to see the whole stream after work has been divided.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.errors import BadOption, BadPipe
from headrace.op import Each, Flat, Indexed, Source
from headrace.ops.order.sharding import Sharding
from headrace.ops.shape.batch import Batch
from headrace.ops.shape.collate import Collate
from headrace.pipe.graph import Pipe

if TYPE_CHECKING:
    from headrace.ops.text.balance import Balance

BLOCK = 64
"""Positions in one ticket when nothing says how many samples belong together."""
STRAND_BLOCK = 512
TIMED = 16
"""Reading the clock around every sample of every ticket would show, so only one ticket in so many is timed."""
OFTEN, RARELY = 1024, 4
"""After 1024 tickets of a worker, only one in four times as many."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A chain of ops that any worker can run on any ticket."""

    number: int
    inner: tuple[Pipe[Any], ...]
    """One-to-one ops on the samples, before they are grouped."""
    nodes: tuple[Pipe[Any], ...]
    """Ops on the groups, or, without a group, on the samples."""
    feed: str
    """"positions", "strand", "refs" (samples of the stage before), or "listed" (items of the consumer's iterator)."""
    group: int | None = None
    """Samples of one ticket form one list of this size; None: they stay single."""
    drop_last: bool = False
    why: str = ""
    balance: "Balance[Any] | None" = None
    """The op that plans which samples form a list, if there is one."""

    @property
    def ops(self) -> tuple[Pipe[Any], ...]:
        """All its ops, in the order in which a sample meets them."""
        return (*self.inner, *self.nodes)

    @cached_property
    def in_rows(self) -> bool:
        """Whether samples may be written into the batch one by one, as they are made: no op sees the list of them."""
        first = self.nodes[0].op if self.nodes else None
        return isinstance(first, Collate) and first.fn is None and first.pad is None

    @cached_property
    def columnar(self) -> bool:
        """The first op on the groups takes columns, not a list of rows."""
        return bool(self.nodes) and self.nodes[0].op.takes_columns

    @cached_property
    def single(self) -> bool:
        """Exactly one output per ticket."""
        return (self.group is not None or self.feed == "listed") and all(isinstance(n.op, Each) for n in self.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All that a worker needs to know."""

    pipe: Pipe[Any]
    head: Pipe[Any]
    stages: tuple[Stage, ...]
    tail: tuple[Pipe[Any], ...]
    seed: int
    block: int = BLOCK
    keyed: bool = True
    """Seed the global generators before each ticket."""
    skips: bool = False
    strands: int = 1
    strand_block: int = STRAND_BLOCK
    """The most samples in one reply of a strand."""
    timed: int = TIMED
    """One ticket in so many is timed op by op; 1 times everything, streams too."""

    @property
    def indexed(self) -> bool:
        """Workers read samples of the head by position."""
        return self.stages[0].feed == "positions"

    def positions(self, epoch: int) -> Indexed:
        """Random access to the head in this epoch; for indexed programs only."""
        indexed = self.head.indexed(self.seed, epoch)
        assert indexed is not None
        return indexed

    def over(self, pipe: Pipe[Any]) -> "Program":
        """The same program over a pipe that has the same ops in the same places, with other values in them."""
        now = {id(old): new for old, new in zip(self.pipe.nodes(), pipe.nodes(), strict=True)}
        stages = tuple(
            replace(s, inner=tuple(now[id(n)] for n in s.inner), nodes=tuple(now[id(n)] for n in s.nodes))
            for s in self.stages
        )
        return replace(
            self, pipe=pipe, head=now[id(self.head)], stages=stages, tail=tuple(now[id(n)] for n in self.tail)
        )

    def head_as_kept(self) -> Pipe[Any]:
        """The head; where no op touches a sample before the executor copies it, with sources that do not copy."""
        head, first = self.head, self.stages[0]
        if first.group is not None or first.nodes or not all(node.op.hands_on for node in head.nodes() if node.inputs):
            return head
        for node in head.nodes():
            if isinstance(node.op, Source):
                head = head.replaced(node, node.op.as_kept())
        return head

    @property
    def last(self) -> Stage:
        return self.stages[-1]

    def ops(self, stage: int) -> str:
        """The ops that tickets of a stage go through, in words."""
        nodes, group = [*(() if stage else self.head.nodes()), *self.stages[stage].ops], self.stages[stage].group
        return ", ".join([*(node.op.describe() for node in nodes), *([f"batch of {group}"] if group else [])])

    @property
    def traceable(self) -> bool:
        """Arithmetic says of which positions each step was made: lineage, replay and proofs then need not read on."""
        alone = self.indexed and len(self.stages) == 1 and not self.tail
        return alone and self.one_to_one and self.last.balance is None

    @property
    def one_to_one(self) -> bool:
        """Every op after the place where ranks divide the work makes one sample out of one."""
        return all(isinstance(node.op, Each) for node in (*self.tail, *(n for s in self.stages for n in s.ops)))

    @property
    def steps_known(self) -> bool:
        """Ranks know by arithmetic how many steps each of them will take; otherwise they tell each other as they run.

        Where samples that fail are left out, nobody knows how many there are. Groups of a stream that are grouped again
        come to ranks in turn, to some one more than to others.
        """
        groups = sum(stage.group is not None for stage in self.stages)
        return self.one_to_one and not self.skips and (self.indexed or groups < 2)

    @property
    def countable(self) -> bool:
        """Whether each position has outputs of its own, which any rank could make, and which are then only grouped."""
        first, *later = self.stages
        groups = all(stage.single and all(isinstance(node.op, Each) for node in stage.inner) for stage in later)
        # (More groupings, or groups of one group, are not worth their rules at the end of an epoch.)
        twice = len(later) < 2 or (len(later) == 2 and (self.last.group or 0) > 1)
        return self.indexed and not self.tail and first.balance is None and groups and twice

    def deals_by_position(self, epoch: int) -> bool:
        """Whether ranks that count deal outputs by position: ops choose, and nobody reads much for one sample."""
        ops = [node.op for node in self.stages[0].ops]
        chooses = all(isinstance(op, Each) or (isinstance(op, Flat) and op.chooses) for op in ops)
        return chooses and self.positions(epoch).parts is None

    def ends(self, stage: int, ends: str) -> str:
        """What becomes of the last groups of a stage, where the loader was given `ends=`.

        That is about the batches that arrive. Groups that ops behind them take apart or group again (those of
        `threadpool_map`, for one) only bring samples there: none of these is left out, and none comes twice.
        """
        here, *later = self.stages[stage:]
        if here.drop_last:
            return "drop"
        behind = (*here.nodes, *(node for s in later for node in s.ops), *self.tail)
        apart = any(isinstance(node.op, Flat) and not node.op.chooses for node in behind)
        return "short" if apart or any(s.group is not None for s in later) else ends

    @property
    def assembled(self) -> bool:
        """The last stage only regroups samples: the consumer does that while it decodes."""
        return self.last.feed == "refs" and not self.last.ops


def cut(
    pipe: Pipe[Any],
    seed: int,
    *,
    keyed: bool = True,
    skips: bool = False,
    strands: int | None = None,
    divided: bool = False,
    elsewhere: bool = False,
) -> Program:
    """Cut a pipe into stages.

    `divided`: ranks share it, so that a stream needs a stage where they divide the work. `elsewhere`: workers are other
    processes.
    """
    chain = _chain(pipe)
    head, rest = _head(chain)
    indexed = head.indexed(seed, 0) is not None
    listed = head.op.listed
    if listed and divided:
        raise BadOption("a listed source is this rank's own list, which is not divided among ranks: leave world= out")
    if elsewhere and not listed and any(node.op.listed for node in head.nodes()):
        raise BadPipe(
            f"a listed source stays in the training process, and {chain[0].op.name()}() joins it with others in a "
            "worker: let it be the one source of its pipe, or leave workers= out"
        )
    if not indexed and (strands or 1) > 1:
        _check_divided(head)
    stages, tail = _stages(rest, "listed" if listed else "positions" if indexed else "strand", divided and skips)
    if divided and stages[-1].feed == "strand":
        _next_stage(stages, "ranks take samples in turn")
    return Program(
        pipe, head, tuple(stages), tuple(tail), seed,
        block=_block(stages, head), keyed=keyed, skips=skips, strands=1 if indexed else strands or 1,
        strand_block=1 if head.op.batches else STRAND_BLOCK,
    )  # fmt: skip


def _check_divided(head: Pipe[Any]) -> None:
    """Raise if a source would give all its samples to every strand."""
    for node in head.nodes():
        op = node.op
        if not node.inputs and not op.divides and type(op).flow is not Source.flow:
            raise BadOption(
                f"{op.name()} cannot be read in several strands: leave strands= out, or let its flow() give every "
                "here.strands-th sample only, from number here.strand on, and say so with `divides = True` in its class"
            )


def _chain(pipe: Pipe[Any]) -> list[Pipe[Any]]:
    """From the last node back to where the graph stops being a single line, sources first."""
    chain = [pipe]
    while len(chain[-1].inputs) == 1:
        chain.append(chain[-1].inputs[0])
    return chain[::-1]


def _head(chain: list[Pipe[Any]]) -> tuple[Pipe[Any], list[Pipe[Any]]]:
    """The last node of the head, and the nodes that are left for the stages."""
    if chain[0].op.listed:
        return chain[0], chain[1:]
    reach = _reach(chain)
    mark = next((i for i, node in enumerate(chain) if isinstance(node.op, Sharding)), None)
    if reach and (_serial(chain[reach:]) is None or (mark is not None and mark < reach)):
        # Workers and ranks divide positions. A batch that only one-to-one ops follow is cut by the plan: ranks share
        # whole batches.
        batch = reach - 1
        while batch > 0 and isinstance(chain[batch].op, Each):
            batch -= 1
        if batch > 0 and isinstance(chain[batch].op, Batch):
            reach = batch
        return chain[reach - 1], chain[reach:]
    # A stream: everything up to the last op that must see all of it runs in one place, unless sharding_filter() divides
    # it earlier.
    if mark is not None:
        return chain[mark - 1], chain[mark:]
    last = _serial(chain[1:])
    end = 1 if last is None else last + 2
    return chain[end - 1], chain[end:]


def _reach(chain: list[Pipe[Any]]) -> int:
    """How many nodes lead up to the last one with random access. (After a filter, an op that gathers has it again.)"""
    reach = 0
    while reach < len(chain) and chain[reach].indexed(0, 0) is not None:
        reach += 1
    for i in range(len(chain) - 1, reach, -1):
        if chain[i].op.gathers and chain[i].indexed(0, 0) is not None:
            return i + 1 + _reach(chain[i + 1 :])
    return reach


def _serial(nodes: list[Pipe[Any]]) -> int | None:
    """The index of the last op that must see the whole stream, consumer-only ops excepted.

    An op that makes a great many samples out of one (`coarse`: all rows of a file) counts as such an op: its output has
    to be handed on piece by piece, which is what a strand does.
    """
    found = None
    for i, node in enumerate(nodes):
        if node.op.consumer:
            break
        if not isinstance(node.op, Each | Flat | Batch) or node.op.coarse:
            found = i
    return found


def _stages(nodes: list[Pipe[Any]], feed: str, uncertain: bool) -> tuple[list[Stage], list[Pipe[Any]]]:
    """The stages, and the nodes that are left for the consumer. `uncertain`: ranks share samples that may fail."""
    stages = [Stage(0, (), (), feed, why=_WHY[feed])]
    # Then full batches are cut from those that are left, where batches stay whole from there on.
    uncertain = uncertain and feed == "positions" and all(isinstance(node.op, Batch | Each) for node in nodes)
    for i, node in enumerate(nodes):
        op, now = node.op, stages[-1]
        if isinstance(op, Sharding):
            continue
        if isinstance(op, Batch):
            if (
                now.feed in ("strand", "listed")
                or now.group is not None
                or not all(isinstance(n.op, Each) for n in now.nodes)
                or (now.nodes and now.feed != "refs")
                or (uncertain and now.feed == "positions" and _balance(op) is None)
            ):
                now = _next_stage(stages, "batches are cut from samples whose number is known only now")
            stages[-1] = Stage(now.number, now.nodes, (), now.feed, op.size, op.drop_last, now.why, _balance(op))
        elif isinstance(op, Each | Flat) and not op.consumer:
            if now.feed == "strand":
                now = _next_stage(stages, "the work on the stream's samples is divided")
            stages[-1] = replace(now, nodes=(*now.nodes, node))
        else:
            return stages, nodes[i:]
    return stages, []


def _next_stage(stages: list[Stage], why: str) -> Stage:
    """Add a stage that reads the samples of the one before."""
    stages.append(Stage(len(stages), (), (), "refs", why=why))
    return stages[-1]


_WHY = {
    "positions": "any worker makes any batch",
    "listed": "the consumer lists items: each is handed to a worker",
    "strand": "a stream is read in one place",
}


def _balance(batch: Batch[Any]) -> "Balance[Any] | None":
    if type(batch) is Batch:
        return None
    from headrace.ops.text.balance import Balance  # (here: it needs numpy)

    return batch if isinstance(batch, Balance) else None


def _block(stages: list[Stage], head: Pipe[Any]) -> int:
    if any(isinstance(node.op, Batch) or node.op.by_window or node.op.batches for node in head.nodes()):
        return 1  # the samples are batches already
    sizes = [s.group for s in stages if s.group is not None]
    return max(1, min(sizes[0], 1024)) if sizes else BLOCK
