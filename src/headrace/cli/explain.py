"""`headrace explain FILE:pipe`: the plan of a pipe: its stages, where each op runs and why, what it costs to resume."""

import argparse
import json
from typing import Any, Protocol, runtime_checkable

from headrace.cli.subject import Subject, find
from headrace.engine.program import cut
from headrace.errors import BadOption


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="headrace explain", description="Show the plan of a pipe.")
    parser.add_argument("subject", metavar="FILE:pipe", help="a Pipe, a Loader, a DataLoader, or a function giving one")
    parser.add_argument("--workers", type=int, metavar="N", help="plan for so many workers")
    parser.add_argument("--json", action="store_true", help="print all of it as one JSON object")
    args = parser.parse_args(argv)
    subject = find(args.subject)
    print(json.dumps(data(subject, args.workers), indent=2) if args.json else text(subject, args.workers))
    return 0


def text(subject: Subject, workers: int | None) -> str:
    pipe = subject.pipe
    if pipe is None:
        return _plan_of_loader(subject)
    return f"{pipe!r}\n\n{pipe.explain(workers=_workers(subject, workers))}"


def data(subject: Subject, workers: int | None) -> dict[str, Any]:
    pipe = subject.pipe
    if pipe is None:
        return {"loader": type(subject.target).__name__, "plan": _plan_of_loader(subject).splitlines()}
    program = cut(pipe, subject.loader().seed)
    return {
        "pipe": repr(pipe),
        "ops": [node.op.describe() for node in pipe.nodes()],
        "fingerprint": pipe.fingerprint(),
        "length": pipe.length(),
        "workers": _workers(subject, workers),
        "indexed": program.indexed,
        "countable": program.countable,
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
        "plan": pipe.explain(workers=_workers(subject, workers)).splitlines(),
    }


def _workers(subject: Subject, asked: int | None) -> int:
    if asked is not None:
        if asked < 0:
            raise BadOption(f"--workers {asked}: a whole number >= 0")
        return asked
    return subject.loader().policy.workers or 2


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
