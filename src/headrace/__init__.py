"""Headrace carries data to a training loop: fast, exactly once, in a reproducible order.

Every public name is listed here. The module behind a name is imported when the name is first used, so that
`import headrace` is quick and needs neither numpy nor torch.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

logging.getLogger("headrace").addHandler(logging.NullHandler())

_HOMES = {
    "Budget": "headrace.engine.policy",
    "Loader": "headrace.loader",
    "Pipe": "headrace.pipe",
    "Stats": "headrace.loader",
    "SwiftLoader": "headrace.doors.swift",
    "World": "headrace.plan.world",
    "dump": "headrace.loader",
    "rng": "headrace.op",
    "share": "headrace.share",
}

__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:
    from headrace.doors.swift import SwiftLoader as SwiftLoader
    from headrace.engine.policy import Budget as Budget
    from headrace.loader import Loader as Loader
    from headrace.loader import Stats as Stats
    from headrace.loader import dump as dump
    from headrace.op import rng as rng
    from headrace.pipe import Pipe as Pipe
    from headrace.plan.world import World as World
    from headrace.share import share as share


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
