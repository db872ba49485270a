"""Consumer groups (KIP-848).

68 ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, goes on or leaves. The answer says its
epoch, and which partitions are its own from now on.
v1  the client makes the member id (KIP-1082); regular expressions

69 ConsumerGroupDescribe, versions 0 to 1: state, epochs, members and assignments of consumer groups.
v1  whether a member speaks the consumer protocol (KIP-1099)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from kafkalog_broker.groups.consumer.consumer_group_heartbeat import ConsumerHeartbeatRequest
from kafkalog_broker.groups.consumer.consumer_target_assignment import preferred_assignor
from kafkalog_broker.groups.modern.group_epoch import MAX_SUBSCRIBED_TOPICS
from kafkalog_broker.groups.modern.heartbeat import HeartbeatResponse
from kafkalog_broker.groups.modern.modern_groups import ModernGroups
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.codec import response_class
from kafkalog_broker.protocol.response_entity import entity, error_response, respond, struct_of
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_CLIENTS_MAKE_IDS_FROM = 1
_LONG_ANSWER = 2_000  # members and names of their topics; an answer of more is encoded in a thread
_MS = timedelta(milliseconds=1)


@api(68, 0, 1)
def consumer_group_heartbeat(request: Request, broker: Broker) -> Any:
    """Also offsets that are committed belong to topics: who may not see one of them does not join for it."""
    asked = request.entity
    try:
        check_topics(request, asked.subscribed_topic_names or ())
        return heartbeat_response(request, broker.groups.consumer_group_heartbeat(_heartbeat(request)))
    except BrokerError as error:
        return error_response(request, error.code, error.message)


def check_topics(request: Request, names: Sequence[str]) -> None:
    """Check the topics that a member subscribes to. Raises BrokerError: INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED."""
    if len(names) > MAX_SUBSCRIBED_TOPICS:
        raise BrokerError(
            ErrorCode.invalid_request, f"{len(names)} topics, at most {MAX_SUBSCRIBED_TOPICS} may be named"
        )
    if request.access is not None:
        for name in dict.fromkeys(names):
            if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise BrokerError(ErrorCode.topic_authorization_failed)


def _heartbeat(request: Request) -> ConsumerHeartbeatRequest:
    asked, access = request.entity, request.access
    owned: dict[UUID, set[int]] | None = None if asked.topic_partitions is None else {}
    if owned is not None:
        for topic in asked.topic_partitions:
            owned.setdefault(topic.topic_id or UUID(int=0), set()).update(topic.partitions)
    return ConsumerHeartbeatRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        member_epoch=asked.member_epoch,
        instance_id=asked.instance_id,
        rack_id=asked.rack_id,
        rebalance_timeout_ms=stated_ms(asked.rebalance_timeout),
        topics=asked.subscribed_topic_names,
        regex=getattr(asked, "subscribed_topic_regex", None),
        assignor=asked.server_assignor,
        owned=owned,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        needs_member_id=request.version >= _CLIENTS_MAKE_IDS_FROM,
        may_describe=None
        if access is None
        else lambda name: access.may(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True),
    )


def stated_ms(timeout: timedelta) -> int | None:
    """-1: as in the last heartbeat."""
    return None if timeout == -_MS else timeout // _MS


def heartbeat_response(request: Request, answer: HeartbeatResponse) -> Any:
    assignment = None
    if answer.assignment is not None:
        topics = [{"topic_id": topic, "partitions": indexes} for topic, indexes in answer.assignment.items()]
        assignment = {"topic_partitions": topics}
    return respond(
        request, member_id=answer.member_id, member_epoch=answer.member_epoch,
        heartbeat_interval=answer.interval_ms, assignment=assignment,
    )  # fmt: skip


Fields = dict[str, Any]
Described = tuple[Iterable[str], Fields, Callable[[Any], Fields]]
"""The names of topics that a description shows, and the fields that its type of group, and each of its members, adds to
those that all have."""


@api(69, 0, 1)
async def consumer_group_describe(request: Request, broker: Broker) -> Any:
    def described(group: ConsumerGroup) -> Described:
        partitions = [
            each for member_id, member in group.members.items()
            for each in (member.assigned, member.pending_revocation, group.target.get(member_id, {}))
        ]  # fmt: skip
        names = topic_names(broker, partitions)
        assignor = preferred_assignor(broker.groups.context.config, group.members.values())
        return names.values(), {"assignor_name": assignor}, partial(_member, group, names)

    return await describe_groups(request, broker.groups.consumer_groups, described)


async def describe_groups(
    request: Request, groups: Callable[[str], ModernGroups[Any]], described: Callable[[Any], Described],
    hidden: str = "The group has described topic(s) that the client is not authorized to describe.",
) -> Any:  # fmt: skip
    """Descriptions of consumer, share or streams groups, those first that the sender may not describe. A group that is
    named more than once is answered once. hidden: text for who may not describe a topic of a group."""
    codes = {group_id: request.refused(group_id) for group_id in dict.fromkeys(request.entity.group_ids)}
    allowed = [group_id for group_id, code in codes.items() if not code]

    turn, left = TimeSlice(), _LONG_ANSWER
    group_struct = struct_of(response_class(request.api_key, request.version), "groups")
    member_struct = struct_of(group_struct, "members")

    async def answer(group_id: str) -> Fields:
        nonlocal left
        try:
            manager = groups(group_id)
            if not group_id:
                raise BrokerError(ErrorCode.invalid_group_id)
            group = manager.group(group_id)
            names, fields, of_member = described(group)
            if not all(request.may(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(names)):
                raise BrokerError(ErrorCode.topic_authorization_failed, hidden)
        except BrokerError as error:
            has_text = error.code in (ErrorCode.group_id_not_found, ErrorCode.topic_authorization_failed)
            what = error.what if has_text else None
            return {"group_id": group_id, "error_code": error.code, "error_message": what}
        if request.entity.include_authorized_operations:
            fields["authorized_operations"] = request.operations(ResourceType.GROUP, group_id)
        fields |= {
            "group_id": group_id, "group_state": group.state.value, "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
        }  # fmt: skip
        members = []
        # All members as of one moment: a change replaces a member's object, and `of_member` is called here for all.
        async for member, more in turn.spread([(member, of_member(member)) for member in group.members.values()]):
            left -= 1 + len(member.topics)
            members.append(entity(
                member_struct, member_id=member.member_id, instance_id=member.instance_id, rack_id=member.rack_id,
                member_epoch=member.epoch, client_id=member.client_id, client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics), **more,
            ))  # fmt: skip
        return {**fields, "members": tuple(members)}

    refused = [{"group_id": group_id, "error_code": code} for group_id, code in codes.items() if code]
    groups_told = [entity(group_struct, **one) async for one in turn.spread(refused)]
    async for group_id in turn.spread(allowed):
        groups_told.append(entity(group_struct, **await answer(group_id)))
    request.has_long_answer = left < 0
    return respond(request, groups=tuple(groups_told))


def topic_names(broker: Broker, assignments: Iterable[Iterable[UUID]]) -> dict[UUID, str]:
    """Those of topics that do not exist any more are left out."""
    topics = {topic: broker.topics.by_id(topic) for assigned in assignments for topic in assigned}
    return {topic: known.name for topic, known in topics.items() if known is not None}


def assignment(partitions: Mapping[UUID, Iterable[int]], names: Mapping[UUID, str]) -> Fields:
    """Assignment of a member, without topics that have no name."""
    return {
        "topic_partitions": [
            {"topic_id": topic, "topic_name": names[topic], "partitions": tuple(indexes)}
            for topic, indexes in partitions.items()
            if topic in names
        ]
    }


def _member(group: ConsumerGroup, names: Mapping[UUID, str], member: ConsumerMember) -> Fields:
    held: dict[UUID, list[int]] = {}
    for owned in (member.assigned, member.pending_revocation):  # until it has given them up, they are its
        for topic, epochs in owned.items():
            held.setdefault(topic, []).extend(epochs)
    return {
        "subscribed_topic_regex": member.regex, "assignment": assignment(held, names),
        "target_assignment": assignment(group.target.get(member.member_id, {}), names),
        "member_type": 1 if member.classic is None else 0,
    }  # fmt: skip
