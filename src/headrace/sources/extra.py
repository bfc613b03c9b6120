"""Optional packages: their presence is checked when a pipe is made, and they are imported where they are used.

`require` is cheap (nothing is imported) and belongs in a constructor, so that a missing package is known before any
work starts. `import_extra` imports.
"""

import importlib
import importlib.util
from typing import Any

from headrace.errors import missing


def require(extra: str, *packages: str) -> None:
    """Raise MissingExtra if a package is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing(extra, package)


def import_extra(extra: str, package: str) -> Any:
    """The package, imported."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is not None and package.partition(".")[0] != error.name.partition(".")[0]:
            raise  # the package is there, something that it needs is not
        raise missing(extra, package.partition(".")[0]) from None
