"""Drawings of a profile: SVG text out of plain numbers.

    timeline   a row for the training loop and one for each worker; a box is a ticket, a wait, a step
    flame      the seconds of a batch: head, work, transport, tail, step; under each its ops, as wide as they are long
    curve      a number over time

Every box has a title, which a browser shows under the mouse; the style sheet of the page gives classes their colours.
"""

from collections.abc import Sequence
from html import escape

WIDTH = 1200
ROW = 22
BOXES = 6000
"""Boxes in a timeline; a longer run is cut at its end."""
POINTS = 1500

TicketBox = tuple[int, int, int, float, float, int]
"""worker, stage, number, began, ended, bytes"""
BatchBox = tuple[float, float, float, float]
"""asked, seconds waited, got, step over"""


def timeline(tickets: Sequence[TicketBox], batches: Sequence[BatchBox], end: float) -> str:
    """Who did what, when."""
    tickets = sorted(tickets, key=lambda t: t[3])[:BOXES]
    end = min(end, tickets[-1][4]) if len(tickets) == BOXES else end
    batches = [batch for batch in batches[: BOXES // 3] if batch[0] <= end]
    workers = sorted({ticket[0] for ticket in tickets})
    rows = {worker: 1 + place for place, worker in enumerate(workers)}
    scale = WIDTH / end if end else 0.0
    boxes = []
    for number, (asked, waited, got, over) in enumerate(batches):
        taking = got - asked - waited
        if not number:  # workers, files, the first of everything: it says nothing about the pace
            title = f"start-up, until the first batch: {_ms(got - asked)}"
            boxes.append(_box(asked * scale, 0, (got - asked) * scale, "start", title))
        else:
            boxes.append(_box(asked * scale, 0, waited * scale, "wait", f"batch {number}: waited {_ms(waited)}"))
            title = f"batch {number}: taken in {_ms(taking)}"
            boxes.append(_box((asked + waited) * scale, 0, taking * scale, "take", title))
        boxes.append(_box(got * scale, 0, (over - got) * scale, "step", f"step {number}: {_ms(over - got)}"))
    for worker, stage, number, began, ended, size in tickets:
        title = f"worker {worker}, stage {stage}, ticket {number}: {_ms(ended - began)}, {size} bytes"
        boxes.append(_box(began * scale, rows[worker], (ended - began) * scale, f"stage{stage % 6}", title))
    height = ROW * (1 + len(workers))
    names = ["training loop", *(f"worker {worker}" for worker in workers)]
    labels = "".join(f'<div style="height:{ROW}px">{escape(name)}</div>' for name in names)
    svg = (
        f'<svg class="zoom" viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" height="{height}" '
        f'data-seconds="{end:.6f}">{"".join(boxes)}</svg>'
    )
    return f'<div class="rows"><div class="names">{labels}</div><div class="lane">{svg}</div></div>'


def _box(x: float, row: int, width: float, kind: str, title: str) -> str:
    if width <= 0:
        return ""
    return (
        f'<rect class="{kind}" x="{x:.3f}" y="{row * ROW + 2}" width="{max(width, 0.05):.3f}" height="{ROW - 4}">'
        f"<title>{escape(title)}</title></rect>"
    )


def flame(parts: Sequence[tuple[str, str, float]]) -> str:
    """Parts of a batch as (room, name, seconds): the rooms above, their ops below."""
    total = sum(seconds for _, _, seconds in parts) or 1.0
    scale = WIDTH / total
    cells = [_cell(0, 0, WIDTH, "all", "a batch", total)]
    at = 0.0
    for room in dict.fromkeys(room for room, _, _ in parts):
        inner = [(name, seconds) for other, name, seconds in parts if other == room]
        whole = sum(seconds for _, seconds in inner)
        cells.append(_cell(at * scale, 1, whole * scale, f"room-{room}", room, whole))
        for name, seconds in inner:
            cells.append(_cell(at * scale, 2, seconds * scale, f"room-{room} op", name, seconds))
            at += seconds
    return f'<svg class="flame" viewBox="0 0 {WIDTH} {3 * 30}">{"".join(cells)}</svg>'


def _cell(x: float, row: int, width: float, kind: str, name: str, seconds: float) -> str:
    title = escape(f"{name}: {_ms(seconds)} a batch")
    room = int(width / 7)
    label = name if len(name) <= room else f"{name[: max(0, room - 1)]}…"
    text = f'<text x="{x + 4:.2f}" y="{row * 30 + 19}">{escape(label)}</text>' if room > 3 else ""
    box = f'<rect class="{kind}" x="{x:.2f}" y="{row * 30 + 1}" width="{max(width - 1, 0.2):.2f}" height="28"/>'
    return f"<g><title>{title}</title>{box}{text}</g>"


def curve(points: Sequence[tuple[float, float]], end: float, kind: str, caption: str) -> str:
    """A number over time, as steps."""
    height = 90
    if not points or not end:
        return ""
    top = max(value for _, value in points) or 1.0
    every = max(1, len(points) // POINTS)
    path, level = [], float(height)
    for when, value in points[::every]:
        x, y = when / end * WIDTH, height - value / top * (height - 8)
        path.append(f"L{x:.1f} {level:.1f}L{x:.1f} {y:.1f}")
        level = y
    line = f"M0 {height}{''.join(path)}L{WIDTH} {level:.1f}"
    return (
        f'<figure><figcaption>{escape(caption)}</figcaption><svg viewBox="0 0 {WIDTH} {height}" height="{height}" '
        f'preserveAspectRatio="none"><path class="{kind}" d="{line}L{WIDTH} {height}Z"/></svg></figure>'
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
