"""Settings of a group: properties of the group, with defaults and bounds from the broker (Kafka's GroupConfig)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
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
    """Return the settings of a group. `overrides` are the properties that were set for the group, by name."""
    return GroupSettings(
        _bounded(config, overrides, "consumer.session.timeout.ms"),
        _bounded(config, overrides, "consumer.heartbeat.interval.ms"),
        _bounded(config, overrides, "consumer.assignment.interval.ms"),
        config.group_consumer_max_size,
    )


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
    """Return the settings of a group. `overrides` are the properties that were set for the group, by name."""
    return StreamsGroupSettings(
        _bounded(config, overrides, "streams.session.timeout.ms"),
        _bounded(config, overrides, "streams.heartbeat.interval.ms"),
        _bounded(config, overrides, "streams.assignment.interval.ms"),
        config.group_streams_max_size,
        standby_replicas(config, overrides),
        int(overrides.get("streams.initial.rebalance.delay.ms", config.group_streams_initial_rebalance_delay_ms)),
    )


def standby_replicas(config: BrokerConfig, overrides: Mapping[str, str]) -> int:
    """Return the number of standby replicas of a streams group. Heartbeats need only this setting."""
    replicas = int(overrides.get("streams.num.standby.replicas", config.group_streams_num_standby_replicas))
    return min(max(replicas, 0), config.group_streams_max_standby_replicas)


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
    """Return the settings of a group. `overrides` are the properties that were set for the group, by name."""
    return ShareGroupSettings(
        _bounded(config, overrides, "share.session.timeout.ms"),
        _bounded(config, overrides, "share.heartbeat.interval.ms"),
        _bounded(config, overrides, "share.assignment.interval.ms"),
        config.group_share_max_size,
        Limits(
            _bounded(config, overrides, "share.partition.max.record.locks"),
            _bounded(config, overrides, "share.delivery.count.limit"),
            _bounded(config, overrides, "share.record.lock.duration.ms"),
            overrides.get("share.renew.acknowledge.enable", "true").strip().lower() == "true",
        ),
        overrides.get("share.auto.offset.reset", LATEST).strip(),
        overrides.get("share.isolation.level", "").strip() == "read_committed",
    )


_DEFAULTS_AND_BOUNDS: dict[str, Callable[[BrokerConfig], tuple[int, int, int]]] = {
    "consumer.session.timeout.ms": attrgetter(
        "group_consumer_session_timeout_ms",
        "group_consumer_min_session_timeout_ms",
        "group_consumer_max_session_timeout_ms",
    ),
    "consumer.heartbeat.interval.ms": attrgetter(
        "group_consumer_heartbeat_interval_ms",
        "group_consumer_min_heartbeat_interval_ms",
        "group_consumer_max_heartbeat_interval_ms",
    ),
    "consumer.assignment.interval.ms": attrgetter(
        "group_consumer_assignment_interval_ms",
        "group_consumer_min_assignment_interval_ms",
        "group_consumer_max_assignment_interval_ms",
    ),
    "share.session.timeout.ms": attrgetter(
        "group_share_session_timeout_ms", "group_share_min_session_timeout_ms", "group_share_max_session_timeout_ms"
    ),
    "share.heartbeat.interval.ms": attrgetter(
        "group_share_heartbeat_interval_ms",
        "group_share_min_heartbeat_interval_ms",
        "group_share_max_heartbeat_interval_ms",
    ),
    "share.assignment.interval.ms": attrgetter(
        "group_share_assignment_interval_ms",
        "group_share_min_assignment_interval_ms",
        "group_share_max_assignment_interval_ms",
    ),
    "streams.session.timeout.ms": attrgetter(
        "group_streams_session_timeout_ms",
        "group_streams_min_session_timeout_ms",
        "group_streams_max_session_timeout_ms",
    ),
    "streams.heartbeat.interval.ms": attrgetter(
        "group_streams_heartbeat_interval_ms",
        "group_streams_min_heartbeat_interval_ms",
        "group_streams_max_heartbeat_interval_ms",
    ),
    "streams.assignment.interval.ms": attrgetter(
        "group_streams_assignment_interval_ms",
        "group_streams_min_assignment_interval_ms",
        "group_streams_max_assignment_interval_ms",
    ),
    "share.partition.max.record.locks": attrgetter(
        "group_share_partition_max_record_locks",
        "group_share_min_partition_max_record_locks",
        "group_share_max_partition_max_record_locks",
    ),
    "share.delivery.count.limit": attrgetter(
        "group_share_delivery_count_limit",
        "group_share_min_delivery_count_limit",
        "group_share_max_delivery_count_limit",
    ),
    "share.record.lock.duration.ms": attrgetter(
        "group_share_record_lock_duration_ms",
        "group_share_min_record_lock_duration_ms",
        "group_share_max_record_lock_duration_ms",
    ),
}
"""By setting of a group, a function that gets its default, minimum and maximum from the configuration of the broker."""


def _bounded(config: BrokerConfig, overrides: Mapping[str, str], setting: str) -> int:
    """Return the value that was set for the group, or the broker's default, within the bounds of the broker.

    The bounds may have been different when the value was set (KIP-848, KIP-1263).
    """
    default, lowest, highest = _DEFAULTS_AND_BOUNDS[setting](config)
    return min(max(int(overrides.get(setting, default)), lowest), highest)
