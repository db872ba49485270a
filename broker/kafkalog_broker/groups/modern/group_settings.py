"""Settings of a group: properties of the broker, overridden by those of the group (Kafka's GroupConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.reset_duration import LATEST


@dataclass(slots=True)
class GroupSettings:
    """Settings of a group of any type."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int


def consumer_group_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> GroupSettings:
    """`overrides` are the properties that were set for the group, by name."""
    return GroupSettings(
        _bounded(overrides, "consumer.session.timeout.ms", config.group_consumer_session_timeout_ms,
                 config.group_consumer_min_session_timeout_ms, config.group_consumer_max_session_timeout_ms),
        _bounded(overrides, "consumer.heartbeat.interval.ms", config.group_consumer_heartbeat_interval_ms,
                 config.group_consumer_min_heartbeat_interval_ms, config.group_consumer_max_heartbeat_interval_ms),
        _bounded(overrides, "consumer.assignment.interval.ms", config.group_consumer_assignment_interval_ms,
                 config.group_consumer_min_assignment_interval_ms, config.group_consumer_max_assignment_interval_ms),
        config.group_consumer_max_size,
    )  # fmt: skip


@dataclass(slots=True)
class StreamsGroupSettings(GroupSettings):
    """Settings of a streams group.

    Attributes:
        standby_replicas: Number of standby tasks of each stateful task.
        initial_delay_ms: Time from the first member to the first target assignment.
    """

    standby_replicas: int
    initial_delay_ms: int


def streams_group_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> StreamsGroupSettings:
    """`overrides` are the properties that were set for the group, by name."""
    return StreamsGroupSettings(
        _bounded(overrides, "streams.session.timeout.ms", config.group_streams_session_timeout_ms,
                 config.group_streams_min_session_timeout_ms, config.group_streams_max_session_timeout_ms),
        _bounded(overrides, "streams.heartbeat.interval.ms", config.group_streams_heartbeat_interval_ms,
                 config.group_streams_min_heartbeat_interval_ms, config.group_streams_max_heartbeat_interval_ms),
        _bounded(overrides, "streams.assignment.interval.ms", config.group_streams_assignment_interval_ms,
                 config.group_streams_min_assignment_interval_ms, config.group_streams_max_assignment_interval_ms),
        config.group_streams_max_size, standby_replicas(config, overrides),
        int(overrides.get("streams.initial.rebalance.delay.ms", config.group_streams_initial_rebalance_delay_ms)),
    )  # fmt: skip


def standby_replicas(config: BrokerConfig, overrides: Mapping[str, str]) -> int:
    """Return the number of standby replicas of a streams group. Cheaper than all settings, for every heartbeat."""
    highest = config.group_streams_max_standby_replicas
    return _bounded(overrides, "streams.num.standby.replicas", config.group_streams_num_standby_replicas, 0, highest)


class Limits(NamedTuple):
    """Limits of the share partitions of a share group.

    Attributes:
        max_in_flight: Records that are acquired and not yet acknowledged or archived.
        max_deliveries: Deliveries of one record, until it is archived.
        lock_ms: Duration of an acquisition lock.
        may_renew: Whether an acknowledgement may renew an acquisition lock.
    """

    max_in_flight: int
    max_deliveries: int
    lock_ms: int
    may_renew: bool = True


@dataclass(slots=True)
class ShareGroupSettings(GroupSettings):
    """Settings of a share group. `auto_offset_reset` is earliest, latest or by_duration:PnDTnHnMn.nS."""

    limits: Limits
    auto_offset_reset: str = LATEST
    reads_committed: bool = False


def share_group_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareGroupSettings:
    """`overrides` are the properties that were set for the group, by name. Their values are valid."""
    return ShareGroupSettings(
        _bounded(overrides, "share.session.timeout.ms", config.group_share_session_timeout_ms,
                 config.group_share_min_session_timeout_ms, config.group_share_max_session_timeout_ms),
        _bounded(overrides, "share.heartbeat.interval.ms", config.group_share_heartbeat_interval_ms,
                 config.group_share_min_heartbeat_interval_ms, config.group_share_max_heartbeat_interval_ms),
        _bounded(overrides, "share.assignment.interval.ms", config.group_share_assignment_interval_ms,
                 config.group_share_min_assignment_interval_ms, config.group_share_max_assignment_interval_ms),
        config.group_share_max_size,
        Limits(
            _bounded(overrides, "share.partition.max.record.locks", config.group_share_partition_max_record_locks,
                     config.group_share_min_partition_max_record_locks,
                     config.group_share_max_partition_max_record_locks),
            _bounded(overrides, "share.delivery.count.limit", config.group_share_delivery_count_limit,
                     config.group_share_min_delivery_count_limit, config.group_share_max_delivery_count_limit),
            _bounded(overrides, "share.record.lock.duration.ms", config.group_share_record_lock_duration_ms,
                     config.group_share_min_record_lock_duration_ms, config.group_share_max_record_lock_duration_ms),
            overrides.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        ),
        overrides.get("share.auto.offset.reset", LATEST).strip(),
        overrides.get("share.isolation.level", "").strip() == "read_committed",
    )  # fmt: skip


def _bounded(overrides: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """Return the value that was set for the group, or the broker's, within the limits of the broker.

    The limits may have been different when the value was set (KIP-848, KIP-1263).
    """
    return min(max(int(overrides.get(name, default)), lowest), highest)
