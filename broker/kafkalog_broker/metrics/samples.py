"""The samples of one scrape, as metric families of prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kafkalog_broker.metrics.metric_table import BUCKETS_S, METRICS, Kind

_FAMILIES = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class Samples:
    """Collects samples per metric; usable as a prometheus_client registry.

    The `add` methods raise KeyError for a metric that is not in METRICS.
    """

    def __init__(self) -> None:
        self._families: dict[str, Any] = {
            name: _FAMILIES[metric.kind](name, metric.meaning, labels=metric.labels) for name, metric in METRICS.items()
        }

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample with the given label values, in the order of the metric's labels."""
        self._families[name].add_metric(labels, value)

    def add_histogram(self, name: str, counts: Sequence[int], total: float, *labels: str) -> None:
        """Add a histogram.

        Args:
            counts: Count per bucket of BUCKETS_S (not cumulative), then the count above the last bucket.
            total: Sum of the values.
        """
        buckets = list(zip((*map(repr, BUCKETS_S), "+Inf"), accumulate(counts), strict=True))
        self._families[name].add_metric(labels, buckets, total)

    def collect(self) -> Iterable[Family]:
        """Return the families that have samples, in the order of METRICS."""
        return [family for family in self._families.values() if family.samples]
