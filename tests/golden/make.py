"""Writes the golden snapshots of this version: `python -m tests.golden.make`. Old files are never rewritten."""

import hashlib
import json
from itertools import islice
from pathlib import Path
from typing import Any

from headrace import Loader, __version__
from tests.golden.pipes import PIPES

FOLDER = Path(__file__).resolve().parent
SEED = 17
REST = 50


def digest(samples: Any) -> str:
    return hashlib.sha256("\n".join(repr(s) for s in islice(samples, REST)).encode()).hexdigest()


def main() -> None:
    path = FOLDER / f"snapshots-{__version__}.json"
    if path.exists():
        raise SystemExit(f"{path.name} exists: snapshots of a released version are never made again")
    made = {}
    for name, pipe in PIPES.items():
        for at in (0, 1, 7):
            loader = Loader(pipe, seed=SEED, epoch=2)
            samples = iter(loader)
            for _ in range(at):
                next(samples)
            made[f"{name} at {at}"] = {"pipe": name, "state": loader.state_dict(), "rest": digest(samples)}
    path.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
