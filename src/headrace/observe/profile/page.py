"""One page of HTML out of a profile: plain data in, text out. It needs no network and no other file."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headrace.observe.profile.breakdown import Breakdown
from headrace.observe.profile.drawing import curve, flame, timeline
from headrace.observe.profile.record import Record
from headrace.observe.profile.verdict import Verdict

STYLE = """
:root { --ink:#1c2530; --soft:#667; --paper:#fff; --line:#dde; --wait:#d9480f; --take:#f4a261; --step:#2a9d8f;
  --s0:#3b6fb6; --s1:#7a5bb5; --s2:#b55b8e; --s3:#5b9bb5; --s4:#8a9a3b; --s5:#b5885b; }
@media (prefers-color-scheme: dark) { :root { --ink:#e6e9ef; --soft:#9aa; --paper:#14181d; --line:#2c333c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1320px; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
.verdict { font-size: 1.15rem; border-left: 4px solid var(--wait); padding: .4rem 1rem; }
.consumer .verdict { border-color: var(--step); }
.facts { display: flex; flex-wrap: wrap; gap: 1rem 2.2rem; } .facts b { display: block; font-size: 1.25rem; }
.facts span, figcaption, .hint { color: var(--soft); font-size: .85rem; }
code { font-size: .85rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; font-weight: normal; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } th { color: var(--soft); font-size: .85rem; }
svg { width: 100%; display: block; } svg text { font-size: 12px; fill: #fff; pointer-events: none; }
.rows { display: flex; border: 1px solid var(--line); }
.names { flex: 0 0 7rem; font-size: .8rem; padding-left: .4rem; }
.lane { flex: 1; overflow: hidden; cursor: grab; touch-action: none; }
figure { margin: .6rem 0 0 7.4rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 1rem; }
.start { fill: var(--soft); background: var(--soft); }
.wait { fill: var(--wait); background: var(--wait); } .take { fill: var(--take); background: var(--take); }
.step, .room-step { fill: var(--step); background: var(--step); } .all { fill: #667; }
.stage0, .room-work { fill: var(--s0); background: var(--s0); }
.stage1, .room-head { fill: var(--s1); background: var(--s1); }
.stage2, .room-transport { fill: var(--s2); } .stage3, .room-tail { fill: var(--s3); } .stage4 { fill: var(--s4); }
.stage5 { fill: var(--s5); } .op { opacity: .85; }
.bytes { fill: var(--s0); opacity: .55; } .slots { fill: var(--s4); opacity: .55; }
.ready { fill: var(--step); opacity: .55; }
.wide { overflow-x: auto; }
@media (max-width: 700px) { .flame { min-width: 700px; } .names { flex-basis: 5.5rem; } figure { margin-left: 0; }
  .legend i:first-child { margin-left: 0; } }
"""

SCRIPT = """
for (const svg of document.querySelectorAll('svg.zoom')) {
  const whole = svg.viewBox.baseVal.width, seconds = +svg.dataset.seconds, lane = svg.parentElement;
  const hint = document.getElementById('range');
  let x = 0, width = whole, held = null;
  const show = () => {
    width = Math.min(whole, Math.max(whole / 20000, width));
    x = Math.min(whole - width, Math.max(0, x));
    svg.setAttribute('viewBox', `${x} 0 ${width} ${svg.viewBox.baseVal.height}`);
    const at = v => (v / whole * seconds).toFixed(3) + ' s';
    hint.textContent = `${at(x)} to ${at(x + width)}; wheel: zoom, drag: move, double click: all`;
  };
  lane.addEventListener('wheel', e => {
    e.preventDefault();
    const part = e.offsetX / lane.clientWidth, factor = Math.exp(e.deltaY / 400);
    x += width * part * (1 - factor); width *= factor; show();
  }, { passive: false });
  lane.addEventListener('pointerdown', e => { held = e.clientX; lane.setPointerCapture(e.pointerId); });
  lane.addEventListener('pointermove', e => {
    if (held === null) return;
    x -= (e.clientX - held) / lane.clientWidth * width; held = e.clientX; show();
  });
  lane.addEventListener('pointerup', () => { held = null; });
  lane.addEventListener('dblclick', () => { x = 0; width = whole; show(); });
  show();
}
"""


def page(data: Mapping[str, Any], verdict: Verdict, record: Record, breakdown: Breakdown) -> str:
    """The whole page; `data` is what `Profile.data()` gives. Drawings count seconds from the start of the record."""
    origin, end = record.began, record.ended - record.began
    tickets = [(s.worker, s.stage, s.number, s.began - origin, s.ended - origin, s.bytes) for s in record.spans]
    batches = [(b.asked - origin, b.waited, b.got - origin, over - origin) for b, over in record.steps()]
    sentence = verdict.text()
    sections = [
        f'<h1>headrace profile</h1><p class="verdict">{escape(sentence[0].upper() + sentence[1:])}</p>',
        f'<div class="facts">{_facts(data)}</div>',
        "<h2>Where the seconds of a batch go</h2>",
        f'<div class="wide">{flame([(part.room, part.name, part.seconds) for part in breakdown.parts])}</div>',
        _parts(data),
        f'<h2>Timeline</h2><p class="legend">{_legend()}</p>',
        timeline(tickets, batches, end),
        '<p class="hint" id="range"></p>',
        _curves(record, end),
        f"<h2>Workers</h2>{_workers(data)}",
        f"<h2>Pipe</h2><p><code>{escape(data['pipe'])}</code></p>",
        f'<script type="application/json" id="data">{_json(data)}</script><script>{SCRIPT}</script>',
    ]
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">{viewport}<title>headrace profile</title><style>{STYLE}</style>'
    body = f'<body class="{verdict.bound}">{"".join(sections)}</body>'
    return f'<!doctype html><html lang="en"><head>{head}</head>{body}</html>\n'


def _facts(data: Mapping[str, Any]) -> str:
    facts = {
        "samples/s": f"{data['samples/s']:,.0f}",
        "batches/s": f"{data['batches/s']:,.1f}",
        "waiting for data": f"{data['waiting']:.0%}",
        "first batch after": f"{data['start-up']:.2f} s",
        "workers": f"{data['workers']} ({data['kind']})",
        "cores": str(data["cores"]),
        "bytes a batch": f"{data['bytes a batch']:,.0f}",
        "batches seen": f"{data['batches']:,}",
    }
    if data["workers replaced"]:
        facts["workers replaced"] = str(data["workers replaced"])
    return "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts.items())


def _parts(data: Mapping[str, Any]) -> str:
    rows = sorted(data["seconds a batch"], key=lambda part: -part["seconds"])
    return _table(
        ("ms a batch", "", ""), [(f"{r['seconds'] * 1e3:.3f}", r["room"], r["name"]) for r in rows], numbers=(0,)
    )


def _legend() -> str:
    kinds = {
        "start": "start-up",
        "wait": "waiting",
        "take": "taking a batch",
        "step": "training step",
        "stage0": "tickets, by stage",
    }
    return "".join(f'<i class="{kind}"></i>{name}' for kind, name in kinds.items())


def _curves(record: Record, end: float) -> str:
    drawn = ""
    for kind, field, name, factor in (
        ("bytes", "bytes", "shared memory, at most {:.1f} MB", 1e6),
        ("slots", "slots", "slots, at most {:.0f}", 1),
        ("ready", "waiting", "batches ready, at most {:.0f}", 1),
    ):
        points = [(level.when - record.began, getattr(level, field) / factor) for level in record.levels]
        most = max((value for _, value in points), default=0)
        if most:  # a curve that never leaves zero (no shared memory without workers) says nothing
            drawn += curve(points, end, kind, name.format(most))
    return drawn


def _workers(data: Mapping[str, Any]) -> str:
    rows = [
        (str(w["number"]), str(w["tickets"]), f"{w['busy']:.3f}", f"{w['usual'] * 1e3:.3f}")
        for w in data["workers seen"]
    ]
    return _table(("worker", "tickets", "seconds busy", "ms a ticket"), rows, numbers=(0, 1, 2, 3))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    lines = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in header) + "</tr>"]
    for row in rows:
        cells = "".join(f"<td{' class=n' if k in numbers else ''}>{escape(cell)}</td>" for k, cell in enumerate(row))
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _json(data: Mapping[str, Any]) -> str:
    # "</script>" inside a text of the data would end the element.
    return json.dumps(data).replace("<", "\\u003c")
