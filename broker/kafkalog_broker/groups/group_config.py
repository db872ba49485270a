"""What the group coordinator takes from the broker's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_broker.config.broker_config import BrokerConfig

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Times in ms. The defaults are Kafka 4.3's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long the first join phase of an empty group waits for more members, each time one comes."""
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """A new member that waits for its first generation sends no heartbeats, and nobody would notice that it has gone.
    Not a public property of Kafka either."""

    @classmethod
    def of(cls, broker_config: BrokerConfig) -> GroupConfig:
        """`group.*`, `offset.metadata.max.bytes`, `offsets.retention.*`."""
        return cls(
            min_session_timeout_ms=broker_config.group_min_session_timeout_ms,
            max_session_timeout_ms=broker_config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=broker_config.group_initial_rebalance_delay_ms,
            max_size=broker_config.group_max_size,
            offset_metadata_max_bytes=broker_config.offset_metadata_max_bytes,
            offsets_retention_ms=broker_config.offsets_retention_minutes * _MINUTE_MS,
            offsets_retention_check_interval_ms=broker_config.offsets_retention_check_interval_ms,
        )
