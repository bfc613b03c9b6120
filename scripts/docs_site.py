"""What mkdocs is told while it builds the site: every decision has its place in the navigation, every op in the table
of what it costs to resume.

mkdocs knows no folders in its navigation, and lists by hand would forget the next decision and the next op.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

from headrace.engine.explain import usual_cost
from headrace.op import Op, Source

ROOMS = ("headrace.ops", "headrace.sources", "headrace.tables")
UNUSED = ("EachFile", "PerFile", "Tabular", "OnDiskCache")
"""What other ops have in common, and one that is taken in by another."""
TABLE = "<!-- what each op reads again: made when the site is built (scripts/docs_site.py) -->"


def on_config(config: Any) -> Any:
    docs = Path(config["docs_dir"])
    (design,) = [pages for section in config["nav"] for name, pages in section.items() if name == "Design"]
    design += [str(page.relative_to(docs)) for page in sorted((docs / "decisions").glob("*.md"))]
    return config


def on_page_markdown(markdown: str, **about: Any) -> str:
    return markdown.replace(TABLE, resume_table())


def resume_table() -> str:
    """Ops of the same cost in one row."""
    costs: dict[str, set[str]] = {}
    for kind in ops():
        costs.setdefault(_cost(kind), set()).add(f"`{kind.name()}`")
    rows = [f"| {cost} | {', '.join(sorted(names))} |" for cost, names in sorted(costs.items())]
    return "\n".join(["| what is read again | by |", "|---|---|", *rows])


def ops() -> Iterator[type[Op[Any, Any]]]:
    """Every op that can stand in a pipe."""
    for room in ROOMS:
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            for kind in vars(importlib.import_module(module.name)).values():
                mine = inspect.isclass(kind) and issubclass(kind, Op) and kind.__module__ == module.name
                if mine and kind.__name__ not in UNUSED:
                    yield kind


def _cost(kind: type[Op[Any, Any]]) -> str:
    if kind.resume is not Op.resume:  # it says so itself; what it must be given are counts
        needed = [f.name for f in fields(cast(Any, kind)) if f.default is MISSING and f.default_factory is MISSING]
        return cast(str, kind(**dict.fromkeys(needed, 1)).resume)
    # A source says its size where it has random access, or its length.
    counted = issubclass(kind, Source) and (kind.size is not Source.size or kind.length is not Source.length)
    return usual_cost(kind, counted)
