"""The page of how cost grows, and the README's picture: both out of measurements, and nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import cases, growth, roster
from benchmarks.drawing import Bar, Curve, bars, curves
from benchmarks.harness import Measurement, figures, ratios, stat
from benchmarks.report import OURS, THEIRS, markdown, number

AXES = {
    "growth_workers": "workers",
    "growth_bytes": "bytes of a batch",
    "growth_ranks": "ranks",
    "growth_samples": "samples",
}
WHY = {
    "growth_workers": (
        "Workers",
        "Batches of 1 MB that take no time to make, default options. Memory and start-up time grow with the number "
        "of workers: each has a Python interpreter (copied on write from the parent) and its prepared batches, "
        "and they are started one after the other. The time of the training process for a batch hardly depends on the "
        "number of workers, until there are more of them than cores: then they compete with it for cores and caches.",
    ),
    "growth_bytes": (
        "Bytes of a batch",
        "Two workers, default options; the training process reads one byte of each page. Up to 100 kB the size of a "
        "batch does not matter, only its message does. Above, the time grows in proportion to the size: pages have to "
        "be touched, though nothing is copied. From 1 MB on, prepared batches need more memory than the workers "
        "themselves; from 10 MB on, `memory=` (256 MB) limits how many are prepared. A loader needs a few at least, so "
        "batches of 100 MB take more than that.",
    ),
    "growth_ranks": (
        "Ranks on one machine",
        "Each rank is a process with its own loader and one worker; all start at once, on fewer cores than ranks. "
        "Memory adds up. A rank computes its part of the data without communication, so its snapshot does not grow, "
        "and its time for a batch grows only because ranks compete for cores and caches. The start is that of the "
        "slowest rank, including the imports, which share the cores.",
    ),
    "growth_samples": (
        "Samples",
        "A shuffled range of 10^3 to 10^12 samples, without workers; the start is a resume in the middle of the epoch, "
        "in processor time. The shuffled order is computed position by position and never stored, so nothing depends "
        "on the length, except a few digits of the snapshot.",
    ),
}
HEAD = """# How cost grows

Made by `{command}`.
What a loader costs with more workers, larger batches, more ranks and more samples. Four costs were measured: the
processor time that the training process spends on a batch, the memory of all processes beyond what there was before the
loader, the time to the first batch, and the size of a snapshot. Both axes are logarithmic. What each case does exactly
is in `benchmarks/cases/growth_*.py`.
"""
TRAINING = (
    ("photos", "samples/s", "Images from JPEG files", 'crop 224, flip, batches of 64; 2 workers, resize="torch"'),
    ("photos_step", "training samples/s", "Training on these images", "the same, and a small CNN on the same 2 cores"),
    ("sound_step", "training samples/s", "Training on sound", "2 s of FLAC files, batches of 64; 2 workers, defaults"),
    ("clips_step", "training samples/s", "Training on video", "16 frames of h264, batches of 4; 2 workers, defaults"),
    ("heavy_tail", "samples/s", "One sample in 100 is slow", "1 ms, some 100 ms, batches of 16; 4 workers, defaults"),
    ("text_pack", "tokens/s", "Text, tokenized and packed", "BPE, rows of 1024, batches of 8; 2 workers, defaults"),
)
"""Case, figure, and what the picture says of it; those that were not measured are left out."""
SHORT = {"torch_same": "torch, same decoder", "nodes": "torchdata.nodes", "nodes_threads": "torchdata.nodes, threads"}
"""Names of loaders that are too long for a picture."""


def page(found: Sequence[Measurement], about: Mapping[str, Any], out: Path) -> None:
    """The page at `out`, and its pictures in `images/` beside it."""
    images = out.parent / "images"
    images.mkdir(exist_ok=True)
    parts = [HEAD.format(command=about["command"])]
    for case, (title, why) in WHY.items():
        values = by_cost(found, case)
        if not values:
            continue
        drawn = [Curve(growth.LABELS[cost], unit, AXES[case], values[cost]) for cost, unit in growth.COSTS.items()]
        (images / f"{case}.svg").write_text(curves(drawn))
        parts += [
            f"## {title}\n",
            f"![{title}: four curves; the table has the figures](images/{case}.svg)\n",
            why + "\n",
        ]
        parts.append(table(AXES[case], values) + "\n")
    place = about["hardware"]
    parts.append(
        f"{place['processor']}, {place['cores']} cores, {place['memory GB']} GB; Python {about['python']}; "
        f"{about['when']}, commit {about['commit']}. Median of {max(m.round for m in found)} round(s); other processes "
        f"kept {number(max(m.others for m in found))} cores busy at most.\n"
    )
    out.write_text("\n".join(parts))


def by_cost(found: Sequence[Measurement], case: str) -> dict[str, dict[float, float]]:
    """Medians by cost and size."""
    values: dict[str, dict[float, float]] = {}
    for target in cases.load(case).CASE.targets:
        size, _, cost = target.figure.partition(" ")
        if (known := stat(list(figures(found, case, OURS, target.figure).values()))) is not None:
            values.setdefault(cost, {})[float(size)] = max(known.median, 1e-3)
    return values


def table(across: str, values: Mapping[str, Mapping[float, float]]) -> str:
    sizes = list(next(iter(values.values())))
    lines = [[across, *values], ["---:"] * (len(values) + 1)]
    lines += [[f"{size:,.0f}", *(number(values[cost][size]) for cost in values)] for size in sizes]
    return markdown(lines)


def picture(found: Sequence[Measurement], about: Mapping[str, Any], out: Path) -> None:
    """The bars of the README."""
    drawn = []
    for case, figure, label, note in TRAINING:
        torch = stat(ratios(found, case, figure, (OURS, THEIRS)))
        name, best = strongest(found, case, figure)
        if torch is not None or best is not None:
            drawn.append(Bar(label, note, None if torch is None else torch.median, best, name))
    if not drawn:
        raise ValueError("no case of the picture was measured for headrace and another loader")
    shown = [m for m in found if m.case in {case for case, *_ in TRAINING}]
    foot = (
        "Dashed line: 1x, the same speed. Longer is better.",
        f"{about['when'][:10]}, commit {about['commit'][:7]}, {about['hardware']['cores']} cores; median of "
        f"{max(m.round for m in shown)} rounds",
        f"Other programs used up to {max(m.others for m in shown):.1f} of the cores meanwhile.",
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(bars(drawn, foot))


def strongest(found: Sequence[Measurement], case: str, figure: str) -> tuple[str, float | None]:
    """Of the loaders that are neither ours nor torch as it comes, the fastest, and the ratio."""
    others = {m.subject for m in found if m.case == case} - {*roster.OURS, THEIRS}
    known = [(stat(ratios(found, case, figure, (OURS, other))), other) for other in others]
    by = sorted((value.median, other) for value, other in known if value is not None)
    return (SHORT.get(by[0][1]) or roster.title(by[0][1]), by[0][0]) if by else ("", None)
