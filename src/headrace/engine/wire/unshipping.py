"""Unshipping: a program out of the bytes that `shipping` made of it, in the process that will run it.

Apart from `shipping`, so that a worker imports only what it needs.
"""

import os
import pickle
import sys
from typing import Any

from headrace.engine.program import Program


def search_path() -> list[str]:
    """Where modules are found, in a form that holds in another folder too."""
    try:
        return [os.path.abspath(entry) for entry in sys.path]
    except FileNotFoundError:  # the working folder was deleted, so nothing is found in it or below
        return [entry for entry in sys.path if os.path.isabs(entry)]


def unship(data: bytes | memoryview) -> tuple[Program, Any]:
    """The program again, in a new process."""
    view = memoryview(data)
    start = 8 + int.from_bytes(view[:8], "little")
    # First where modules are found: what comes next needs them.
    sys.path.extend(entry for entry in pickle.loads(view[8:start]) if entry not in sys.path)
    program, extra, mains = pickle.loads(view[start:])
    main = sys.modules["__main__"]
    sys.modules.setdefault("__mp_main__", main)
    for name, kind in mains.items():
        outer: Any = main
        *nest, last = name.split(".")
        for part in nest:
            outer = getattr(outer, part, None)
            if outer is None:
                break
        else:
            setattr(outer, last, kind)
    return program, extra
