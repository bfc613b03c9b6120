"""Stuck: nothing has arrived within the time-out: replace who is stuck, or raise with what everybody is doing."""

from headrace.engine.policy import Policy
from headrace.engine.workers.protocol import Workers
from headrace.errors import WorkerStuck


def replace_or_raise(workers: Workers, policy: Policy) -> None:
    stuck = workers.stuck()
    if policy.on_stuck == "replace" and [busy for busy in stuck if workers.replace(busy.number)]:
        return
    stacks = "".join(f"\n--- worker {n} (process {pid}), {what}\n{workers.stack(n)}" for n, pid, what in stuck)
    raise WorkerStuck(
        f"nothing arrived within {policy.timeout} seconds; raise timeout=, or let stuck workers be "
        f"replaced with on_stuck='replace'{stacks}"
    )
