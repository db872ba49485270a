"""Which offsets of a group have expired (Kafka's OffsetExpirationCondition)."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.groups.classic.classic_group import Group, GroupState
from kafkalog_broker.groups.classic.consumer_protocol import PROTOCOL_TYPE
from kafkalog_broker.groups.classic.offset_records import OffsetKey
from kafkalog_broker.groups.consumer.reconciling import ReconcilingGroup
from kafkalog_broker.groups.offset_store import OffsetStore

AnyGroup = Group | ReconcilingGroup[Any]  # a group that commits offsets


def expired_offsets(group: AnyGroup, offsets: OffsetStore, now_ms: int, retention_ms: int) -> list[OffsetKey]:
    """The offsets of a group that are too old (Kafka's OffsetExpirationCondition).

    - A group without members: all of them, when it has been empty for `retention_ms` (KIP-211).
    - A stable group of consumers, a consumer or streams group: those of topics that no member subscribes to, that long
      after their commit.
    - A simple group (it only commits): that long after their commit.
    - An offset that brought its own expiry (OffsetCommit v2-4) goes by that.
    """
    empty_since = -1
    if isinstance(group, Group) and group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            empty_since = group.state_timestamp_ms
        elif group.state is not GroupState.STABLE or group.protocol_type != PROTOCOL_TYPE or group.topics is None:
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
