"""docs/compatibility.md, from the stored results."""

from pathlib import Path
from typing import Any

from compat import results
from compat.losses import DEFECT, DOCUMENTED, PRIVATE

FILE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

HEAD = """# The tests of others

Headrace takes the place of loaders that have tests of their own. `scripts/compat SUITE CHECKOUT` runs such a suite
twice, with the original and then with headrace in its place, in environments that it makes itself, and lists every test
that passes with the first and not with the second. `scripts/compat --page` makes this page from its results.

Each process of a run (workers, spawned ranks, programs that tests start) writes down whose classes it used; a run in
which one of them used the original's fails. A test has a time limit, and what does not pass is repeated once, apart
from the rest, on both sides.
"""

CLASSES = f"""
A loss is a *{PRIVATE}* when the test reads or replaces something that the original does not document, a
*{DOCUMENTED}* when our documentation says that headrace does it otherwise and why, and else a *{DEFECT}*.
"""


def text(found: list[dict[str, Any]]) -> str:
    parts = [HEAD, table(found), CLASSES]
    parts += [section(result) for result in found]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def table(found: list[dict[str, Any]]) -> str:
    rows = [
        "| suite | original | passes with the original | of these with headrace | private | documented | defects |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in found:
        counts = [sum(loss["class"] == kind for loss in result["losses"]) for kind in (PRIVATE, DOCUMENTED, DEFECT)]
        cells = [result["title"], result["versions"]["original"], result["comparable"], result["kept"], *counts]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def section(result: dict[str, Any]) -> str:
    versions, proof = result["versions"], result["proof"]
    lines = [
        f"## {result['title']}",
        "",
        f"`scripts/compat {result['suite']} CHECKOUT`, checkout {versions['checkout']}, torch {versions['torch']}, "
        f"Python {versions['Python']}, headrace {versions['headrace']}. Of {proof['processes']} processes "
        f"{proof['replaced']} asked for a name of the original and got ours, {proof['used']} iterated ours, none used "
        "the original.",
    ]
    lost: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for loss in result["losses"]:
        lost.setdefault((loss["class"], loss["reason"], loss["link"]), []).append(loss)
    for (kind, reason, link), losses in sorted(lost.items()):
        said = f": {reason}" if reason else ""
        where = f" ([why]({link}))" if link else ""
        lines += ["", f"*{kind.capitalize()}*{said}{where}", ""]
        lines += [f"* `{loss['test']}`" for loss in losses]
    if not lost:
        lines += ["", "Nothing is lost."]
    return "\n".join(lines)


def write() -> Path:
    """The page; what the list of losses says by now is written into the results too."""
    found = results.stored()
    for result in found:
        result["losses"] = results.classified(result["suite"], result["losses"])
        results.write(result)
    FILE.write_text(text(found))
    return FILE
