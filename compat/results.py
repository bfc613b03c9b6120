"""What one run found, as plain data: `results/SUITE.json`."""

import json
from pathlib import Path
from typing import Any

from compat.losses import classify, read
from compat.proof import Proof
from compat.running import Outcomes
from compat.suites import Suite

FOLDER = Path(__file__).with_name("results")


def compare(suite: Suite, versions: dict[str, str], original: Outcomes, ours: Outcomes, proof: Proof) -> dict[str, Any]:
    """Counts, and every loss with its class."""
    lost = sorted(original.passed() - ours.passed())
    losses = [
        {
            "test": test,
            "outcome": ours.outcome.get(test, "not found"),
            "error": ours.error.get(test) or ours.broken.get(test.split("::")[0], ""),
        }
        for test in lost
    ]
    return {
        "suite": suite.name,
        "title": suite.title,
        "versions": versions,
        "original": original.counts(),
        "ours": ours.counts(),
        "comparable": len(original.passed()),
        "kept": len(original.passed() & ours.passed()),
        "proof": proof.plain(),
        "losses": classified(suite.name, losses),
        "gained": sorted(ours.passed() - original.passed()),
        "passed when repeated": {"original": sorted(original.repeated), "ours": sorted(ours.repeated)},
        "original outcomes": dict(sorted(original.outcome.items())),
    }


def classified(suite: str, losses: list[dict[str, str]]) -> list[dict[str, str]]:
    """The losses with the classes that the list gives them now."""
    entries = read()
    found = [classify(suite, loss["test"], entries) for loss in losses]
    return [
        loss | {"class": entry.kind, "reason": entry.reason, "link": entry.link}
        for loss, entry in zip(losses, found, strict=True)
    ]


def write(result: dict[str, Any], folder: Path = FOLDER) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{result['suite']}.json"
    file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return file


def stored(folder: Path = FOLDER) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
