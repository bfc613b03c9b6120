"""Explain: the plan of a pipe as text - the stages, where each op runs and why, what it costs to resume."""

from typing import Any

from headrace.engine.program import Program, cut
from headrace.op import Each, Flat, Op
from headrace.pipe.graph import Pipe


def explain(pipe: Pipe[Any], workers: int = 2, seed: int = 0) -> str:
    """The plan as lines of text."""
    program = cut(pipe, seed)
    where = "in any worker" if workers else "in the consumer"
    lines = []
    if program.indexed:
        indexed = program.head.indexed(seed, 0)
        assert indexed is not None
        lines.append(f"head: random access to {indexed.length} samples; positions are dealt out, nothing is read ahead")
        lines += _nodes(program.head.nodes(), where, "nothing: any position is fetched directly")
        if indexed.remark:
            lines.append(f"  {indexed.remark}")
    else:
        place = "in one worker" if workers else "in the consumer"
        lines.append(f"head: a stream in {program.strands} strand(s), read once, {place}")
        lines += _nodes(program.head.nodes(), place, None)
    for stage in program.stages:
        if not stage.nodes and not stage.inner and stage.group is None:
            continue
        lines.append(f"stage {stage.number}: {stage.why}")
        lines += _nodes(list(stage.inner), where, "the batch at hand")
        if stage.group is not None:
            last = program.assembled and stage is program.last
            place = "in the consumer, while it decodes" if last else where
            drop = ", the last short one is dropped" if stage.drop_last else ""
            lines.append(f"  batch({stage.group}) runs {place}{drop}; resume: the batch at hand")
        lines += _nodes(list(stage.nodes), where, "the batch at hand")
    if program.tail:
        lines.append("tail: must see the whole stream after work was divided")
        lines += _nodes(list(program.tail), "IN THE CONSUMER", None)
    return "\n".join([*lines, *_advice(program)])


def _nodes(nodes: list[Pipe[Any]], place: str, cost: str | None) -> list[str]:
    return [f"  {n.op.describe()} runs {place}; resume: {cost or resume_cost(n)}" for n in nodes]


def resume_cost(node: Pipe[Any]) -> str:
    """What has to be read again when a stream goes on from a snapshot."""
    counted = not node.inputs and node.op.length(()) is not None
    return node.op.resume or usual_cost(type(node.op), counted)


def usual_cost(kind: type[Op[Any, Any]], counted: bool) -> str:
    """The same of a class that says nothing about it; `counted`: a source whose samples can be had by number."""
    if kind.quiet:
        return "nothing of its own"
    if counted:
        return "at most 1000 samples"
    return "the input sample at hand" if issubclass(kind, Flat) else "everything before the position, in this epoch"


def _advice(program: Program) -> list[str]:
    heavy = [
        node.op.describe()
        for node in program.head.nodes()
        if not program.indexed and isinstance(node.op, Each | Flat) and node.op.user and node.inputs
    ]
    if not heavy:
        return []
    return [
        f"advice: {', '.join(heavy)} runs in one place because a later op must see the whole stream; "
        f"move it after shuffle() and sharding_filter() to divide its work"
    ]
