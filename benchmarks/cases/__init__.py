"""Cases by name: one question a module, each with `CASE` and `measure(subject, effort)`."""

import importlib
import pkgutil
from fnmatch import fnmatchcase
from typing import Protocol, cast

from benchmarks.case import Case, Effort, Figures, Subject

TABLE = (
    "small", "single", "arrays", "images_uint8", "images_float32", "jpeg", "heavy_tail", "filter_images",
    "tar", "start_fork", "spawn_first_batch", "spawn_first_batch_torch", "epochs", "ticket_cost", "order",
)  # fmt: skip
"""The cases of the README's table, in its order."""


class CaseModule(Protocol):
    CASE: Case

    def measure(self, subject: Subject, effort: Effort) -> Figures: ...


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> CaseModule:
    return cast(CaseModule, importlib.import_module(f"{__name__}.{name}"))


def select(patterns: list[str]) -> list[Case]:
    """The cases that match any pattern (`spawn*`); those of the table first, in its order; no pattern selects all."""
    chosen: list[str] = []
    for pattern in patterns or ["*"]:
        matches = [name for name in names() if fnmatchcase(name, pattern)]
        if not matches:
            raise ValueError(f"no case {pattern!r}; there are: {', '.join(names())}")
        chosen += [name for name in matches if name not in chosen]
    chosen.sort(key=lambda name: TABLE.index(name) if name in TABLE else len(TABLE))
    return [load(name).CASE for name in chosen]
