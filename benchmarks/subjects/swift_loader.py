"""swift-loader (swift-loader 0.0.1): worker processes that build the data set from its class, one consumer.

Its arguments are those of `headrace.SwiftLoader`, so both are set up by the same lines. Cases that know it leave it out
where it is not installed.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks.case import Epochs
from benchmarks.roster import ROSTER

PACKAGE = "swift_loader"


def measured() -> bool:
    """Whether there is anything to compare with: here, or in an environment of its own; looks without importing it."""
    return "swift" in ROSTER or importlib.util.find_spec(PACKAGE) is not None


class Swift:
    def consumer(
        self, kind: type, arguments: Mapping[str, Any], *, size: int, workers: int
    ) -> AbstractContextManager[Epochs]:
        from swift_loader import SwiftLoader

        return running(SwiftLoader, kind, arguments, size=size, workers=workers)


@contextmanager
def running(loader: Any, kind: type, arguments: Mapping[str, Any], *, size: int, workers: int) -> Iterator[Epochs]:
    """The only consumer of a data set, which is read in order; `loader` is the class."""
    made = loader(
        dataset_class=kind,
        dataset_kwargs=dict(arguments),
        batch_size=size,
        nb_consumer=1,
        worker_per_consumer=workers,
        shuffle=False,
        multithread=True,
        validate=False,
    )
    try:
        made.start(0)
        yield made
    finally:
        made.close()


def consumer(
    subject: Any, kind: type, arguments: Mapping[str, Any], *, size: int, workers: int
) -> AbstractContextManager[Epochs]:
    """The subject's own, or, for Headrace, its `SwiftLoader`."""
    if hasattr(subject, "consumer"):
        its: AbstractContextManager[Epochs] = subject.consumer(kind, arguments, size=size, workers=workers)
        return its
    from headrace import SwiftLoader

    return running(SwiftLoader, kind, arguments, size=size, workers=workers)


SUBJECT = Swift()
