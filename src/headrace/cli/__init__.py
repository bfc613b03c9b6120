"""The `headrace` command: one module of this folder for each verb, imported when the verb is used.

A verb's module has `main(argv: list[str]) -> int`. `headrace --help` imports none of them.
Exit codes: a verb's own; 2 for an option that is wrong, with one line that says what to write; 130 after Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from headrace.errors import HeadraceError, meant

VERBS = {
    "doctor": "say which launcher started this process, what this machine allows, and what to change",
    "explain": "show the plan of a pipe: where each op runs and why",
    "profile": "say where the time of a pipe goes and what limits its speed",
    "run": "start a program on many processes",
    "snapshot": "show a saved state, or how two differ",
    "tokenize": "tokenize text once, into token files that are mapped and never loaded",
    "verify": "prove that a pipe delivers each sample once, the same for any workers, and resumes",
}


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    _fill_closed_streams()
    if args and args[0] in VERBS:
        return _verb(args[0], args[1:])
    verbs = "\n".join(f"  {name:12}{text}" for name, text in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="headrace",
        description="Carries data to a training loop.",
        epilog=f"verbs:\n{verbs}\n\nheadrace VERB --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headrace {_version()}")
    parser.add_argument("verb", choices=VERBS, metavar="VERB")
    if args and not args[0].startswith("-"):
        hint = meant(args[0], VERBS, f"there are {', '.join(VERBS)}")
        print(f"headrace: there is no verb {args[0]!r}{hint}", file=sys.stderr)
        return 2
    try:
        parser.parse_args(args[:1] or ["--help"])
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("a verb that argparse knows is in VERBS")


def _verb(name: str, args: list[str]) -> int:
    code: int = 0
    try:
        code = import_module(f"headrace.cli.{name}").main(args)
        sys.stdout.flush()  # here, where BrokenPipeError is caught
        return code
    except HeadraceError as error:
        print(f"headrace {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except SystemExit as end:  # argparse has said what is wrong
        return int(end.code or 0)


def _fill_closed_streams() -> None:
    """Where the command was started with a stream closed (`<&-`, `>&-`), it is empty, and what goes there goes nowhere.

    Left closed, their numbers would be given to the next files and sockets that are opened.
    """
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            os.set_inheritable(number, True)  # (where both are one number, dup2 has done nothing)
            if nowhere > 2:
                os.close(nowhere)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - as long as we run


def _version() -> str:
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:
        return "(not installed)"
