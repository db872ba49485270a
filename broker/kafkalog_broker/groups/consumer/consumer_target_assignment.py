"""Target assignment of a consumer group, by the server-side assignor that most of its members prefer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.groups.assignors.consumer_assignors import CONSUMER_ASSIGNORS
from kafkalog_broker.groups.assignors.group_spec import Assignments
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.modern.assignment_cost import exceeds_inline_cost
from kafkalog_broker.groups.modern.assignor_input import build_group_spec
from kafkalog_broker.groups.modern.group_context import GroupContext


def is_large_consumer_assignment(context: GroupContext, group: ConsumerGroup, updated: ConsumerMember) -> bool:
    """Return whether the assignment of a group, after the request of the member `updated`, is computed in a thread."""
    topics = group.subscribed_topics_after([], [updated]) | group.matched_topics_after([])
    return exceeds_inline_cost(context, group, topics)


def assign_consumers(context: GroupContext, group: ConsumerGroup, members: Mapping[str, ConsumerMember]) -> Assignments:
    """Compute the target assignment of members. May run in a thread, on a snapshot of the group."""
    assignor = CONSUMER_ASSIGNORS[preferred_assignor(context.config, members.values())]

    def partitions_of(topic_id: UUID) -> Sequence[int]:
        topic = context.topics.by_id(topic_id)
        return range(0 if topic is None else topic.partitions)

    return assignor(build_group_spec(context, group, members, group.topics_of, partitions_of))


def preferred_assignor(config: BrokerConfig, members: Collection[ConsumerMember]) -> str:
    """Return the assignor that most members prefer. By default it is the first one in group.consumer.assignors."""
    counts = Counter(member.assignor for member in members if member.assignor is not None)
    return max(sorted(counts), key=lambda name: counts[name], default=config.group_consumer_assignors[0])
