"""Pictures of results: curves on logarithmic axes, and bars of ratios, as SVG that is readable on light and on dark.

Colours are chosen by the reader's browser (`prefers-color-scheme`), also where the picture stands in an `<img>`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

STYLE = """<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 14px; font-weight: 600 } .label { font-weight: 600 } .small { font-size: 11px; fill: #57606a }
  .axis { stroke: #8c959f; fill: none } .grid { stroke: #d0d7de; stroke-width: 0.6 }
  .line { stroke: #0969da; stroke-width: 2; fill: none } .dot { fill: #0969da }
  .ours { fill: #0969da } .door { fill: #8250df } .one { stroke: #24292f; stroke-dasharray: 2 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #656c76 } .grid { stroke: #3d444d }
    .line { stroke: #58a6ff } .dot, .ours { fill: #58a6ff } .door { fill: #a371f7 } .one { stroke: #e6edf3 }
  }
</style>"""

Points = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    title: str
    unit: str
    across: str  # what x counts
    points: Points


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    note: str
    torch: float | None  # how many times torch's rate
    best: float | None  # how many times the rate of the best other loader
    best_name: str


def curves(drawn: Sequence[Curve]) -> str:
    """Up to four curves, two in a row."""
    wide, high = 230, 200
    parts = [
        f'<g transform="translate({10 + i % 2 * wide},{i // 2 * high})">{_curve(one, wide, high)}</g>'
        for i, one in enumerate(drawn)
    ]
    return _svg(wide * 2 + 20, high * -(-len(drawn) // 2), parts)


def _curve(one: Curve, wide: int, high: int) -> str:
    left, top, right, bottom = 44, 46, wide - 14, high - 36
    xs, ys = list(one.points), list(one.points.values())
    low, top_value = _decades(ys)

    def x(value: float) -> float:
        span = math.log10(max(xs) / min(xs)) or 1.0
        return left + (right - left) * math.log10(value / min(xs)) / span

    def y(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(value) - low) / (top_value - low)

    parts = [f'<text class="label" x="{left - 34}" y="16">{escape(one.title)}</text>']
    for power in range(low, top_value + 1):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(left - 4, at + 4, short(10.0**power), "end"))
    parts += [_text(x(value), bottom + 15, short(value), "middle") for value in xs]
    parts.append(f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>')
    path = "L".join(f"{x(value):.1f} {y(height):.1f}" for value, height in one.points.items())
    parts.append(f'<path class="line" d="M{path}"/>')
    parts += [f'<circle class="dot" r="3" cx="{x(a):.1f}" cy="{y(b):.1f}"/>' for a, b in one.points.items()]
    parts += [_text(left - 34, 30, one.unit), _text(right, high - 6, one.across, "end")]
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Whole powers of ten around the values, at least two apart."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return (low, high) if high - low >= 2 else (low, low + 2)


def bars(drawn: Sequence[Bar], foot: Sequence[str]) -> str:
    """For each case how many times as fast Headrace is as torch and as the best other loader.

    Narrow and with large letters, so that it can be read on a telephone: words stand above their bars, not beside.
    """
    wide, left, words, step = 400, 10, 165, 84
    most = max(max(bar.torch or 0, bar.best or 0) for bar in drawn)
    scale = (wide - left - words) / max(most, 1.5)
    top, one = 62, left + scale
    high = top + step * len(drawn) + 16 * len(foot) + 6
    parts = [
        f'<text class="title" x="{left}" y="20">Speed of Headrace, as a multiple of that of</text>',
        f'<rect class="ours" x="{left}" y="32" width="12" height="12" rx="2"/>',
        _text(left + 18, 42, "torch DataLoader"),
        f'<rect class="door" x="{left + 140}" y="32" width="12" height="12" rx="2"/>',
        _text(left + 158, 42, "the fastest other loader"),
    ]
    for number, bar in enumerate(drawn):
        at = top + step * number
        parts.append(f'<text class="label" x="{left}" y="{at + 14}">{escape(bar.label)}</text>')
        parts.append(_text(left, at + 30, bar.note))
        rows = (("ours", bar.torch, "torch"), ("door", bar.best, bar.best_name))
        known = [(kind, times, name) for kind, times, name in rows if times is not None]
        for place, (kind, times, name) in enumerate(known):
            y, width = at + 37 + 18 * place, scale * times
            parts.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{width:.1f}" height="14" rx="2"/>')
            said = f"{times:.2f}x" if times < 10 else f"{times:.0f}x"
            beside = max(one, left + width)  # not across the dashed line
            parts.append(_text(beside + 6, y + 11, f"{said} {name}"))
        bottom = at + 37 + 18 * len(known)
        parts.append(f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{at + 34}" y2="{bottom}"/>')
    for number, line in enumerate(foot):
        parts.append(_text(left, high - 8 - 16 * (len(foot) - 1 - number), line))
    return _svg(wide, high, parts, shown=520)


def _svg(wide: int, high: int, parts: Sequence[str], shown: int | None = None) -> str:
    """`shown`: how wide it is on a page with room for it, if not as wide as it is drawn."""
    size = f'viewBox="0 0 {wide} {high}" width="{shown or wide}" height="{round(high * (shown or wide) / wide)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def short(value: float) -> str:
    """1k, 10M: a number in few letters."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:g}{letter}"
    return f"{value:g}"
