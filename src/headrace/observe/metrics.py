"""What a loader has done, reported through OpenTelemetry's API.

    export(loader, rank=0)          once; readers of the application's meter provider then see

    headrace.batches                batches handed over                      counter
    headrace.wait                   seconds the training loop waited         counter
    headrace.work                   seconds in workers, by op                counter
    headrace.skips, .retries        samples left out, workers replaced       counters
    headrace.memory, .slots         shared memory                            up-down counters

Nothing is measured for it: the callbacks read `loader.stats()` when the application's reader asks. A loader that has
been collected is no longer reported.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from headrace.errors import missing

_COUNTERS: dict[str, tuple[str, str, Callable[[Any], float]]] = {
    "headrace.batches": ("{batch}", "Batches handed over", lambda stats: stats.batches),
    "headrace.wait": ("s", "Seconds the training loop waited for data", lambda stats: stats.waited),
    "headrace.skips": ("{sample}", "Samples that failed and were left out", lambda stats: stats.skips),
    "headrace.retries": ("{worker}", "Workers that ended and were replaced", lambda stats: stats.retries),
}
_LEVELS: dict[str, tuple[str, str, Callable[[Any], float]]] = {
    "headrace.memory": ("By", "Shared memory in existence", lambda stats: stats.bytes),
    "headrace.slots": ("{slot}", "Slots of shared memory", lambda stats: stats.slots),
}


def export(loader: Any, provider: Any = None, **attributes: str | int | float | bool) -> None:
    """Report `loader` through `provider`, or through the application's own; `attributes` go with every figure."""
    try:
        from opentelemetry import metrics
    except ModuleNotFoundError:
        raise missing("otel", "opentelemetry-api") from None
    meter = metrics.get_meter("headrace") if provider is None else provider.get_meter("headrace")
    alive = weakref.ref(loader)

    def one(read: Callable[[Any], float]) -> Callable[[Any], Iterable[Any]]:
        def look(_: Any) -> Iterable[Any]:
            found = alive()
            return [] if found is None else [metrics.Observation(read(found.stats()), attributes)]

        return look

    def work(_: Any) -> Iterable[Any]:
        found = alive()
        ops = {} if found is None else found.stats().ops
        return [metrics.Observation(seconds, {**attributes, "op": op}) for op, seconds in ops.items()]

    for name, (unit, text, read) in _COUNTERS.items():
        meter.create_observable_counter(name, [one(read)], unit, text)
    meter.create_observable_counter("headrace.work", [work], "s", "Seconds that workers spent in each op")
    for name, (unit, text, read) in _LEVELS.items():
        meter.create_observable_up_down_counter(name, [one(read)], unit, text)
