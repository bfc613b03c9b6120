"""The pictures of the docs are those that scripts/diagrams.py draws, and pages show them."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


def test_the_diagrams_are_up_to_date_and_shown() -> None:
    program = "from scripts.diagrams import DIAGRAMS; print({name: draw().svg() for name, draw in DIAGRAMS.items()})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    drawn: dict[str, str] = eval(done.stdout)
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for name, picture in drawn.items():
        ElementTree.fromstring(picture)
        assert (ROOT / "docs" / "images" / f"{name}.svg").read_text() == picture, "run python scripts/diagrams.py"
        assert f"images/{name}.svg" in pages
