"""Pickles inside stored files: reading one runs whatever its author wrote, so it happens only where users say so."""

from typing import Any

from headrace.errors import BadOption


def load_trusted(data: bytes, trust: bool, what: str) -> Any:
    """The object in a pickle, if the user trusts the files."""
    if not trust:
        raise BadOption(
            f"{what} holds a pickle, which can run any program when it is read: say trust=True if you made it"
        )
    import pickle

    return pickle.loads(data)
