"""Expiration of the committed offsets of a group (Kafka's OffsetExpirationCondition)."""

from __future__ import annotations

from kafkalog_broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.offset_records import OffsetKey
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_broker.groups.streams.streams_group import StreamsGroup

CommittingGroup = ClassicGroup | ConsumerGroup | StreamsGroup
"""A group that can commit offsets."""


def expired_offsets(group: CommittingGroup, offsets: OffsetStore, now_ms: int, retention_ms: int) -> list[OffsetKey]:
    """Return the offsets of a group that have expired.

    - All offsets of a classic group expire after it has been empty for `retention_ms` (KIP-211).
    - In a stable classic group of consumers, a consumer group and a streams group, offsets of topics that no member
      subscribes to expire `retention_ms` after their commit.
    - Offsets of a simple group, which only commits offsets, expire `retention_ms` after their commit.
    - An offset that was committed with its own retention time (OffsetCommit v2 to v4) expires after that time instead.
    """
    empty_since = -1
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.state is ClassicGroupState.EMPTY:
            empty_since = group.state_timestamp_ms
        else:
            is_stable = group.state is ClassicGroupState.STABLE
            knows_subscriptions = group.protocol_type == PROTOCOL_TYPE and group.topics is not None
            if not (is_stable and knows_subscriptions):
                return []
    expired = []
    for topic, partitions in offsets.of_group(group.group_id).items():
        if group.is_subscribed_to(topic):
            continue
        for partition, committed in partitions.items():
            since = committed.commit_timestamp_ms if empty_since == -1 else empty_since
            key = OffsetKey(group.group_id, topic, partition)
            expires_ms = committed.expire_timestamp_ms if committed.expire_timestamp_ms != -1 else since + retention_ms
            if now_ms >= expires_ms and not offsets.is_pending(key):
                expired.append(key)
    return expired
