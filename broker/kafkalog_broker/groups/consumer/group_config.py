"""Settings of a consumer group: its own properties, within the broker's limits (Kafka's GroupConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig


class GroupSettings(NamedTuple):
    """Settings of a group (KIP-848, KIP-1263)."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def group_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> GroupSettings:
    """overrides: properties of the group by name. A value beyond the limits, which may have been other ones when it was
    set, counts as the nearest that is allowed."""
    c = config

    def value(name: str, default: int, lowest: int, highest: int) -> int:
        text = overrides.get(f"consumer.{name}")
        return default if text is None else min(max(int(text), lowest), highest)

    interval = min(
        max(c.group_consumer_assignment_interval_ms, c.group_consumer_min_assignment_interval_ms),
        c.group_consumer_max_assignment_interval_ms,
    )
    return GroupSettings(
        value(
            "session.timeout.ms", c.group_consumer_session_timeout_ms, c.group_consumer_min_session_timeout_ms,
            c.group_consumer_max_session_timeout_ms,
        ),
        value(
            "heartbeat.interval.ms", c.group_consumer_heartbeat_interval_ms,
            c.group_consumer_min_heartbeat_interval_ms, c.group_consumer_max_heartbeat_interval_ms,
        ),
        value(
            "assignment.interval.ms", interval, c.group_consumer_min_assignment_interval_ms,
            c.group_consumer_max_assignment_interval_ms,
        ),
    )  # fmt: skip
