"""Fills what is made from the code into the pages of docs: reference of classes and functions, verbs, costs of ops.

    scripts/docs --reference               writes the pages
    scripts/docs --reference --check       writes nothing; ends with 1 if a page would change

A page has `<!-- made: WHAT -->` and `<!-- end -->` around each such part. WHAT is

    api NAME LEVEL    a class with its methods, or a function: signature and docstring, under a heading of that level
    verbs             every verb of a Pipe, with the example from docs/reference/examples.py
    resume            what each op reads again when a stream goes on from a snapshot
"""

import argparse
import importlib
import inspect
import pkgutil
import re
import runpy
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

from headrace.engine.explain import usual_cost
from headrace.errors import HeadraceError
from headrace.op import Each, Flat, Op, Source
from headrace.pipe.graph import Pipe

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PART = re.compile(r"(<!-- made: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
ROOMS = ("headrace.ops", "headrace.sources", "headrace.tables")
UNUSED = ("EachFile", "PerFile", "Tabular", "OnDiskCache", "WindowOp")
"""What other ops have in common, and one that is taken in by another."""
WRITTEN = {
    "sequence": "Pipe.of(sequence)",
    "frame": "Pipe.of(frame)",
    "iterable": "Pipe.of(iterable)",
    "files": "Pipe.files",
    "stored": "Pipe.stored",
    "tokens": "Pipe.tokens",
    "windowed": "shuffle(window=)",
    "shuffle": "shuffle(buffer_size=)",
    "pack_windows": "pack",
    "bucket_windows": "bucket",
}
"""Ops that users write in another way."""
ASKED = {"columnar", "explain", "fingerprint", "indexed", "inputs", "length", "nodes", "op", "ordinals", "replaced"}
"""What a pipe can be asked: not verbs."""


def filled(page: str) -> str:
    """A page, with its parts made anew."""
    return PART.sub(lambda part: f"{part[1]}{_made(*part[2].split())}\n{part[3]}", page)


def _made(what: str, *about: str) -> str:
    if what == "api":
        return api(about[0], int(about[1]))
    return {"verbs": verbs, "resume": resume_table}[what]()


# --- classes and functions --------------------------------------------------------------------------------------------


def api(name: str, level: int) -> str:
    """A class with what is public of it, or a function."""
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    lines = _entry(last, thing, level)
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if not member.startswith("_") and _documented(value):
                lines += _entry(f"{last}.{member}", value, level + 1)
    return "\n".join(lines).rstrip()


def _documented(value: object) -> bool:
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return (inspect.isfunction(plain) or isinstance(plain, property)) and bool(plain.__doc__)


def _entry(name: str, thing: Any, level: int) -> list[str]:
    plain = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
    lines = [f"{'#' * level} {name}", ""]
    if callable(plain) and not (inspect.isclass(plain) and issubclass(plain, BaseException)):
        lines += ["```text", *_call(name, plain), "```", ""]
    elif isinstance(plain, property):
        lines += ["*An attribute.*", ""]
    return [*lines, inspect.cleandoc(plain.__doc__ or ""), ""]


def _call(name: str, plain: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(plain).parameters.values()
    except ValueError:  # a class whose constructor is written in C
        return [f"{name}(...)"]
    shown, starred = [], False
    for p in parameters:
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        shown.append(_starred(p) + ("" if p.default is p.empty else f"={_value(p.default)}"))
    return textwrap.wrap(f"{name}({', '.join(shown)})", 100, subsequent_indent=" " * 4, break_long_words=False)


def _starred(p: inspect.Parameter) -> str:
    return f"{'*' * (p.kind is p.VAR_POSITIONAL) or '**' * (p.kind is p.VAR_KEYWORD)}{p.name}"


def _value(value: object) -> str:
    return getattr(value, "__name__", None) or repr(value)


# --- verbs ------------------------------------------------------------------------------------------------------------


def verbs() -> str:
    """Every verb, those that begin a pipe first."""
    examples = runpy.run_path(str(DOCS / "reference" / "examples.py"))
    by_name = {kind.name(): kind for kind in ops()}
    lines = []
    for title, names in sections():
        lines += [f"## {title}", ""]
        for name in names:
            if (example := examples.get(f"verb_{name}")) is None:
                raise SystemExit(f"docs/reference/examples.py has no example of {name}(): write verb_{name}")
            lines += _verb(name, by_name.get(name), example)
    return "\n".join(lines).rstrip()


def sections() -> Iterator[tuple[str, list[str]]]:
    """The verbs, by the class that has them."""
    rooms = [kind for kind in Pipe.__mro__ if kind.__module__.startswith("headrace.pipe")]
    begin = [name for kind in rooms for name, value in vars(kind).items() if _begins(name, value)]
    yield "Where a pipe begins", begin
    for kind in rooms:
        names = [name for name in vars(kind) if not name.startswith("_") and name not in ASKED and name not in begin]
        title = inspect.cleandoc(kind.__doc__ or "").splitlines()[0].removeprefix("What a Pipe can do with ")
        if names:
            yield "Every day" if kind is Pipe else title.rstrip(".").capitalize(), names


def _begins(name: str, value: object) -> bool:
    return not name.startswith("_") and isinstance(value, classmethod | staticmethod)


def _verb(name: str, kind: type[Op[Any, Any]] | None, example: Callable[[], None]) -> list[str]:
    value = inspect.getattr_static(Pipe, name)
    method = getattr(Pipe, name)
    parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    call = _call(f"Pipe.{name}" if _begins(name, value) else name, method)
    lines = [f"### {name}", "", "```text", *call, "```", "", inspect.cleandoc(method.__doc__ or ""), ""]
    if parameters:
        lines += ["| parameter | takes | default |", "|---|---|---|"]
        lines += [f"| `{_starred(p)}` | {_takes(p)} | {_default(p)} |" for p in parameters]
        lines += [""]
    if kind is not None:
        lines += [f"*Runs* {where(kind)}. *To resume it reads again*: {cost(kind)}.", ""]
    body = textwrap.dedent("\n".join(inspect.getsource(example).splitlines()[1:])).strip("\n")
    return [*lines, "```python", body, "```", ""]


def _default(p: inspect.Parameter) -> str:
    return "" if p.default is p.empty else f"`{_value(p.default)}`"


def _takes(p: inspect.Parameter) -> str:
    text = p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
    text = re.sub(r"\b(collections\.abc|typing|os|headrace(\.\w+)+)\.|'", "", text)
    # (A table knows no bar inside code, however it is escaped.)
    return "anything" if text == "Any" else " or ".join(f"`{one}`" for one in _alternatives(text))


def _alternatives(text: str) -> list[str]:
    """The members of a union, those inside brackets left together."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip().replace(" | ", " or ") for part in parts]


# --- ops --------------------------------------------------------------------------------------------------------------


def ops() -> Iterator[type[Op[Any, Any]]]:
    """Every op that can stand in a pipe."""
    for room in ROOMS:
        for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
            for kind in vars(importlib.import_module(module.name)).values():
                mine = inspect.isclass(kind) and issubclass(kind, Op) and kind.__module__ == module.name
                if mine and kind.__name__ not in UNUSED:
                    yield kind


def where(kind: type[Op[Any, Any]]) -> str:
    """Where an op of this class runs."""
    if issubclass(kind, Source):
        return "in any worker, by position" if kind.size is not Source.size else "in one worker, which reads it once"
    if issubclass(kind, Each | Flat):
        return "in any worker"
    if kind.index is not Op.index:
        return "as arithmetic on positions; over a stream, in one worker"
    return "in one worker; in the training process, behind the place where work is divided"


def cost(kind: type[Op[Any, Any]]) -> str:
    """What an op of this class reads again."""
    if kind.resume is not Op.resume:  # it says so itself; what it must be given are counts
        needed = [f.name for f in fields(cast(Any, kind)) if f.default is MISSING and f.default_factory is MISSING]
        try:
            return cast(str, kind(**dict.fromkeys(needed, 1)).resume)
        except (AttributeError, TypeError, ValueError, HeadraceError):  # it needs more than counts
            return "as its options say: `pipe.explain()` shows it"
    return usual_cost(kind, issubclass(kind, Source) and kind.size is not Source.size)


def resume_table() -> str:
    """Ops of the same cost in one row."""
    costs: dict[str, set[str]] = {}
    for kind in ops():
        written = WRITTEN.get(kind.name(), kind.name() if hasattr(Pipe, kind.name()) else None)
        if written is not None:  # the others stand behind verbs of other names
            costs.setdefault(cost(kind), set()).add(f"`{written}`")
    rows = [f"| {cost} | {', '.join(sorted(names))} |" for cost, names in sorted(costs.items())]
    return "\n".join(["| what is read again | by |", "|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs --reference", description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    old = []
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text()
        if (new := filled(page)) != page:
            old.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new)
    if old and check:
        sys.exit(f"not what the code says: {', '.join(old)}; run scripts/docs --reference")


if __name__ == "__main__":
    main()
