"""`headrace profile FILE:pipe`: where the time goes, and what holds it up."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.cli.subject import find, named
from headrace.engine.policy import KINDS
from headrace.errors import BadOption


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace profile",
        description="Run a pipe for some seconds under a clock and say what holds it up. Without --consumer, batches "
        "are taken as fast as they come: the loader sets the pace then, and the question is which part of it.",
    )
    add = parser.add_argument
    add(
        "subject",
        metavar="FILE:pipe",
        help="a Pipe, a Loader, a DataLoader (torch's own too), or a function giving one",
    )
    add("--workers", type=int, metavar="N", help="run with so many workers")
    add("--kind", choices=KINDS, help="of this kind")
    add("--consumer", metavar="FILE:function", help="called with each batch, in the place of the training step")
    add("--seconds", type=float, default=5.0, metavar="S", help="run for so long (5), start-up not counted")
    add("--batches", type=int, metavar="N", help="or for so many batches, whichever comes first")
    add("--html", type=Path, metavar="OUT", help="write one page with the timeline, the ops and the memory")
    add("--perfetto", type=Path, metavar="OUT", help="write a trace for ui.perfetto.dev")
    add("--json", action="store_true", help="print all figures as one JSON object")
    args = parser.parse_args(argv)
    from headrace.observe.profile import profile  # --help needs none of it

    for name in ("seconds", "batches"):
        if getattr(args, name) is not None and getattr(args, name) <= 0:
            raise BadOption(f"--{name} {getattr(args, name)}: a number > 0")
    changes = {name: getattr(args, name) for name in ("workers", "kind") if getattr(args, name) is not None}
    consumer = _consumer(args.consumer)
    with find(args.subject, torchs=True).measurable(**changes) as loader:
        seen = profile(loader, consumer, seconds=args.seconds, batches=args.batches)
    for path, text in ((args.html, seen.html), (args.perfetto, lambda: json.dumps(seen.trace()))):
        if path is not None:
            _write(path, text())
    print(json.dumps(seen.data(), indent=2) if args.json else seen.text())
    return 0


def _consumer(text: str | None) -> Callable[[Any], Any] | None:
    if text is None:
        return None
    found = named(text)
    if not callable(found):
        raise BadOption(f"--consumer {text}: a function of one batch, not a {type(found).__name__}")
    function: Callable[[Any], Any] = found
    return function


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadOption(f"{path}: {error.strerror}") from None
