"""What a loader has done so far, gathered from where it is counted."""

from typing import Any

from headrace.engine.pool import Pool
from headrace.observe.meter import Meter
from headrace.observe.stats import Stats
from headrace.pipe.graph import Pipe


def figures(pool: Pool, meter: Meter, pipe: Pipe[Any], *, epochs: int, tried: dict[int, float], autosave: str) -> Stats:
    """The figures of a loader over `pipe`."""
    arenas = [workers.arena for workers in pool.all()]
    names = {s.number: f"stage {s.number} ({s.feed})" for s in pool.program.stages}
    nodes = pipe.nodes()
    return Stats(
        epochs=epochs,
        ops={f"{i} {nodes[i].op.describe()}": spent for i, spent in meter.by_op().items()},
        batches=meter.batches,
        waited=meter.waited,
        busy={names[k]: v for k, v in sorted(meter.busy.items())},
        bytes=sum(a.total for a in arenas),
        slots=sum(a.slots for a in arenas),
        copies=sum(a.copies for a in arenas),
        retries=pool.replaced(),
        skips=len(meter.skips),
        reads=meter.reads,
        workers=pool.policy.workers,
        prefetch=pool.policy.prefetch,
        tried=tried,
        advice=meter.advice() if pool.policy.kind == "process" else "",
        autosave=autosave,
    )
