"""When a committed offset is too old (Kafka's OffsetExpirationCondition)."""

from __future__ import annotations

from kafkalog_broker.groups.consumer_protocol import PROTOCOL_TYPE
from kafkalog_broker.groups.group import Group
from kafkalog_broker.groups.group_state import GroupState
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey
from kafkalog_broker.groups.offset_store import OffsetStore


def expired_offsets(
    group: Group | ConsumerGroup, offsets: OffsetStore, now_ms: int, retention_ms: int
) -> list[OffsetKey]:
    """The offsets of a group that go now.

    - A group without members: all of them, when it has been empty for `retention_ms` (KIP-211).
    - A stable group of consumers: those of topics that no member subscribes to, that long after their commit.
    - A consumer group (KIP-848): those of topics that no member subscribes to, that long after their commit.
    - A simple group (it only commits): that long after their commit.
    - An offset that brought its own expiry (OffsetCommit v2-4) goes by that.
    """
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        counts_from_empty = False
    elif group.state is GroupState.EMPTY:
        counts_from_empty = group.state_timestamp_ms != -1
    elif group.state is GroupState.STABLE and group.protocol_type == PROTOCOL_TYPE and group.topics is not None:
        counts_from_empty = False
    else:
        return []
    found = []
    for topic, partitions in offsets.of_group(group.group_id).items():
        if group.is_subscribed_to(topic):
            continue
        for partition, committed in partitions.items():
            since = committed.commit_timestamp_ms
            if counts_from_empty and isinstance(group, Group):
                since = group.state_timestamp_ms
            key = OffsetKey(group.group_id, topic, partition)
            if _is_expired(committed, since, now_ms, retention_ms) and not offsets.is_pending(key):
                found.append(key)
    return found


def _is_expired(committed: OffsetAndMetadata, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms != -1:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms
