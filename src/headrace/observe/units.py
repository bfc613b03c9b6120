"""Numbers as text: seconds, counts, bytes; and how many samples a batch of a pipe has."""

from typing import Any

WAITING = 0.15
"""A training loop that waits for less of its time than this sets the pace itself."""


def group_of(pipe: Any) -> int:
    """How many samples a batch of this pipe has: the size of its last batch op."""
    node = pipe
    while node.inputs:
        if node.op.name() == "batch":
            return int(node.op.size)
        node = node.inputs[0]
    return 1


def op_of(name: str) -> str:
    """The op that a figure of `Stats.ops` is about: its name without its number in the graph."""
    return name.lstrip("0123456789 ")


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def count(number: float) -> str:
    """Whole, in groups of three."""
    return f"{number:,.0f}".replace(",", " ")


def size(octets: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if octets >= factor:
            return f"{octets / factor:.1f} {unit}"
    return f"{octets:.0f} bytes"
