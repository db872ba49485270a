"""Target assignment of a consumer group, by the server-side assignor that most of its members prefer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.groups.assignors.consumer_assignors import CONSUMER_ASSIGNORS
from kafkalog_broker.groups.assignors.group_spec import Assignments
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.modern.group_changes import GroupChanges
from kafkalog_broker.groups.modern.group_context import GroupContext
from kafkalog_broker.groups.modern.group_settings import GroupSettings
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.groups.modern.target_assignment import (
    MAX_INLINE_COST,
    MEMBER_COST,
    TargetAssignment,
    build_group_spec,
    put_target_assignment,
)


def put_consumer_target_assignment(
    groups: ModernGroups[ConsumerGroup],
    changes: GroupChanges,
    group: ConsumerGroup,
    settings: GroupSettings,
    epoch: int,
    updated: ConsumerMember,
) -> TargetAssignment:
    """Put the target assignment of a group epoch if it is due, and return the part of the member `updated`."""
    context = groups.context
    return put_target_assignment(
        groups, changes, group, epoch, updated,
        interval_ms=settings.assignment_interval_ms,
        is_large=lambda group, updated: _is_large(context, group, updated),
        assign=lambda group, members: _assign(context, group, members),
    )  # fmt: skip


def preferred_assignor(config: BrokerConfig, members: Collection[ConsumerMember]) -> str:
    """Return the assignor that most members prefer. By default it is the first one in group.consumer.assignors."""
    counts = Counter(member.assignor for member in members if member.assignor is not None)
    return max(sorted(counts), key=lambda name: counts[name], default=config.group_consumer_assignors[0])


def _is_large(context: GroupContext, group: ConsumerGroup, updated: ConsumerMember) -> bool:
    topics = group.subscribed_topics_after([], [updated]) | group.matched_topics_after([])
    return context.has_more_partitions(topics, MAX_INLINE_COST - MEMBER_COST * len(group.members))


def _assign(context: GroupContext, group: ConsumerGroup, members: Mapping[str, ConsumerMember]) -> Assignments:
    """Compute the target assignment of members. May run in a thread, on a snapshot of the group."""
    assignor = CONSUMER_ASSIGNORS[preferred_assignor(context.config, members.values())]

    def partitions_of(topic_id: UUID) -> Sequence[int]:
        topic = context.topics.by_id(topic_id)
        return range(0 if topic is None else topic.partitions)

    return assignor(build_group_spec(context, group, members, group.topics_of, partitions_of))
