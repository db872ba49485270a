"""What holds for one share group: the broker's group.share.* properties, and what was set for the group itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.share_properties import LATEST, reset_duration_ms
from kafkalog_broker.share.partition.share_partition import Limits


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times in ms. auto_offset_reset: earliest, latest or by_duration:PnDTnHnMn.nS."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    initialize_retry_ms: int
    max_size: int
    limits: Limits
    auto_offset_reset: str = LATEST
    reads_committed: bool = False

    @classmethod
    def of(cls, config: BrokerConfig, own: Mapping[str, str]) -> GroupSettings:
        """own: of the group; its values were checked when they were set."""

        def number(name: str, default: int) -> int:
            return int(own.get(name, default))

        return cls(
            number("share.session.timeout.ms", config.group_share_session_timeout_ms),
            number("share.heartbeat.interval.ms", config.group_share_heartbeat_interval_ms),
            number("share.assignment.interval.ms", config.group_share_assignment_interval_ms),
            config.group_share_initialize_retry_interval_ms,
            config.group_share_max_size,
            Limits(
                number("share.partition.max.record.locks", config.group_share_partition_max_record_locks),
                number("share.delivery.count.limit", config.group_share_delivery_count_limit),
                number("share.record.lock.duration.ms", config.group_share_record_lock_duration_ms),
                own.get("share.renew.acknowledge.enable", "true").lower() == "true",
            ),
            own.get("share.auto.offset.reset", LATEST).lower(),
            own.get("share.isolation.level", "").lower() == "read_committed",
        )

    @property
    def reset_duration_ms(self) -> int | None:
        """How far back delivery begins; None where auto_offset_reset is no duration."""
        return reset_duration_ms(self.auto_offset_reset)
