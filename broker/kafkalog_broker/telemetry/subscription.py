"""Subscription to client metrics: which metrics, how often, and of which clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kafkalog_broker.config.group_properties import (
    CLIENT_METRICS_PROPERTIES,
    INTERVAL_MS,
    INTERVALS_MS,
    MATCH,
    METRICS,
    client_metrics_value,
)
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer import regexes

ATTRIBUTES = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
)  # fmt: skip
"""What a client can be matched by."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`patterns`: by attribute, an expression of RE2 that its whole value matches."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, str]

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> Self:
        """Raises BrokerError (INVALID_CONFIG) and ConfigError."""
        metrics, interval_ms, match = (client_metrics_value(name, overrides) for name in (METRICS, INTERVAL_MS, MATCH))
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        assert isinstance(match, tuple)
        return cls(metrics, interval_ms, _patterns(match))

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether a client with these attributes is meant; without patterns all are."""
        return all(regexes.matches([pattern], [attributes[name]])[pattern] for name, pattern in self.patterns.items())


def check_subscription(name: str, overrides: Mapping[str, str]) -> None:
    """Raises BrokerError in Kafka's words (ClientMetricsConfigs.validate), and ConfigError for a value that is none."""
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Subscription name can't be empty")
    for unknown in overrides.keys() - CLIENT_METRICS_PROPERTIES.keys():
        raise BrokerError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {unknown}")
    subscription = Subscription.of(overrides)
    if subscription.interval_ms not in INTERVALS_MS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"Invalid value {subscription.interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 "
            "(1 hour)",
        )


def _patterns(match: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in match:
        parts = text.rstrip("=").split("=")  # as Java splits
        name = parts[0].strip()
        try:
            if len(parts) != 2 or name not in ATTRIBUTES:
                raise BrokerError(ErrorCode.invalid_config)
            found[name] = parts[1].strip()
            regexes.check(found[name])
        except BrokerError:
            raise BrokerError(ErrorCode.invalid_config, f"Illegal client matching pattern: {text}") from None
    return found
