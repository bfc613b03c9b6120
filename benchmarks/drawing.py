"""Pictures of results: curves on logarithmic axes, and bars of ratios, as SVG that is readable on light and on dark.

Colours are chosen by the reader's browser (`prefers-color-scheme`), also where the picture stands in an `<img>`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

STYLE = """<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 14px; font-weight: 600 } .small { font-size: 11px; fill: #57606a }
  .axis { stroke: #8c959f; fill: none } .grid { stroke: #d0d7de; stroke-width: 0.6 }
  .line { stroke: #0969da; stroke-width: 2; fill: none } .dot { fill: #0969da }
  .ours { fill: #0969da } .door { fill: #54aeff } .one { stroke: #57606a; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #656c76 } .grid { stroke: #3d444d }
    .line { stroke: #58a6ff } .dot, .ours { fill: #58a6ff } .door { fill: #1f6feb } .one { stroke: #9198a1 }
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
    """Up to four curves beside each other."""
    wide, high = 230, 190
    parts = [
        f'<g transform="translate({10 + i * wide},0)">{_curve(one, wide, high)}</g>' for i, one in enumerate(drawn)
    ]
    return _svg(wide * len(drawn) + 20, high, parts)


def _curve(one: Curve, wide: int, high: int) -> str:
    left, top, right, bottom = 44, 34, wide - 14, high - 36
    xs, ys = list(one.points), list(one.points.values())
    low, top_value = _decades(ys)

    def x(value: float) -> float:
        span = math.log10(max(xs) / min(xs)) or 1.0
        return left + (right - left) * math.log10(value / min(xs)) / span

    def y(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(value) - low) / (top_value - low)

    parts = [f'<text class="title" x="{left - 34}" y="16">{escape(one.title)}</text>']
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


def bars(drawn: Sequence[Bar], foot: str) -> str:
    """For each case how many times as fast Headrace is as torch and as the best other loader."""
    wide, left, step = 760, 250, 52
    most = max(max(bar.torch or 0, bar.best or 0) for bar in drawn)
    scale = (wide - left - 180) / max(most, 1.5)
    high = 40 + step * len(drawn) + 24
    one = left + scale
    parts = [
        '<text class="title" x="10" y="18">Headrace in training: times as fast as torch, and as the best other</text>',
        f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="30" y2="{high - 26}"/>',
    ]
    for number, bar in enumerate(drawn):
        top = 36 + step * number
        parts.append(f'<text x="10" y="{top + 15}">{escape(bar.label)}</text>')
        parts.append(f'<text class="small" x="10" y="{top + 31}">{escape(bar.note)}</text>')
        rows = (("ours", bar.torch, "torch DataLoader"), ("door", bar.best, bar.best_name))
        known = [(kind, times, name) for kind, times, name in rows if times is not None]
        for place, (kind, times, name) in enumerate(known):
            at = top + 4 + 18 * place
            parts.append(f'<rect class="{kind}" x="{left}" y="{at}" width="{scale * times:.1f}" height="14" rx="2"/>')
            text = f"{times:.2f}x {name}" if times < 10 else f"{times:.0f}x {name}"
            parts.append(f'<text class="small" x="{left + scale * times + 6:.1f}" y="{at + 11}">{escape(text)}</text>')
    parts.append(f'<text class="small" x="10" y="{high - 8}">{escape(foot)}</text>')
    return _svg(wide, high, parts)


def _svg(wide: int, high: int, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"


def short(value: float) -> str:
    """1k, 10M: a number in few letters."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:g}{letter}"
    return f"{value:g}"
