"""A run in parts, for machines on which nothing may run for long: each part is kept until all of them are there."""

import json
from dataclasses import asdict
from pathlib import Path

from compat.environments import say
from compat.proof import Proof
from compat.running import Outcomes


def kept(home: Path, name: str, part: tuple[int, int], ours: Outcomes, proof: Proof) -> tuple[Outcomes, Proof] | None:
    """Keep what one part of a run found; what all of them found, if this was the last that was missing."""
    number, many = part
    files = {k: home / "parts" / f"{name}-{k}-of-{many}.json" for k in range(1, many + 1)}
    files[number].parent.mkdir(exist_ok=True)
    files[number].write_text(json.dumps([asdict(ours), asdict(proof)]))
    if missing := [f"{k}/{many}" for k, file in files.items() if not file.exists()]:
        say(f"kept; still missing: {', '.join(missing)}")
        return None
    outcomes, proofs = Outcomes(), Proof()
    for file in files.values():
        found, proven = json.loads(file.read_text())
        outcomes.add(Outcomes(**found))
        proofs.add(Proof(**proven))
    return outcomes, proofs
