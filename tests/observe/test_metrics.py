"""Metrics through OpenTelemetry: the figures of `stats()`, while the loader lives."""

import gc
import sys
from typing import Any

import pytest

from headrace.errors import MissingExtra
from headrace.loader import Loader
from headrace.observe.metrics import export
from headrace.pipe.graph import Pipe

sdk = pytest.importorskip("opentelemetry.sdk.metrics")
reading = pytest.importorskip("opentelemetry.sdk.metrics.export")


def figures(reader: Any) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: [(point.value, dict(point.attributes)) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_the_figures_are_those_of_stats_and_end_with_the_loader() -> None:
    reader = reading.InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])
    with Loader(Pipe.of(range(400)).map(abs).batch(4)) as loader:
        export(loader, provider, rank=0)
        assert len(list(loader)) == 100
        stats = loader.stats()
        found = figures(reader)
    assert found["headrace.batches"] == [(100, {"rank": 0})]
    assert found["headrace.wait"] == [(stats.waited, {"rank": 0})]
    assert found["headrace.skips"] == [(0, {"rank": 0})]
    assert found["headrace.memory"] == [(stats.bytes, {"rank": 0})]
    assert {attributes["op"]: value for value, attributes in found["headrace.work"]} == stats.ops
    assert stats.ops
    del loader
    gc.collect()
    assert figures(reader).get("headrace.batches", []) == []
    provider.shutdown()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"headrace\[otel\]"):
        export(object())
