"""Descriptions of consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import array_element_class, build_response, build_struct
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_LONG_RESPONSE = 2_000
"""A response with more members and subscribed topics than this is encoded in a thread."""

_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."

Fields = dict[str, Any]
"""Fields of a response struct by name."""


class GroupDescription(NamedTuple):
    """The part of a group's description that depends on the type of the group.

    Attributes:
        topics: Names of the topics that the description discloses.
        fields: Fields of the group.
        member_fields: Function from a member of the group to fields of the member.
    """

    topics: Iterable[str]
    fields: Fields
    member_fields: Callable[[Any], Fields]


async def describe_groups(
    request: Request,
    groups: Callable[[str], ModernGroups[Any]],
    describe: Callable[[Any], GroupDescription],
    hidden_topics_message: str = _HIDDEN_TOPICS,
) -> Any:
    """Return the response of a ConsumerGroupDescribe, ShareGroupDescribe or StreamsGroupDescribe request.

    Each group is described once, however often it is named. Groups that the sender may not describe come first, as in
    Kafka.

    Args:
        request: Request with `group_ids`.
        groups: Function from a group ID to the groups of its shard.
        describe: Function from a group to its description.
        hidden_topics_message: Error message for a group with a topic that the sender may not describe.
    """
    codes = {group_id: request.authorization_error(group_id) for group_id in dict.fromkeys(request.entity.group_ids)}
    time_slice = TimeSlice()
    remaining = _LONG_RESPONSE
    group_struct = array_element_class(response_class(request.api_key, request.version), "groups")
    member_struct = array_element_class(group_struct, "members")

    async def group_fields(group_id: str) -> Fields:
        nonlocal remaining
        try:
            shard_groups = groups(group_id)
            if not group_id:
                raise BrokerError(ErrorCode.invalid_group_id)
            group = shard_groups.group(group_id)
            description = describe(group)
            for topic in sorted(description.topics):
                if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, topic):
                    raise BrokerError(ErrorCode.topic_authorization_failed, hidden_topics_message)
        except BrokerError as error:
            has_message = error.code in (ErrorCode.group_id_not_found, ErrorCode.topic_authorization_failed)
            message = error.what if has_message else None
            return {"group_id": group_id, "error_code": error.code, "error_message": message}
        fields = {
            **description.fields, "group_id": group_id, "group_state": group.state.value, "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
        }  # fmt: skip
        if request.entity.include_authorized_operations:
            fields["authorized_operations"] = request.operations(ResourceType.GROUP, group_id)
        # All members are described before the first time slice ends, so that they belong to one state of the group.
        snapshot = [(member, description.member_fields(member)) for member in group.members.values()]
        members = []
        async for member, member_fields in time_slice.spread(snapshot):
            remaining -= 1 + len(member.topics)
            members.append(build_struct(
                member_struct, member_id=member.member_id, instance_id=member.instance_id, rack_id=member.rack_id,
                member_epoch=member.epoch, client_id=member.client_id, client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics), **member_fields,
            ))  # fmt: skip
        return {**fields, "members": tuple(members)}

    denied = [{"group_id": group_id, "error_code": code} for group_id, code in codes.items() if code]
    results = [build_struct(group_struct, **fields) async for fields in time_slice.spread(denied)]
    async for group_id in time_slice.spread([group_id for group_id, code in codes.items() if not code]):
        results.append(build_struct(group_struct, **await group_fields(group_id)))
    request.has_long_response = remaining < 0
    return build_response(request, groups=tuple(results))


def existing_topic_names(broker: Broker, assignments: Iterable[Iterable[UUID]]) -> dict[UUID, str]:
    """Return the names of the assigned topics by ID, without topics that no longer exist."""
    topics = {topic_id: broker.topics.by_id(topic_id) for topic_ids in assignments for topic_id in topic_ids}
    return {topic_id: topic.name for topic_id, topic in topics.items() if topic is not None}


def assignment_struct(partitions: Mapping[UUID, Iterable[int]], names: Mapping[UUID, str]) -> Fields:
    """Return the assignment of a member. Topics without a name in `names` are left out."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": names[topic_id], "partitions": tuple(indexes)}
            for topic_id, indexes in partitions.items()
            if topic_id in names
        ]
    }
