"""What administrators are shown of a consumer group (ConsumerGroup.asDescribedGroup)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from kafkalog_broker.coordinators.java_order import copied, in_map_order
from kafkalog_broker.coordinators.partition_for import java_hash
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.heartbeat_messages import DescribedConsumer, DescribedConsumerGroup, DescribedTopic
from kafkalog_broker.groups.modern.topics_view import TopicsView
from kafkalog_broker.groups.modern.values import ConsumerMember


def describe(group: ConsumerGroup, default_assignor: str, topics: TopicsView) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group.group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        group.preferred_assignor(None, None) or default_assignor,
        tuple(_member(group, member, topics) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> DescribedConsumer:
    held: dict[UUID, list[int]] = {}
    for owned in (member.assigned, member.pending_revocation):  # until it has given them up, they are its
        for topic, epochs in owned.items():
            held.setdefault(topic, []).extend(epochs)
    return DescribedConsumer(
        member.member_id, member.instance_id, member.rack_id, member.epoch, member.client_id, member.client_host,
        tuple(in_map_order(sorted(member.topics), java_hash, copied(len(member.topics)))), member.regex,
        _described(held, topics), _described(group.target.get(member.member_id, {}), topics),
        member.classic is not None,
    )  # fmt: skip


def _described(partitions: Mapping[UUID, Iterable[int]], topics: TopicsView) -> tuple[DescribedTopic, ...]:
    """Without topics that do not exist any more."""
    found = ((topics.by_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    return tuple(
        DescribedTopic(topic.topic_id, topic.name, tuple(numbers)) for topic, numbers in found if topic is not None
    )
