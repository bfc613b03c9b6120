"""Optional packages of this folder, imported when a frame of theirs is met or asked for."""

import importlib
from typing import Any

from headrace.errors import missing

EXTRAS = {"pyarrow": "arrow", "pandas": "frames", "polars": "frames", "torch": "torch", "jax": "jax"}


def package(name: str) -> Any:
    """The package, imported; a missing one is named with the extra that brings it."""
    top = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != top:
            raise  # the package is there, something that it needs is not
        raise missing(EXTRAS[top], top) from None
