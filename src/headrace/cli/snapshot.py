"""`headrace snapshot show FILE` and `headrace snapshot diff FILE FILE`: what a saved `state_dict()` says, in words.

Files are JSON, as `autosave=` and `json.dump(loader.state_dict(), file)` write them. Exit code of diff: 1 when the two
stand at different places.
"""

import argparse
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from headrace.cli.subject import Subject, find
from headrace.engine.feeds.counter import Finished
from headrace.engine.places import JobPlace, RunPlace, read_epoch_place
from headrace.engine.snapshot import check
from headrace.errors import BadOption, BadPipe, SnapshotRefused

_READS = "this command reads snapshots of Loader and DataLoader2 as JSON"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="headrace snapshot", description="Show or compare snapshots of loaders.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="show|diff")
    show = verbs.add_parser("show", prog="headrace snapshot show", help="what a snapshot says")
    show.add_argument("file", type=Path)
    show.add_argument("--pipe", metavar="FILE:pipe", help="the pipe it belongs to: ops get names, and it is checked")
    diff = verbs.add_parser("diff", prog="headrace snapshot diff", help="how two snapshots differ")
    diff.add_argument("file", type=Path, nargs=2)
    diff.add_argument("--pipe", metavar="FILE:pipe", help="the pipe they belong to: ops get names")
    for verb in (show, diff):
        verb.add_argument("--json", action="store_true", help="print it as one JSON object")
    args = parser.parse_args(argv)
    subject = None if args.pipe is None else find(args.pipe)
    pipe = None if subject is None else subject.pipe
    names = [] if pipe is None else [node.op.describe() for node in pipe.nodes()]
    if args.verb == "show":
        return _show(args.file, subject, names, args.json)
    one, other = args.file
    return _diff(one, other, names, args.json)


def _show(file: Path, subject: Subject | None, names: list[str], as_json: bool) -> int:
    state = read(file)
    facts = describe(state)
    refused = None if subject is None else _refusal(state, subject)
    if as_json:
        fits = None if subject is None else refused is None
        print(json.dumps({**facts, "fits": fits, "refused": refused}, indent=2))
    else:
        print(f"{file}: {facts['bytes']} bytes, version {facts['version']}")
        print(f"  seed {facts['seed']}, epoch {facts['epoch']}")
        print(f"  at {facts['place']}")
        for number, fingerprint in enumerate(facts["pipe"]):
            print(f"  op {number}: {fingerprint}  {''.join(names[number : number + 1])}".rstrip())
        if subject is not None:
            print(f"  does not fit {subject.text}: {refused}" if refused else f"  fits {subject.text}")
    return 1 if refused else 0


def _diff(one: Path, other: Path, names: list[str], as_json: bool) -> int:
    left, right = describe(read(one)), describe(read(other))
    found = differences(left, right, names)
    if as_json:
        print(json.dumps({"same": not found, "differences": found}, indent=2))
    else:
        print("\n".join(f"{name}: {a} | {b}" for name, a, b in found) or "the same place of the same pipe")
    return 1 if found else 0


def differences(left: dict[str, Any], right: dict[str, Any], names: list[str]) -> list[tuple[str, str, str]]:
    """What differs: the name of it, and both values as text."""
    found = [(n, str(left[n]), str(right[n])) for n in ("version", "seed", "epoch", "place") if left[n] != right[n]]
    for number, (a, b) in enumerate(zip_longest(left["pipe"], right["pipe"], fillvalue="none")):
        if a != b:
            name = f" ({names[number]})" if number < len(names) else ""
            found.append((f"op {number}{name}", a, b))
    return found


def read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{file}: {getattr(error, 'strerror', None) or f'this is not text; {_READS}'}") from None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(
            f"{file} is not JSON ({error}); {_READS}, written with json.dump(loader.state_dict(), file)"
        ) from None
    if isinstance(state, dict) and isinstance(state.get("loader"), dict):
        state = state["loader"]  # a DataLoader2's: the place is that of the Loader inside it
    if not isinstance(state, dict):
        raise BadOption(f"{file} is not a snapshot of a Loader")
    if missing := [name for name in ("version", "seed", "epoch", "at", "pipe") if name not in state]:
        raise BadOption(f"{file} is not a snapshot of a Loader: no {', '.join(missing)} in it")
    return state


def describe(state: dict[str, Any]) -> dict[str, Any]:
    """The fields of a snapshot, its place in words."""
    return {
        "version": state["version"],
        "seed": state["seed"],
        "epoch": state["epoch"],
        "place": place(state["at"]),
        "pipe": state["pipe"],
        "bytes": len(json.dumps(state)),
    }


def place(at: object) -> str:
    """Where an epoch stands, in words."""
    try:
        here = read_epoch_place(at)
    except (SnapshotRefused, RecursionError):
        return f"a place that this version cannot read: {json.dumps(at)[:80]}"
    return "the start of the epoch" if here is None else here.describe()


def _refusal(state: dict[str, Any], subject: Subject) -> str | None:
    """None if the snapshot belongs to the pipe, else why not."""
    try:
        with subject.loader() as loader:
            _, epoch, at = check({**state, "pipe": subject.known_as(state["pipe"])}, loader.pipe)
            if isinstance(at, JobPlace):
                at.fit(loader.program)  # (whatever the number of ranks that it is for)
            elif at is not None and not isinstance(at.place, Finished):
                loader.go_to(epoch, at)
        if isinstance(at, RunPlace) and isinstance(at.place, Finished):
            with subject.loader(sharding="dynamic") as loader:
                loader.go_to(epoch, at)
    except (SnapshotRefused, BadPipe) as refused:
        return str(refused)
    return None
