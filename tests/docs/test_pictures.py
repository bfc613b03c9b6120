"""Pictures can be read: on light and on dark, on a telephone, and no words run out of them or into each other."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.drawing import Bar, bars

IMAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "images").glob("*.svg"))
LETTER = 0.57
"""How wide a letter is in the mean, of the size of its font."""


def texts(picture: str) -> list[tuple[float, float, float]]:
    """Left, right and base line of every text, as a browser would set it, more or less."""
    found = []
    for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        size = {"title": 14, "small": 11}.get(text.get("class", ""), 12)
        wide = LETTER * size * len(text.text or "")
        left = float(text.get("x", 0))
        found.append((left, left + wide, float(text.get("y", 0))))
    return found


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_a_picture_has_colours_for_light_and_dark_and_a_size(path: Path) -> None:
    picture = path.read_text()
    head = ElementTree.fromstring(picture)
    assert "prefers-color-scheme: dark" in picture
    assert head.get("viewBox")
    assert head.get("width")
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (\d+)px", picture)]
    assert min(sizes) >= 11


def test_the_words_of_the_bars_stay_inside_and_apart() -> None:
    drawn = [
        Bar(
            "Training on something", "a note of fifty-five letters, which is all there is room", 12.3, 0.97, "Ray Data"
        ),
        Bar("Another", "defaults", 0.4, 1.0, "torchdata.nodes, threads"),
        Bar("A third", "defaults", None, 3.0, "HF datasets"),
    ]
    picture = bars(drawn, ["a foot line", "another one"])
    wide = float((ElementTree.fromstring(picture).get("viewBox") or "").split()[2])
    lines: dict[float, float] = {}
    for left, right, base in sorted(texts(picture)):
        assert right <= wide
        assert left >= lines.get(base, 0)
        lines[base] = right
    bases = sorted(lines)
    assert all(below - above >= 11 for above, below in pairwise(bases))
