"""Explain: the plan of a pipe as text: its stages, where each op runs and why, and what a resume costs."""

import shutil
from collections.abc import Sequence
from typing import Any

from headrace.engine.program import Program, cut
from headrace.op import Each, Flat, Indexed, Op, Source
from headrace.pipe.graph import Pipe
from headrace.pipe.outline import shortened
from headrace.plan.units import PARTS, better_rank_count

NARROWEST = 20
"""Columns that an op keeps however narrow the terminal is."""


def explain(pipe: Pipe[Any], workers: int = 2, seed: int = 0, ranks: int = 1) -> str:
    """The plan as lines of text, for one of so many ranks."""
    program = cut(pipe, seed)
    where = "in any worker" if workers else "in the consumer"
    lines = []
    if program.indexed:
        indexed = program.positions(0)
        kind = "windows of samples" if program.head.op.by_window else "samples"
        lines.append(f"head: random access to {indexed.length} {kind}: workers read each by its number")
        lines += [
            _line(node.op.describe(), where, resume_cost(node) if node.op.by_window else "nothing")
            for node in program.head.nodes()
        ]
        if indexed.remark:
            lines.append(f"  {indexed.remark}")
        lines += [f"  {line}" for line in reading(indexed, ranks)]
    elif program.stages[0].feed == "listed":
        lines.append("head: a list that the consumer iterates, one ticket an item")
        lines += _nodes(program.head.nodes(), "IN THE CONSUMER", None)
    else:
        place = "in one worker" if workers else "in the consumer"
        at_a_time = f", {program.strands} files at a time" if program.strands > 1 else ""
        lines.append(f"head: a stream, read once, {place}{at_a_time}")
        lines += _nodes(program.head.nodes(), place, None)
    for stage in program.stages:
        if not stage.ops and stage.group is None:
            continue
        lines.append(f"stage {stage.number}: {stage.why}")
        lines += _nodes(stage.inner, where, "the batch at hand")
        if stage.group is not None:
            last = program.assembled and stage is program.last
            place = "in the consumer, while it decodes" if last else where
            drop = ", drop_last=True" if stage.drop_last else ""
            batch = f"batch({stage.group}{drop})" if stage.balance is None else stage.balance.describe()
            lines.append(_line(batch, place, "the batch at hand"))
        lines += _nodes(stage.nodes, where, "the batch at hand")
    if program.tail:
        lines.append("tail: must see the whole stream after work was divided")
        lines += _nodes(program.tail, "IN THE CONSUMER", None)
    shared = _sharing(cut(pipe, seed, divided=True), ranks) if ranks > 1 and program.stages[0].feed != "listed" else []
    return "\n".join([*_in_columns(lines), *shared, *_advice(program)])


def _sharing(program: Program, ranks: int) -> list[str]:
    """How so many ranks share an epoch, and what that costs."""
    if program.steps_known:
        return [f"ranks: the {ranks} ranks share by arithmetic, without a word to each other"]
    if not program.countable:
        lines = ["ranks: each delivers its own batches as long as all have one; what is more is counted in the log"]
        chosen = [node.op.describe() for node in program.head.nodes() if isinstance(node.op, Flat)]
        if chosen and not program.indexed:
            lines.append(f"ranks: each of the {ranks} reads all of the stream, and runs {', '.join(chosen)} on it")
        return lines
    counts = f"ranks: the {ranks} ranks tell each other how many samples each position has"
    if program.deals_by_position(0):
        return [
            f"{counts}, and deal them by position: a global step has the same samples on any number of ranks; a few "
            "percent of the positions are made twice"
        ]
    return [
        f"{counts}, and each delivers its own; what is left when one has no batch any more is dealt by position, and "
        "made once more where it is needed"
    ]


def _nodes(nodes: Sequence[Pipe[Any]], place: str, cost: str | None) -> list[str]:
    return [_line(node.op.describe(), place, cost or resume_cost(node)) for node in nodes]


def _line(op: str, place: str, cost: str) -> str:
    return f"  {op}\t{place}\tresume: {cost}"


def _in_columns(lines: list[str]) -> list[str]:
    """Lines with tabs as a table within the terminal's width: ops are cut, where they run and what they cost is not."""
    table = [line.split("\t") for line in lines if "\t" in line]
    if not table:
        return lines
    width = shutil.get_terminal_size().columns
    places = max(len(place) for _, place, _ in table)
    costs = max(len(cost) for _, _, cost in table)
    ops = min(max(len(op) for op, _, _ in table), max(width - places - costs - 4, NARROWEST))
    made = []
    for line in lines:
        op, *rest = line.split("\t")
        made.append(f"{shortened(op, ops):{ops}}  {rest[0]:{places}}  {rest[1]}" if rest else line)
    return made


def resume_cost(node: Pipe[Any]) -> str:
    """What has to be read again when a stream goes on from a snapshot."""
    counted = isinstance(node.op, Source) and node.op.size() is not None
    return node.op.resume or usual_cost(type(node.op), counted)


def usual_cost(kind: type[Op[Any, Any]], counted: bool) -> str:
    """The cost of a resume for a class that does not state it; `counted`: a source that is read by position."""
    if kind.quiet:
        return "nothing of its own"
    if counted:
        return "at most 1000 samples"
    if issubclass(kind, Flat):
        return "the input sample at hand"
    if "rest" in getattr(kind.flow, "__code__", usual_cost.__code__).co_names:
        return "what it read since it last called here.rest(); check_op() measures it"
    return "everything before the position, in this epoch"


def _advice(program: Program) -> list[str]:
    heavy = [
        node.op.describe()
        for node in program.head.nodes()
        if not program.indexed and isinstance(node.op, Each | Flat) and node.op.user and node.inputs
    ]
    if not heavy:
        return []
    return [
        f"advice: {', '.join(heavy)} runs in one place, because an op behind it must see all samples in order; "
        f"put it behind shuffle() and sharding_filter(), and all workers share its work"
    ]


def reading(indexed: Indexed, ranks: int) -> list[str]:
    """How often a job of so many ranks reads what is stored in units."""
    order, units = indexed.parts, indexed.scattered or indexed.units
    if order is None:
        if units is None or not units.largest or ranks == 1:
            return []
        return [
            f"ranks: every one of {ranks} ranks needs every one of the {units.count} {units.name}: the job reads the "
            f"data {ranks} times; shuffle(parts={PARTS}) reads it about once"
        ]
    if ranks == 1:
        return []
    times = order.reads(ranks)
    advice = ""
    if (more := better_rank_count(ranks, order.count)) is not None:
        advice = f", because {ranks} does not divide {order.count}: {more} ranks read {order.reads(more):.2f} times"
    elif times > 1.1:
        advice = ", because units are cut between parts: write more and smaller units, or choose fewer parts="
    return [f"ranks: the {ranks} ranks together read the data {times:.2f} times{advice}"]
