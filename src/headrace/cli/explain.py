"""`headrace explain FILE:pipe`: the plan - stages, where each op runs and why, what it costs to resume."""

import argparse
import json
from typing import Any

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
    if args.json:
        print(json.dumps(data(subject, args.workers), indent=2))
    else:
        print(text(subject, args.workers))
    return 0


def text(subject: Subject, workers: int | None) -> str:
    pipe = subject.pipe
    if pipe is None:
        return _foreign(subject.thing)
    return f"{pipe!r}\n\n{pipe.explain(workers=_workers(subject, workers))}"


def data(subject: Subject, workers: int | None) -> dict[str, Any]:
    pipe = subject.pipe
    if pipe is None:
        return {"loader": type(subject.thing).__name__, "plan": _foreign(subject.thing).splitlines()}
    loader = subject.loader()
    program = cut(pipe, loader.seed)
    length = pipe.length()
    return {
        "pipe": repr(pipe),
        "ops": [node.op.describe() for node in pipe.nodes()],
        "fingerprint": pipe.fingerprint(),
        "length": length,
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
    own = subject.loader().policy.workers
    return own or 2


def _foreign(loader: object) -> str:
    """A DataLoader in torch's form: what its arguments mean for the engine."""
    if not hasattr(loader, "dataset"):
        return f"{type(loader).__name__}: it makes its plan when it starts, and has none to show before"
    workers = getattr(loader, "num_workers", 0)
    iterable = getattr(loader, "shard", None) is not None or not hasattr(loader.dataset, "__getitem__")
    free = getattr(loader, "reproducible", False) or not getattr(loader, "in_order", True)
    lines = [f"{type(loader).__name__} over {type(loader.dataset).__name__}, {workers} workers"]
    if iterable and getattr(loader, "shard", None) == "auto":
        lines.append("  the dataset is read once, in one worker; its batches are made in any worker")
    elif iterable:
        lines.append("  every worker reads the dataset for itself; batches are delivered in turn, one from each")
    else:
        lines.append("  the sampler runs in the consumer and lists the indices of each batch")
        lines.append(
            "  any worker that is free fetches a batch" if free else "  batch k is fetched by worker k mod num_workers"
        )
    lines.append(
        "  random values hang on the batch"
        if getattr(loader, "reproducible", False)
        else "  random values hang on the worker, as torch's do; reproducible=True makes them hang on the batch"
    )
    return "\n".join(lines)
