"""`headrace explain FILE:pipe`: the plan of a pipe: its stages, where each op runs and why, what it costs to resume."""

import argparse
import json
from typing import Any, Protocol, runtime_checkable

from headrace.cli.subject import Subject, find
from headrace.engine.program import cut
from headrace.errors import BadOption
from headrace.pipe.graph import Pipe


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="headrace explain", description="Show the plan of a pipe.")
    parser.add_argument("subject", metavar="FILE:pipe", help="a Pipe, a Loader, a DataLoader, or a function giving one")
    parser.add_argument("--workers", type=int, metavar="N", help="plan for so many workers")
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    args = parser.parse_args(argv)
    subject = find(args.subject)
    pipe = subject.pipe
    if pipe is None:
        text = plan = _plan_of_loader(subject)
        data: dict[str, Any] = {"loader": type(subject.target).__name__}
    else:
        loader = subject.loader()
        workers = (loader.policy.workers or 2) if args.workers is None else args.workers
        if workers < 0:
            raise BadOption(f"--workers {workers}: a whole number >= 0")
        plan = pipe.explain(workers=workers)
        text, data = f"{pipe!r}\n\n{plan}", _stages(pipe, loader.seed, workers)
    print(json.dumps({**data, "plan": plan.splitlines()}, indent=2) if args.json else text)
    return 0


def _stages(pipe: Pipe[Any], seed: int, workers: int) -> dict[str, Any]:
    """The plan as plain data."""
    program = cut(pipe, seed)
    return {
        "pipe": repr(pipe),
        "ops": [node.op.describe() for node in pipe.nodes()],
        "fingerprint": pipe.fingerprint(),
        "length": pipe.length(),
        "workers": workers,
        "indexed": program.indexed,
        "countable": program.steps_known,
        "strands": program.strands,
        "stages": [
            {
                "number": stage.number,
                "feed": stage.feed,
                "why": stage.why,
                "group": stage.group,
                "ops": [node.op.describe() for node in (*stage.inner, *stage.nodes)],
            }
            for stage in program.stages
        ],
        "head": [node.op.describe() for node in program.head.nodes()],
        "tail": [node.op.describe() for node in program.tail],
    }


@runtime_checkable
class Explains(Protocol):
    """A loader that makes its pipe only when it runs, and can say what the plan will be."""

    def explain(self) -> str: ...


def _plan_of_loader(subject: Subject) -> str:
    """The plan of a loader that the user has not made from a pipe."""
    if not isinstance(subject.target, Explains):
        raise BadOption(
            f"{subject.text} is of type {type(subject.target).__name__}, which has no plan to show; name a Pipe, a "
            "Loader, or a DataLoader of headrace's"
        )
    return subject.target.explain()
