"""Which share partitions of a group have state: being initialized, there, or being deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.group_properties import LATEST, reset_duration_ms
from kafkalog_broker.share.membership.group_records import StatePartitions, TopicInfo
from kafkalog_broker.share.membership.share_group import ShareGroup, Topics
from kafkalog_broker.share.partition.share_partition import Limits

NOTHING = StatePartitions()


def merged(one: Mapping[UUID, TopicInfo], other: Mapping[UUID, TopicInfo]) -> dict[UUID, TopicInfo]:
    result = dict(one)
    for topic, info in other.items():
        have = result.get(topic)
        partitions = info.partitions if have is None else tuple(sorted({*have.partitions, *info.partitions}))
        result[topic] = TopicInfo(info.name, partitions)
    return result


def missing(
    group: ShareGroup, names: Iterable[str], topics: Topics, now_ms: int, retry_ms: int
) -> dict[UUID, TopicInfo]:
    """Partitions of subscribed topics without state, for which it was not begun in the last `retry_ms`."""
    state = group.state or NOTHING
    under_way = {
        topic: info
        for topic, info in state.initializing.items()
        if now_ms - group.initializing_since.get(topic, now_ms) < retry_ms
    }
    known = merged(state.initialized, under_way)
    found = {}
    for name in names:
        topic = topics.get(name)
        if topic is None:
            continue
        have = known[topic.id].partitions if topic.id in known else ()
        if len(have) < topic.partitions:
            wanted = tuple(index for index in range(topic.partitions) if index not in have)
            found[topic.id] = TopicInfo(name, wanted)
    return found


def with_initializing(state: StatePartitions | None, more: Mapping[UUID, TopicInfo]) -> StatePartitions:
    state = state or NOTHING
    deleting = {topic: name for topic, name in state.deleting.items() if topic not in more}
    return StatePartitions(merged(state.initializing, more), state.initialized, deleting)


def with_initialized(state: StatePartitions | None, done: Mapping[UUID, TopicInfo]) -> StatePartitions:
    state = state or NOTHING
    return StatePartitions(_less(state.initializing, done), merged(state.initialized, done), state.deleting)


def without_initializing(state: StatePartitions, failed: Mapping[UUID, TopicInfo]) -> StatePartitions:
    return StatePartitions(_less(state.initializing, failed), state.initialized, state.deleting)


def without_topics(state: StatePartitions, gone: Collection[UUID]) -> StatePartitions:
    return StatePartitions(
        {topic: info for topic, info in state.initializing.items() if topic not in gone},
        {topic: info for topic, info in state.initialized.items() if topic not in gone},
        {topic: name for topic, name in state.deleting.items() if topic not in gone},
    )


def _less(topics: Mapping[UUID, TopicInfo], gone: Mapping[UUID, TopicInfo]) -> dict[UUID, TopicInfo]:
    result = {}
    for topic, info in topics.items():
        left = tuple(index for index in info.partitions if topic not in gone or index not in gone[topic].partitions)
        if left:
            result[topic] = TopicInfo(info.name, left)
    return result


# What holds for one share group: the broker's group.share.* properties, and what was set for the group itself.


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
