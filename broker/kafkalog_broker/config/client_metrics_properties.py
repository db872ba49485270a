"""Properties of subscriptions to client metrics, the resource CLIENT_METRICS (Kafka: ClientMetricsConfigs, KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_broker.config.definition import Property, PropertyType

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"  # value of `metrics` that subscribes to all metrics
DEFAULT_INTERVAL_MS = 300_000
INTERVALS_MS = range(100, 3_600_001)  # allowed values of interval.ms

CLIENT_METRICS_PROPERTIES: Mapping[str, Property] = {
    name: Property(name, kind, default, None, doc)
    for name, kind, default, doc in (
        (INTERVAL_MS, PropertyType.INT, str(DEFAULT_INTERVAL_MS), "How often clients push metrics, in ms."),
        (MATCH, PropertyType.LIST, "", "Clients that push metrics, as attribute=regex; all of the regexes must match."),
        (METRICS, PropertyType.LIST, "", "Prefixes of the names of the metrics to push."),
    )
}


def client_metrics_value(name: str, overrides: Mapping[str, str]) -> Any:
    """Return the parsed value of a property of a subscription. Raises ConfigError."""
    definition = CLIENT_METRICS_PROPERTIES[name]
    return definition.parse(overrides.get(name, definition.default))
