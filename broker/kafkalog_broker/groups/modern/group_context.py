"""Context that all groups of a coordinator share: settings, time, background work, topics and their hashes."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import xxhash

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.group_properties import LATEST
from kafkalog_broker.coordinator.runtime import Scheduler
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry

# ---- topics, and the hash of those that a group subscribes to: when it changes, the group is assigned anew (KIP-1101)
#
# As Kafka computes it (coordinator.group.Utils), so that neither broker rebalances a group that the other has left:
# XXH3 of 64 bits over numbers in little-endian order and characters of 16 bits.

_MAGIC = b"\0"
_I32, _U64, _TWO_U64 = struct.Struct("<i"), struct.Struct("<Q"), struct.Struct("<QQ")


def topic_hash(topic: Topic, rack: str | None) -> int:
    """rack: of the one replica, this broker."""
    return _topic_hash(topic.name, topic.id, topic.partitions, rack)


@lru_cache(1 << 14)  # a few MB, however many topics come and go
def _topic_hash(name: str, topic_id: UUID, partitions: int, rack: str | None) -> int:
    racks = b"" if rack is None else _I32.pack(len(rack)) + _text(rack)
    high, low = divmod(topic_id.int, 1 << 64)
    head = _MAGIC + _TWO_U64.pack(high, low) + _text(name) + _I32.pack(partitions)
    return xxhash.xxh3_64_intdigest(head + b"".join(_I32.pack(index) + racks for index in range(partitions)))


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """Metadata hash of a group from (name, topic_hash) of existing topics; 0 for none. Signed, as in the record."""
    data = b"".join(_U64.pack(value) for _, value in sorted(topics) if value)
    if not data:
        return 0
    value = xxhash.xxh3_64_intdigest(data)
    return value - 2**64 if value >= 2**63 else value


def _text(value: str) -> bytes:
    """Hashes of text end with the number of its characters."""
    units = value.encode("utf-16-le")
    return units + _I32.pack(len(units) // 2)


# ---- settings: the broker's properties, and what was set for a group itself (Kafka's GroupConfig). Times in ms.


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


# ---- the context

InitializeShared = Callable[[str, int, Mapping[UUID, SharedTopic], bool], None]
"""Begins the state of share partitions some time after the answer: (group, state epoch, partitions by topic, whether
they start at offset 0 and not where share.auto.offset.reset says)."""


@dataclass(slots=True)
class GroupContext:
    """Context of one coordinator, for all its groups.

    config: replaced when a property changes. overrides: properties that were set for a group. background: computes
    away from the requests and calls `done` in their thread, with the result or the exception. new_id: for members
    without one. initialize: see InitializeShared.
    """

    config: BrokerConfig
    clock: Clock
    scheduler: Scheduler
    topics: TopicRegistry = field(default_factory=lambda: TopicRegistry([]))
    overrides: Callable[[str], Mapping[str, str]] = lambda group_id: {}
    background: Callable[[Callable[[], Any], Callable[[Any], None]], None] = lambda compute, done: done(compute())
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    initialize: InitializeShared = lambda group_id, epoch, topics, from_start: None

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Hash of the topics with these names, as far as they exist."""
        topics, rack = self.topics.topics, self.config.broker_rack
        return group_hash((name, topic_hash(topics[name], rack)) for name in names if name in topics)
