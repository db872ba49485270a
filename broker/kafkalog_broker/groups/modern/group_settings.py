"""Settings of a group: properties of the broker, overridden by those of the group (Kafka's GroupConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.group_properties import LATEST


@dataclass(slots=True)
class GroupSettings:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int


def _bounded(overrides: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    """The group's value or the default, clamped: limits may have been others when it was set (KIP-848, KIP-1263)."""
    return min(max(int(overrides.get(name, default)), lowest), highest)


def consumer_group_settings(c: BrokerConfig, overrides: Mapping[str, str]) -> GroupSettings:
    """overrides: properties of the group by name."""
    return GroupSettings(
        _bounded(overrides, "consumer.session.timeout.ms", c.group_consumer_session_timeout_ms,
                 c.group_consumer_min_session_timeout_ms, c.group_consumer_max_session_timeout_ms),
        _bounded(overrides, "consumer.heartbeat.interval.ms", c.group_consumer_heartbeat_interval_ms,
                 c.group_consumer_min_heartbeat_interval_ms, c.group_consumer_max_heartbeat_interval_ms),
        _bounded(overrides, "consumer.assignment.interval.ms", c.group_consumer_assignment_interval_ms,
                 c.group_consumer_min_assignment_interval_ms, c.group_consumer_max_assignment_interval_ms),
        c.group_consumer_max_size,
    )  # fmt: skip


@dataclass(slots=True)
class StreamsGroupSettings(GroupSettings):
    """standby_replicas: of each stateful task. initial_delay_ms: from the first member to the first assignment."""

    standby_replicas: int
    initial_delay_ms: int


def streams_group_settings(c: BrokerConfig, overrides: Mapping[str, str]) -> StreamsGroupSettings:
    """overrides: properties of the group by name."""
    return StreamsGroupSettings(
        _bounded(overrides, "streams.session.timeout.ms", c.group_streams_session_timeout_ms,
                 c.group_streams_min_session_timeout_ms, c.group_streams_max_session_timeout_ms),
        _bounded(overrides, "streams.heartbeat.interval.ms", c.group_streams_heartbeat_interval_ms,
                 c.group_streams_min_heartbeat_interval_ms, c.group_streams_max_heartbeat_interval_ms),
        _bounded(overrides, "streams.assignment.interval.ms", c.group_streams_assignment_interval_ms,
                 c.group_streams_min_assignment_interval_ms, c.group_streams_max_assignment_interval_ms),
        c.group_streams_max_size, standby_replicas(c, overrides),
        int(overrides.get("streams.initial.rebalance.delay.ms", c.group_streams_initial_rebalance_delay_ms)),
    )  # fmt: skip


def standby_replicas(c: BrokerConfig, overrides: Mapping[str, str]) -> int:
    """Those of a streams group alone, which every heartbeat asks for."""
    highest = c.group_streams_max_standby_replicas
    return _bounded(overrides, "streams.num.standby.replicas", c.group_streams_num_standby_replicas, 0, highest)


class Limits(NamedTuple):
    """Limits of a share group: records in flight, deliveries of one record, ms of an acquisition lock."""

    max_in_flight: int
    max_deliveries: int
    lock_ms: int
    may_renew: bool = True


@dataclass(slots=True)
class ShareGroupSettings(GroupSettings):
    """auto_offset_reset: earliest, latest or by_duration:PnDTnHnMn.nS."""

    limits: Limits
    auto_offset_reset: str = LATEST
    reads_committed: bool = False


def share_group_settings(c: BrokerConfig, overrides: Mapping[str, str]) -> ShareGroupSettings:
    """overrides: of the group; their values were checked when they were set."""
    return ShareGroupSettings(
        _bounded(overrides, "share.session.timeout.ms", c.group_share_session_timeout_ms,
                 c.group_share_min_session_timeout_ms, c.group_share_max_session_timeout_ms),
        _bounded(overrides, "share.heartbeat.interval.ms", c.group_share_heartbeat_interval_ms,
                 c.group_share_min_heartbeat_interval_ms, c.group_share_max_heartbeat_interval_ms),
        _bounded(overrides, "share.assignment.interval.ms", c.group_share_assignment_interval_ms,
                 c.group_share_min_assignment_interval_ms, c.group_share_max_assignment_interval_ms),
        c.group_share_max_size,
        Limits(
            _bounded(overrides, "share.partition.max.record.locks", c.group_share_partition_max_record_locks,
                     c.group_share_min_partition_max_record_locks, c.group_share_max_partition_max_record_locks),
            _bounded(overrides, "share.delivery.count.limit", c.group_share_delivery_count_limit,
                     c.group_share_min_delivery_count_limit, c.group_share_max_delivery_count_limit),
            _bounded(overrides, "share.record.lock.duration.ms", c.group_share_record_lock_duration_ms,
                     c.group_share_min_record_lock_duration_ms, c.group_share_max_record_lock_duration_ms),
            overrides.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        ),
        overrides.get("share.auto.offset.reset", LATEST).strip(),
        overrides.get("share.isolation.level", "").strip() == "read_committed",
    )  # fmt: skip
