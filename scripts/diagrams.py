"""Draws the diagrams of the docs: `python scripts/diagrams.py` writes docs/images/*.svg.

Each is a function that puts boxes, arrows and words on a Canvas. Colours follow the reader's light or dark scheme, so
that a picture is readable on a code host, on the site and in an editor. tests/docs/test_diagrams.py holds the files up
to date.
"""

from collections.abc import Callable
from html import escape
from pathlib import Path

WIDE = 480
"""Narrow enough for letters to be readable on a telephone."""
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2933; }
.small { font-size: 12px; fill: #52606d; }
.code { font-family: ui-monospace, monospace; font-size: 13px; }
.box { fill: #eef2f6; stroke: #9aa5b1; }
.work { fill: #dcebfa; stroke: #3b82c4; }
.good { fill: #dff3e4; stroke: #3a9d5d; }
.bad { fill: #fbe3e1; stroke: #c8483c; }
.line { stroke: #52606d; fill: none; }
.tip { fill: #52606d; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; }
  .small { fill: #a3b1bf; }
  .box { fill: #323f4b; stroke: #7b8794; }
  .work { fill: #1d3b57; stroke: #6cb0ee; }
  .good { fill: #1f4430; stroke: #6fcf97; }
  .bad { fill: #532a27; stroke: #f08a80; }
  .line { stroke: #a3b1bf; }
  .tip { fill: #a3b1bf; }
}
"""


class Canvas:
    """What has been drawn so far, as SVG."""

    def __init__(self, title: str, width: int, height: int) -> None:
        self._title, self._width, self._height = title, width, height
        self._drawn: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        self._drawn.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, words: str = "", kind: str = "box") -> None:
        """A box with one or several lines in its middle; lines after the first are small."""
        self._drawn.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>')
        lines = words.split("\n") if words else []
        top = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 18 * number, line, "small" if number else "", "middle")

    def arrow(self, x: float, y: float, to_x: float, to_y: float, words: str = "") -> None:
        self._drawn.append(f'<path d="M{x} {y} L{to_x} {to_y}" class="line" marker-end="url(#tip)"/>')
        if words:
            self.text((x + to_x) / 2, (y + to_y) / 2 - 6, words, "small", "middle")

    def svg(self) -> str:
        tip = (
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" class="tip"/></marker>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'width="{self._width}" height="{self._height}" role="img">\n<title>{escape(self._title)}</title>\n'
            f"<style>{STYLE}</style>\n<defs>{tip}</defs>\n" + "\n".join(self._drawn) + "\n</svg>\n"
        )


def way_of_a_sample() -> Canvas:
    canvas = Canvas("The way of a sample from a file to the training step", WIDE, 372)
    canvas.box(10, 10, 220, 352, kind="box")
    canvas.text(22, 32, "training process", "small")
    canvas.box(20, 44, 200, 50, "plan\nwhich samples come next", "box")
    canvas.box(20, 296, 200, 50, "training step\nno copy is made", "good")
    canvas.box(250, 10, 220, 280, kind="box")
    canvas.text(262, 32, "worker process", "small")
    canvas.box(260, 130, 200, 50, "read, map, batch\nyour functions run here", "work")
    canvas.arrow(180, 94, 300, 130)
    canvas.text(262, 88, "ticket: samples 640 to 703,", "small")
    canvas.text(262, 104, "write them to slot 3", "small")
    canvas.arrow(360, 180, 360, 240)
    canvas.text(368, 212, "arrays", "small")
    canvas.box(260, 240, 200, 40, "slot 3 of shared memory", "good")
    canvas.arrow(260, 160, 120, 292)
    canvas.text(30, 202, "short reply:", "small")
    canvas.text(30, 218, "what is where", "small")
    canvas.arrow(330, 280, 222, 316)
    return canvas


def stages() -> Canvas:
    canvas = Canvas("A pipe and its stages", WIDE, 300)
    for top, title, names in (
        (10, "stage 0: any worker takes any block of positions", ("Pipe.of", "shuffle", "map", "filter")),
        (180, "stage 1: any worker takes any group of samples", ("batch", "collate", "map")),
    ):
        canvas.box(10, top, 460, 92, kind="box")
        canvas.text(22, top + 22, title, "small")
        for number, name in enumerate(names):
            canvas.box(22 + 113 * number, top + 36, 97, 40, name, "work")
        for number in range(len(names) - 1):
            canvas.arrow(119 + 113 * number, top + 56, 135 + 113 * number, top + 56)
    canvas.arrow(409, 102, 409, 180)
    canvas.text(20, 124, "what passed the filter is put into groups", "small")
    canvas.text(20, 141, "in the order of the epoch", "small")
    return canvas


def ranks() -> Canvas:
    canvas = Canvas("Ranks take batches in turn, and the order of the job does not change with their number", WIDE, 304)

    def row(y: float, label: str, numbers: range, kind: str) -> None:
        canvas.text(10, y + 17, label, "small")
        for number in numbers:
            canvas.box(62 + 34 * number, y, 30, 24, str(number), kind)

    canvas.text(10, 22, "the batches of an epoch")
    row(30, "", range(12), "box")
    kinds = ("work", "good", "box")
    for top, count in ((84, 2), (176, 3)):
        canvas.text(10, top + 2, f"on {count} ranks")
        for rank in range(count):
            row(top + 10 + 28 * rank, f"rank {rank}", range(rank, 12, count), kinds[rank])
    return canvas


def recovery() -> Canvas:
    canvas = Canvas("A worker is killed, its batch is made again, the order is kept", WIDE, 200)
    for y, words in ((46, "worker 0"), (96, "worker 1"), (166, "you get")):
        canvas.text(10, y, words, "small")
    for name, x, y, width, kind in [
        ("0", 66, 26, 66, "work"),
        ("2", 138, 26, 66, "work"),
        ("4", 210, 26, 40, "bad"),
        ("new", 276, 26, 54, "box"),
        ("6", 336, 26, 66, "work"),
        ("1", 66, 76, 66, "work"),
        ("3", 138, 76, 66, "work"),
        ("5", 210, 76, 66, "work"),
        ("4 again", 282, 76, 66, "good"),
        ("7", 354, 76, 66, "work"),
    ]:
        canvas.box(x, y, width, 30, name, kind)
    canvas.text(252, 18, "kill -9", "small", "middle")
    for number, x in enumerate((132, 158, 204, 230, 348, 374, 420, 446)):
        canvas.box(x, 146, 22, 30, str(number), "good")
    return canvas


def moving() -> Canvas:
    canvas = Canvas("A snapshot that moves from 3 ranks to 2", WIDE, 254)
    canvas.text(10, 24, "3 ranks, killed", "")
    canvas.text(300, 24, "2 ranks, resumed", "")
    for rank in range(3):
        canvas.text(10, 57 + 34 * rank, f"rank {rank}", "small")
        for step in range(2):
            canvas.box(58 + 42 * step, 40 + 34 * rank, 36, 26, str(3 * step + rank), "work")
    for rank in range(2):
        canvas.text(300, 74 + 34 * rank, f"rank {rank}", "small")
        for step in range(3):
            canvas.box(348 + 42 * step, 57 + 34 * rank, 36, 26, str(6 + 2 * step + rank), "work")
    canvas.box(70, 172, 340, 46, "snapshot\n6 batches are delivered; seed and epoch", "good")
    canvas.arrow(95, 138, 140, 172)
    canvas.arrow(340, 172, 390, 122)
    canvas.text(10, 244, "Every batch comes once, in the same order.", "small")
    return canvas


DIAGRAMS: dict[str, Callable[[], Canvas]] = {
    "sample": way_of_a_sample,
    "stages": stages,
    "ranks": ranks,
    "recovery": recovery,
    "moving": moving,
}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
