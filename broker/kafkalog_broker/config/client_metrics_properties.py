"""Properties of subscriptions to client metrics, the resource CLIENT_METRICS (ClientMetricsConfigs, KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.config.definition import Property, PropertyType, Value, format_value

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
INTERVALS_MS = range(100, 3_600_001)

CLIENT_METRICS_PROPERTIES: Mapping[str, Property] = {
    entry.name: entry
    for entry in (
        Property(
            INTERVAL_MS,
            PropertyType.INT,
            str(DEFAULT_INTERVAL_MS),
            None,
            "medium",
            "How often clients push metrics, in ms.",
        ),
        Property(
            MATCH, PropertyType.LIST, "", None, "medium", "Clients that push: what=expression, all of which match."
        ),
        Property(METRICS, PropertyType.LIST, "", None, "medium", "Prefixes of the names of metrics that are pushed."),
    )
}


def client_metrics_value(name: str, overrides: Mapping[str, str]) -> Value:
    """What a property of a subscription means; what a list has twice counts once. Raises ConfigError."""
    entry = CLIENT_METRICS_PROPERTIES[name]
    value = entry.parse(overrides.get(name, entry.default))
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value


def client_metrics_text(name: str, overrides: Mapping[str, str]) -> str | None:
    """The same as it is described."""
    return format_value(client_metrics_value(name, overrides))
