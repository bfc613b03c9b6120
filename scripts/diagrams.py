"""Draws the diagrams of the docs: `python scripts/diagrams.py` writes docs/images/*.svg.

Each is a function that puts boxes, arrows and words on a Canvas. Colours follow the reader's light or dark scheme, so
that a picture is readable on a code host, on the site and in an editor. tests/docs/test_diagrams.py holds the files up
to date.
"""

from collections.abc import Callable
from html import escape
from itertools import pairwise
from pathlib import Path

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
    canvas = Canvas("The way of a sample from a file to the training step", 860, 250)
    canvas.box(10, 20, 250, 210, kind="box")
    canvas.text(22, 42, "training process", "small")
    canvas.box(25, 60, 220, 46, "the plan\nwhich positions, as integers", "box")
    canvas.box(25, 166, 220, 46, "the training step\nviews of shared memory", "good")
    canvas.box(600, 20, 250, 210, kind="box")
    canvas.text(612, 42, "worker process", "small")
    canvas.box(615, 60, 220, 46, "file, source, map, batch\nyour functions run here", "work")
    canvas.box(330, 166, 200, 46, "slot of shared memory\nwritten once, never copied", "good")
    canvas.arrow(245, 83, 615, 83, "ticket: positions 640 to 704, slot 3")
    canvas.arrow(725, 106, 530, 186, "")
    canvas.text(664, 160, "arrays", "small")
    canvas.arrow(615, 100, 245, 140, "")
    canvas.text(430, 142, "small reply: where in the slot", "small", "middle")
    canvas.arrow(330, 189, 245, 189, "")
    return canvas


def stages() -> Canvas:
    canvas = Canvas("A graph and its stages", 860, 230)
    ops = [
        ("Pipe.of", 20),
        ("shuffle", 125),
        ("map", 230),
        ("filter", 335),
        ("batch", 515),
        ("collate", 620),
        ("map", 725),
    ]
    canvas.box(10, 40, 440, 92, kind="box")
    canvas.text(22, 60, "stage 0: blocks of positions", "small")
    canvas.box(505, 40, 345, 92, kind="box")
    canvas.text(517, 60, "stage 1: groups of what passed", "small")
    for name, x in ops:
        canvas.box(x, 74, 95, 40, name, "work")
    for (_, x), (_, following) in pairwise(ops):
        canvas.arrow(x + 95, 94, following, 94)
    canvas.text(230, 160, "any worker runs any block", "small", "middle")
    canvas.text(678, 160, "any worker runs any group", "small", "middle")
    canvas.text(
        478,
        190,
        "between them the training process only regroups references: how many samples pass a filter",
        "small",
        "middle",
    )
    canvas.text(478, 208, "is known when it has run, and batches must not depend on who ran it", "small", "middle")
    return canvas


def ranks() -> Canvas:
    canvas = Canvas("Ranks take batches in turn, and the order of the job does not change with their number", 860, 270)
    canvas.text(10, 28, "the order of the job", "small")
    for number in range(12):
        canvas.box(160 + 56 * number, 10, 50, 28, str(number), "box")
    for row, count in enumerate((2, 3)):
        top = 70 + 100 * row
        canvas.text(10, top + 16, f"{count} ranks")
        for rank in range(count):
            canvas.text(90, top + 16 + 30 * rank, f"rank {rank}", "small")
            for number in range(rank, 12, count):
                canvas.box(160 + 56 * number, top + 30 * rank, 50, 24, str(number), ("work", "good", "box")[rank])
    return canvas


def recovery() -> Canvas:
    canvas = Canvas("A worker is killed, its batch is made again, the order is kept", 860, 190)
    canvas.text(10, 45, "worker 0")
    canvas.text(10, 95, "worker 1")
    canvas.text(10, 165, "delivered")
    for name, x, y, width, kind in [
        ("0", 100, 25, 110, "work"),
        ("2", 220, 25, 110, "work"),
        ("4", 340, 25, 70, "bad"),
        ("a new worker", 440, 25, 130, "box"),
        ("6", 580, 25, 110, "work"),
        ("1", 100, 75, 110, "work"),
        ("3", 220, 75, 110, "work"),
        ("5", 340, 75, 110, "work"),
        ("4 again", 460, 75, 110, "good"),
        ("7", 580, 75, 110, "work"),
    ]:
        canvas.box(x, y, width, 30, name, kind)
    canvas.text(415, 20, "kill -9", "small", "middle")
    for number, x in enumerate((210, 242, 330, 362, 570, 602, 690, 722)):
        canvas.box(x, 145, 28, 30, str(number), "good")
    return canvas


def moving() -> Canvas:
    canvas = Canvas("A snapshot that moves from 3 ranks to 2", 860, 230)
    for rank in range(3):
        canvas.text(10, 47 + 36 * rank, f"rank {rank} of 3", "small")
        for step in range(2):
            canvas.box(100 + 70 * step, 28 + 36 * rank, 60, 28, str(3 * step + rank), "work")
    canvas.box(300, 46, 190, 64, "snapshot\nposition 6 x 32, seed, epoch", "good")
    canvas.arrow(230, 78, 300, 78)
    canvas.arrow(490, 78, 560, 78)
    for rank in range(2):
        canvas.text(560, 57 + 44 * rank, f"rank {rank} of 2", "small")
        for step in range(3):
            canvas.box(640 + 70 * step, 38 + 44 * rank, 60, 28, str(6 + 2 * step + rank), "work")
    canvas.text(
        10,
        180,
        "batches 0 to 5 were delivered, what follows is to come: in the same order, each once, whoever takes it",
        "small",
    )
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
