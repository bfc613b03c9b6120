"""Subjects by name: `NAME` is the module `benchmarks.subjects.NAME_loader`, with `SUBJECT` in it.

A name with a dot is a module from anywhere else, so that a loader of your own can be measured without a change here.
"""

import importlib
import pkgutil
from typing import cast

from benchmarks.case import Subject

SUFFIX = "_loader"


def names() -> list[str]:
    return sorted(m.name.removesuffix(SUFFIX) for m in pkgutil.iter_modules(__path__) if m.name.endswith(SUFFIX))


def check(name: str) -> None:
    if "." not in name and name not in names():
        raise ValueError(f"no subject {name!r}; there are: {', '.join(names())}, and any module.with.a.dot")


def find(name: str) -> Subject:
    check(name)
    module = name if "." in name else f"{__name__}.{name}{SUFFIX}"
    return cast(Subject, importlib.import_module(module).SUBJECT)
