"""A record as Chrome trace events, which ui.perfetto.dev and chrome://tracing open."""

from typing import Any

from headrace.observe.profile.record import Record

CONSUMER = 0
"""The thread number of the consumer; worker k is k + 1."""


def events(record: Record) -> dict[str, Any]:
    names = [_name(CONSUMER, "training loop")]
    names += [_name(w + 1, f"worker {w}") for w in sorted({s.worker for s in record.spans})]
    return {"traceEvents": [*names, *_workers(record), *_consumer(record), *_levels(record)], "displayTimeUnit": "ms"}


def _name(thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": name}}


def _event(record: Record, thread: int, name: str, began: float, ended: float, **args: object) -> dict[str, Any]:
    return {
        "ph": "X", "pid": 0, "tid": thread, "name": name, "ts": (began - record.began) * 1e6,
        "dur": max(0.0, ended - began) * 1e6, "args": args,
    }  # fmt: skip


def _workers(record: Record) -> list[dict[str, Any]]:
    nodes = record.program.pipe.nodes()
    found = []
    for s in record.spans:
        name = f"stage {s.stage}"
        found.append(_event(record, s.worker + 1, name, s.began, s.ended, ticket=s.number, bytes=s.bytes))
        at = s.began
        for ordinal, spent in (s.ops or {}).items():
            # Ops of many samples take turns inside a ticket; drawn one after the other, they show their shares.
            found.append(_event(record, s.worker + 1, nodes[ordinal].op.describe(), at, at + spent))
            at += spent
    return found


def _consumer(record: Record) -> list[dict[str, Any]]:
    found = []
    for number, (batch, over) in enumerate(record.steps()):
        found.append(_event(record, CONSUMER, "next batch", batch.asked, batch.got, number=number))
        if batch.waited > 0:
            found.append(_event(record, CONSUMER, "waiting", batch.asked, batch.asked + batch.waited))
        found.append(_event(record, CONSUMER, "step", batch.got, over))
    return found


def _levels(record: Record) -> list[dict[str, Any]]:
    return [
        {"ph": "C", "pid": 0, "name": name, "ts": (level.when - record.began) * 1e6, "args": {name: value}}
        for level in record.levels
        for name, value in (("shared memory", level.bytes), ("slots", level.slots), ("batches ready", level.waiting))
    ]
