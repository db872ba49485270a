"""Subscriptions to client metrics: which metrics, how often, and of which clients (Kafka's ClientMetricsConfigs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kafkalog_broker.config import client_metrics_properties as properties
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.re2_regexes import check_regex, matching_names

ATTRIBUTES = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
)  # fmt: skip
"""Attributes of a client that a subscription may match."""

MAX_SUBSCRIPTIONS = 200  # limited because a new client is matched with each of them


@dataclass(frozen=True, slots=True)
class Subscription:
    """The value of a CLIENT_METRICS resource. `patterns` has an RE2 expression by attribute, which must match the whole
    value of the attribute."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, str]

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> Self:
        """Parse the properties of a CLIENT_METRICS resource.

        Raises:
            BrokerError: invalid_config, for a pattern that is not valid.
            ConfigError: For another invalid value.
        """
        names = (properties.METRICS, properties.INTERVAL_MS, properties.MATCH)
        metrics, interval_ms, match = (properties.client_metrics_value(name, overrides) for name in names)
        return cls(metrics, interval_ms, _parse_patterns(match))

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether all patterns match the attributes of a client."""
        return all(matching_names([pattern], [attributes[name]])[pattern] for name, pattern in self.patterns.items())


def check_subscription(name: str, overrides: Mapping[str, str]) -> None:
    """Check a CLIENT_METRICS resource as Kafka's ClientMetricsConfigs.validate does, with its messages.

    Raises:
        BrokerError: invalid_request or invalid_config.
        ConfigError: For a value that cannot be parsed.
    """
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Subscription name can't be empty")
    for unknown in overrides.keys() - properties.CLIENT_METRICS_PROPERTIES.keys():
        raise BrokerError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {unknown}")
    subscription = Subscription.of(overrides)
    if subscription.interval_ms not in properties.INTERVALS_MS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"Invalid value {subscription.interval_ms} for interval.ms, interval must be between 100 and 3600000 "
            "(1 hour)",
        )


def _parse_patterns(match: tuple[str, ...]) -> dict[str, str]:
    patterns = {}
    for text in match:
        parts = text.rstrip("=").split("=")  # Java's String.split drops empty strings at the end
        name = parts[0].strip()
        try:
            if len(parts) != 2 or name not in ATTRIBUTES:
                raise BrokerError(ErrorCode.invalid_config)
            patterns[name] = parts[1].strip()
            check_regex(patterns[name])
        except BrokerError:
            raise BrokerError(ErrorCode.invalid_config, f"Illegal client matching pattern: {text}") from None
    return patterns
