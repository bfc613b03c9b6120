"""`headrace verify FILE:pipe`: reads an epoch in several ways and proves that all give the same batches.

One line per proof. Exit code 0 when all hold, 1 when one does not. What is compared are digests of whole batches, bit
by bit, so a batch that differs in one random number is found.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from headrace.cli.proofs import Proof, ProofOptions, prove, prove_stateful
from headrace.cli.replay import replay
from headrace.cli.subject import find
from headrace.engine.policy import KINDS
from headrace.errors import BadOption


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="headrace verify",
        description="Read an epoch inline and with several workers, and prove that every sample comes once, that all "
        "readings are equal, and that reading can stop anywhere and go on elsewhere.",
    )
    add = parser.add_argument
    add("subject", metavar="FILE:pipe", help="a Pipe, a Loader, a DataLoader, or a function giving one")
    add("--workers", default="1,2,3", metavar="N,N", help="numbers of workers to try (1,2,3)")
    add("--kinds", metavar="K,K", help="of: process, thread, ray (process, and threads as a remark)")
    ranks = "also read as each of N ranks, and prove that they share exactly"
    add("--ranks", type=int, default=1, metavar="N", help=ranks)
    add("--cuts", type=int, default=4, metavar="N", help="places to stop and resume at (4)")
    add("--batches", type=int, metavar="N", help="only so many batches of the epoch, for long ones")
    add("--epoch", type=int, default=0, metavar="N", help="which epoch (0)")
    add("--quarantine", type=Path, metavar="FILE", help="run the samples of this quarantine file again, nothing else")
    add("--json", action="store_true", help="print all of it as one JSON object")
    args = parser.parse_args(argv)
    subject = find(args.subject)
    if args.quarantine is not None:
        proofs = replay(subject, args.quarantine)
    elif subject.pipe is None:
        proofs = prove_stateful(subject.target, args.cuts, args.batches)
    else:
        proofs = prove(subject, _options(args))
    return _report(proofs, args.json)


def _options(args: argparse.Namespace) -> ProofOptions:
    try:
        workers = tuple(int(word) for word in args.workers.split(","))
    except ValueError:
        workers = ()
    if not workers or min(workers) < 1:
        raise BadOption(f"--workers {args.workers}: whole numbers >= 1 with commas between, such as 1,2,4")
    kinds = tuple(args.kinds.split(",")) if args.kinds else ()
    known = [kind for kind in KINDS if kind != "inline"]
    for kind in kinds:
        if kind not in known:
            raise BadOption(f"--kinds {kind}: one of {', '.join(known)}")
    for name, least in (("ranks", 1), ("cuts", 0), ("epoch", 0), ("batches", 1)):
        if getattr(args, name) is not None and getattr(args, name) < least:
            raise BadOption(f"--{name} {getattr(args, name)}: a whole number >= {least}")
    return ProofOptions(workers, kinds, args.ranks, args.cuts, args.batches, args.epoch)


def _report(proofs: Iterator[Proof], as_json: bool) -> int:
    found: list[Proof] = []
    for proof in proofs:
        found.append(proof)
        if not as_json:
            print(proof.line(), flush=True)
    broken = [proof for proof in found if proof.holds is False]
    if as_json:
        print(json.dumps({"holds": not broken, "proofs": [proof._asdict() for proof in found]}, indent=2))
    elif broken:
        print(f"{len(broken)} of {len(found)} do not hold")
    return 1 if broken else 0
