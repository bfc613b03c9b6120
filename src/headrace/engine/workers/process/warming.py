"""Warm: worker processes that start before there is anything for them to do.

    headrace.warm(8)                       # returns at once; while the data set and the model are being made,
    dataset, model = build()               # eight processes start and import numpy and torch
    for batch in Loader(Pipe.of(dataset).batch(64).collate(), workers=8): ...

The first loaders with the usual start method (`start_method=None` or "server") get them. A loader that needs more
starts the rest.
"""

from collections.abc import Sequence

from headrace.errors import BadOption


def warm(workers: int, modules: Sequence[str] = ()) -> None:
    """Start `workers` idle processes, which import `modules`, and numpy and torch if this process has them."""
    from headrace.engine.workers.process.fork_server import COMMON, large

    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
        raise BadOption(f"warm() takes the number of workers, a whole number >= 0, not {workers!r}")
    wanted = [*large(), *modules]
    COMMON.running(wanted).warm(workers, wanted)
